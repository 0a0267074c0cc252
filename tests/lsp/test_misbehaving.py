"""A scripted server, well-behaved and not: nothing hangs, nothing is left behind, and messages say what happened."""

import os
from pathlib import Path

import anyio
import pytest

from acp_agent.lsp import lsp_client
from acp_agent.lsp.base import Document, LspError
from acp_agent.lsp.server_documents import MOST_OPEN
from tests.e2e.kit import alive
from tests.lsp.kit import START, Kit, messages, raw, running


async def edit(kit: Kit, before: str, after: str, name: str = "a.raw"):
    return await kit.servers.new_errors(Document(kit.folder / name, before), kit.write(name, after))


@pytest.mark.parametrize("faults", [
    (), ("versionless",), ("parts",), ("stale",), ("pull",), ("pull", "busy"), ("commands",), ("commands", "refusing"),
])  # fmt: skip
async def test_only_new_errors_are_told_however_the_server_gives_diagnostics(tmp_path: Path, faults: tuple[str, ...]):
    async with running(tmp_path, raw(*faults)) as kit:
        old = "ERROR old\nfine\n"
        found = await edit(kit, old, "inserted\nERROR old\nfine\nERROR first\nWARNING w\nERROR second\n")
        assert messages(found.errors) == [("a.raw", "first"), ("a.raw", "second")] and found.waiting == ()
        again = await edit(kit, "ERROR old\n", "ERROR old\nmore\n")
        assert (again.errors, again.waiting) == ((), ())


async def test_the_server_hears_of_a_file_that_was_saved_and_not_of_an_edit_that_is_not_on_disk(tmp_path: Path):
    async with running(tmp_path, raw()) as kit:
        before = kit.write("a.raw", "fine\n")
        found = await kit.servers.new_errors(before, Document(before.path, "ERROR unsaved\n"))
        assert messages(found.errors) == [("a.raw", "unsaved")]
        assert not kit.heard("textDocument/didSave") and not kit.heard("workspace/didChangeWatchedFiles")
        found = await kit.servers.new_errors(None, kit.write("new.raw", "ERROR one\n"))
        assert messages(found.errors) == [("new.raw", "one")], "all errors of a new file are new"
        (event,) = await kit.hears("workspace/didChangeWatchedFiles")
        assert event["params"]["changes"] == [{"uri": (tmp_path / "new.raw").as_uri(), "type": 1}]
        await kit.hears("textDocument/didSave")


async def test_errors_that_an_edit_brings_to_other_open_files_are_told_after_its_own(tmp_path: Path):
    async with running(tmp_path, raw("beyond")) as kit:
        user = kit.write("b.raw", "uses a\n")
        hidden = kit.write("secret.raw", "uses a\n")
        await kit.servers.diagnostics([user])
        with pytest.raises(LspError, match=r"secret\.raw must not be read"):
            await kit.servers.diagnostics([hidden])
        found = await kit.servers.new_errors(None, kit.write("a.raw", "ERROR own\n"))
        assert messages(found.errors) == [("a.raw", "own"), ("b.raw", "broken by 2")]
        assert not [each for each in kit.heard("textDocument/didOpen") if "secret" in str(each)]


async def test_a_file_that_was_watched_is_not_opened_again(tmp_path: Path):
    async with running(tmp_path, raw()) as kit:
        before = kit.write("a.raw", "ERROR old\n")
        kit.servers.watch(before)
        await kit.hears("textDocument/didOpen")
        assert messages((await edit(kit, before.text, "ERROR old\nERROR new\n")).errors) == [("a.raw", "new")]
        assert len(kit.heard("textDocument/didOpen")) == 1 and len(kit.heard("textDocument/didChange")) == 1


async def test_a_server_that_says_nothing_is_named_and_the_edit_goes_on(tmp_path: Path):
    async with running(tmp_path, raw("dumb", edit_wait=0.5)) as kit:
        found = await edit(kit, "one\n", "two\n")
        assert (found.errors, found.waiting) == ((), ("raw",))
        # It was told of the text nevertheless.
        while "two" not in str(kit.heard()):
            await anyio.sleep(0.01)


async def test_a_server_that_publishes_only_what_changed_costs_no_error_and_no_long_wait_for_ever(tmp_path: Path):
    async with running(tmp_path, raw("unmoved", edit_wait=0.5)) as kit:
        await kit.servers.diagnostics([kit.write("a.raw", "one\n")])
        for before, after in [("one\n", "two\n"), ("two\n", "three\n"), ("three\n", "four\n")]:
            assert (await edit(kit, before, after)).waiting == ("raw",)
        found = await edit(kit, "four\n", "ERROR five\n")
        assert (messages(found.errors), found.waiting) == ([("a.raw", "five")], ())
        assert (await edit(kit, "ERROR five\n", "ERROR five\n\n")).waiting == ("raw",)
        report = await kit.servers.diagnostics([Document(tmp_path / "a.raw", "ERROR five\n\n")])
        assert [item.message for each in report.items for item in each.diagnostics] == ["five"]


async def test_a_server_that_says_nothing_of_clean_files_is_heard_when_there_is_an_error(tmp_path: Path):
    async with running(tmp_path, raw("mute", edit_wait=0.5)) as kit:
        kit.servers.watch(kit.write("a.raw", ""))
        await kit.state("ready")
        assert (await edit(kit, "one\n", "two\n", "b.raw")).waiting == ("raw",)
        found = await edit(kit, "two\n", "ERROR three\n", "b.raw")
        assert (messages(found.errors), found.waiting) == ([("b.raw", "three")], ())
        found = await edit(kit, "ERROR three\n", "four\n", "b.raw")
        assert (found.errors, found.waiting) == ((), ())


async def test_no_server_is_started_by_an_edit_where_errors_are_not_asked_for(tmp_path: Path):
    async with running(tmp_path, raw(edit_wait=0)) as kit:
        assert (await edit(kit, "one\n", "ERROR two\n")).errors == () and not kit.launches
        await kit.servers.diagnostics([kit.write("a.raw", "one\n")])
        assert (await edit(kit, "one\n", "ERROR two\n")).errors == ()
        (changed,) = await kit.hears("textDocument/didChange")
        assert changed["params"]["contentChanges"] == [{"text": "ERROR two\n"}]


async def test_a_server_that_crashes_is_started_again_and_has_its_documents_again(tmp_path: Path):
    async with running(tmp_path, raw(), ONCE=str(tmp_path / "once")) as kit:
        await kit.servers.diagnostics([kit.write("b.raw", "ERROR b\n")])
        assert messages((await edit(kit, "fine\n", "ONCE\nERROR new\n")).errors) == [("a.raw", "new")]
        assert [(each.state, each.restarts) for each in kit.servers.states()] == [("ready", 1)]
        texts = [each["params"]["textDocument"]["text"] for each in kit.heard("textDocument/didOpen")]
        assert texts == ["ERROR b\n", "fine\n", "ERROR b\n", "ONCE\nERROR new\n"]
        assert not kit.told


async def test_a_server_that_always_crashes_is_given_up_with_its_last_words(tmp_path: Path):
    async with running(tmp_path, raw(max_restarts=2)) as kit:
        found = await edit(kit, "fine\n", "CRASH\n")
        assert (found.errors, found.waiting) == ((), ())
        assert len(kit.launches) == 3
        (told,) = kit.told
        assert told == (
            "the language server raw is not running after 3 starts: its process exited with code 3; its last output: "
            "fatal: this text is too much"
        )
        with pytest.raises(LspError, match="this text is too much"):
            await kit.servers.hover(kit.write("b.raw", ""), START)
        assert len(kit.launches) == 3


@pytest.mark.parametrize(("fault", "words"), [
    ("dies", "its process exited with code 7; its last output: no licence found"),
    ("garbage", "it printed something that is not an LSP message; its last output: xxx"),
    ("huge", "it sent a message of 100000000000 bytes, more than 67108864"),
    ("refuses", "the language server raw refused initialize: there is no project"),
    ("utf8", "it uses the position encoding utf-8 instead of utf-16"),
    ("flood", "it sent more than 2000 messages within 10 s"),
])  # fmt: skip
async def test_a_server_that_cannot_be_used_is_an_error_in_words(tmp_path: Path, fault: str, words: str, monkeypatch):
    monkeypatch.setattr(lsp_client, "FLOOD", 2_000)  # A busy machine sends no more in that time.
    async with running(tmp_path, raw(fault, max_restarts=0)) as kit:
        document = kit.write("a.raw", "fine\n")
        with pytest.raises(LspError) as caught:
            await kit.servers.diagnostics([document])
            await kit.state("failed")  # A flood comes with answers among it.
            await kit.servers.diagnostics([document])
        assert words in str(caught.value)
        assert (await edit(kit, "fine\n", "ERROR x\n")).errors == () and len(kit.told) == 1


async def test_a_server_that_never_becomes_ready_is_waited_for_as_configured(tmp_path: Path):
    async with running(tmp_path, raw("silent", start_timeout=0.3, max_restarts=0, edit_wait=0.1)) as kit:
        assert (await edit(kit, "one\n", "two\n")).waiting == ("raw",)
        with pytest.raises(LspError, match=r"not ready after 0.3 s|did not answer initialize within 0.3 s"):
            await kit.servers.hover(Document(tmp_path / "a.raw", "two\n"), START)


async def test_a_program_that_is_not_there_is_an_error_that_names_it(tmp_path: Path):
    config = raw()
    async with running(tmp_path, config) as kit:
        config.servers["raw"].command[0] = "no-such-server"
    async with running(tmp_path, config) as kit:
        assert kit.servers.knows(tmp_path / "a.raw") and not kit.servers.knows(tmp_path / "a.unknown")
        with pytest.raises(
            LspError, match=r"no language server for files like a.raw is installed; looked for: no-such-"
        ):
            await kit.servers.diagnostics([kit.write("a.raw", "")])
        with pytest.raises(LspError, match=r"no language server is known for files like a.unknown"):
            await kit.servers.hover(kit.write("a.unknown", ""), START)
        kit.servers.watch(kit.write("a.raw", ""))


async def test_strange_messages_break_nothing(tmp_path: Path):
    async with running(tmp_path, raw("strange", "chatty")) as kit:
        assert messages((await edit(kit, "fine\n", "ERROR new\n")).errors) == [("a.raw", "new")]
        assert await kit.servers.hover(Document(tmp_path / "a.raw", "ERROR new\n"), START) is not None
        answers = {str(each["id"]): each for each in kit.heard() if "method" not in each}
        assert answers["1"]["error"]["code"] == -32601 and answers["acp-coder-2"]["result"] == [{"level": 3}]
        assert answers["3"]["result"]["applied"] is False and answers["4"]["result"] == []


async def test_a_request_that_is_cancelled_is_cancelled_at_the_server_and_a_late_answer_is_nobodys(tmp_path: Path):
    async with running(tmp_path, raw("late")) as kit:
        document = kit.write("a.raw", "fine\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kit.servers.hover, document, START)
            (asked,) = await kit.hears("textDocument/hover")
            tasks.cancel_scope.cancel()
        (cancelled,) = await kit.hears("$/cancelRequest")
        assert cancelled["params"]["id"] == asked["id"]
        assert len(await kit.servers.definition(document, START)) == 1


async def test_a_request_without_an_answer_or_that_kills_the_server_ends_in_words(tmp_path: Path):
    async with running(tmp_path, raw("late", request_timeout=0.2)) as kit:
        with pytest.raises(LspError, match=r"raw did not answer textDocument/hover within 0.2 s"):
            await kit.servers.hover(kit.write("a.raw", "fine\n"), START)
    async with running(tmp_path, raw("crash-on-hover", max_restarts=1)) as kit:
        with pytest.raises(LspError, match="is not running after 2 starts: its process exited with code 9"):
            await kit.servers.hover(kit.write("a.raw", "fine\n"), START)


async def test_a_server_that_will_not_leave_is_killed_with_its_children(tmp_path: Path):
    child = tmp_path / "child"
    async with running(tmp_path, raw("stubborn"), CHILD=str(child)) as kit:
        await kit.servers.diagnostics([kit.write("a.raw", "fine\n")])
        pids = [int(pid) for pid in child.read_text(encoding="utf-8").split()]
        for pid in pids:
            os.kill(pid, 0)
    while any(map(alive, pids)):
        await anyio.sleep(0.01)


async def test_hidden_places_are_left_out_renames_that_touch_them_refused_and_the_end_told(tmp_path: Path):
    async with running(tmp_path, raw()) as kit:
        document = kit.write("a.raw", "fine\n")
        (place,) = await kit.servers.definition(document, START)
        assert place.uri == document.path.as_uri()
        with pytest.raises(LspError, match="must not be read"):
            await kit.servers.rename(document, START, "hidden")
    assert [each["method"] for each in kit.heard()][-2:] == ["shutdown", "exit"]
    assert [each.state for each in kit.servers.states()] == ["stopped"]
    with pytest.raises(LspError, match="was stopped"):
        await kit.servers.diagnostics([Document(tmp_path / "a.raw", "fine\n")])


async def test_a_rename_gives_edits_or_says_why_not(tmp_path: Path):
    async with running(tmp_path, raw("prepares")) as kit:
        document = kit.write("a.raw", "fine\n")
        edit = await kit.servers.rename(document, START, "good")
        assert [(uri, [each.new_text for each in edits]) for uri, edits in edit.changes.items()] == [
            (document.path.as_uri(), ["good"])
        ]
        for name, words in [
            ("nothing", "nothing to rename at line 1, character 1"), ("move", "would also rename a file"),
            ("broken", "malformed edit; nothing was changed"),
        ]:  # fmt: skip
            with pytest.raises(LspError, match=words):
                await kit.servers.rename(document, START, name)
        with pytest.raises(LspError, match=r"no language server here provides symbols \(raw\)"):
            await kit.servers.document_symbols(document)


async def test_a_name_that_the_server_will_not_rename_is_said(tmp_path: Path):
    async with running(tmp_path, raw("prepares", "nothing-there")) as kit:
        with pytest.raises(LspError, match="nothing to rename"):
            await kit.servers.rename(kit.write("a.raw", "fine\n"), START, "good")
        assert not kit.heard("textDocument/rename")


async def test_large_files_are_not_shown_and_servers_are_not_too_many(tmp_path: Path):
    config = raw(max_file_bytes=2000, max_servers=1)
    config.servers["raw"].root_markers.append("here")
    async with running(tmp_path, config) as kit:
        large = kit.write("a.raw", "é" * 1001)
        with pytest.raises(LspError, match=r"more than 2000 bytes \(lsp.max_file_bytes\)"):
            await kit.servers.diagnostics([large])
        assert (await kit.servers.new_errors(None, large)).errors == () and not kit.launches
        await kit.servers.diagnostics([kit.write("a.raw", "é" * 1000)])
        kit.write("sub/here", "")
        with pytest.raises(LspError, match=r"1 language servers are already running \(lsp.max_servers\)"):
            await kit.servers.diagnostics([kit.write("sub/b.raw", "")])


async def test_what_is_asked_before_the_session_runs_its_servers_waits_for_them(tmp_path: Path):
    async with running(tmp_path, raw()) as kit:
        document = kit.write("a.raw", "ERROR one\n")
        kit.servers.watch(document)
        report = await kit.servers.diagnostics([document])
        assert [item.message for each in report.items for item in each.diagnostics] == ["one"]
        assert report.sources == ("raw",)


async def test_many_edits_of_many_files_at_once_each_get_their_own_errors(tmp_path: Path):
    async with running(tmp_path, raw("versionless")) as kit:
        results: dict[int, list[tuple[str, str]]] = {}

        async def one(number: int) -> None:
            name = f"{number % 3}.raw"
            found = await edit(kit, f"ERROR {number} old\n", f"ERROR {number} old\nERROR {number} new\n", name)
            results[number] = messages(found.errors)

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(one, number)
        assert results == {number: [(f"{number % 3}.raw", f"{number} new")] for number in range(6)}


async def test_more_files_than_are_kept_open_are_each_opened_once_at_a_time(tmp_path: Path):
    async with running(tmp_path, raw("pull")) as kit:
        documents = [kit.write(f"{number}.raw", f"ERROR {number}\n") for number in range(2 * MOST_OPEN)]
        for _ in range(2):
            report = await kit.servers.diagnostics(documents)
            assert [item.message for each in report.items for item in each.diagnostics] == [
                str(number) for number in range(2 * MOST_OPEN)
            ]
    opened: set[str] = set()
    for message in kit.heard():
        if message.get("method", "").startswith("textDocument/"):
            uri = message["params"]["textDocument"]["uri"]
            is_open = message["method"] == "textDocument/didOpen"
            assert (uri in opened) is not is_open, message
            (opened.discard if message["method"] == "textDocument/didClose" else opened.add)(uri)
            assert len(opened) <= MOST_OPEN + 8


async def test_a_server_that_does_not_read_is_ended_without_a_hang(tmp_path: Path):
    async with running(tmp_path, raw("deaf", edit_wait=0.2, max_restarts=0)) as kit:
        for number in range(3):  # More than a pipe holds.
            assert (await edit(kit, f"{number} " + "x" * 300_000, f"{number} " + "y" * 300_000)).waiting == ("raw",)
    assert [each.state for each in kit.servers.states()] == ["stopped"]


@pytest.mark.parametrize("faults", [("pull",), ("versionless",)])
async def test_calls_that_are_cancelled_at_any_moment_leave_the_server_well(tmp_path: Path, faults: tuple[str, ...]):
    async with running(tmp_path, raw(*faults)) as kit:
        document = kit.write("a.raw", "ERROR 0\n")
        await kit.servers.diagnostics([document])
        for number in range(60):
            after = Document(document.path, f"ERROR {number}\n" * (number % 3 + 1))
            with anyio.move_on_after(0.0004 * (number % 15)):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(kit.servers.new_errors, document, after)
                    tasks.start_soon(kit.servers.hover, document, START)
                    tasks.start_soon(kit.servers.diagnostics, [document])
            document = after
        found = await kit.servers.new_errors(document, Document(document.path, document.text + "ERROR last\n"))
        assert (messages(found.errors), found.waiting) == ([("a.raw", "last")], ())
        assert [(each.state, each.restarts) for each in kit.servers.states()] == [("ready", 0)]
    versions = [each["params"]["textDocument"]["version"] for each in kit.heard("textDocument/didChange")]
    (opened,) = kit.heard("textDocument/didOpen")
    first = opened["params"]["textDocument"]["version"] + 1
    assert versions == list(range(first, first + len(versions)))
    asked = {each["id"] for each in kit.heard() if "id" in each}
    assert {each["params"]["id"] for each in kit.heard("$/cancelRequest")} <= asked


async def test_a_sentence_of_the_launcher_that_refuses_is_what_is_told(tmp_path: Path):
    async with running(tmp_path, raw()) as kit:

        async def refuse(argv: object, cwd: object):
            raise LspError("there is no sandbox here")

        kit.servers._launch = refuse
        with pytest.raises(LspError, match="raw is not running: there is no sandbox here"):
            await kit.servers.diagnostics([kit.write("a.raw", "")])


async def test_a_server_that_never_answers_is_soon_waited_for_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.lsp.own_servers.PATIENCE", 0.05)
    async with running(tmp_path, raw("silent", start_timeout=60, edit_wait=60)) as kit:
        kit.servers.watch(Document(tmp_path / "a.raw", "one\n"))
        (server,) = kit.servers._servers.values()
        server.in_vain = 2  # Two edits have waited for it as long as is configured.
        for number in (3, 4):
            assert (await edit(kit, "one\n", "two\n")).waiting == ("raw",)
            assert server.in_vain == number


async def test_a_server_that_hangs_is_waited_for_once_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.lsp.language_server.ALIVE", 0.05)
    async with running(tmp_path, raw("hangs", start_timeout=60, edit_wait=0.3)) as kit:
        kit.servers.watch(Document(tmp_path / "a.raw", "one\n"))
        (server,) = kit.servers._servers.values()
        await server.ready()
        assert (await edit(kit, "one\n", "two\n")).waiting == ("raw",)
        while not server.hangs:
            await anyio.sleep(0.01)
        assert (await edit(kit, "one\n", "two\n")).waiting == (), "it is said once"


async def test_a_server_that_is_only_silent_does_not_hang(tmp_path: Path):
    async with running(tmp_path, raw("mute", edit_wait=0.1)) as kit:
        kit.servers.watch(Document(tmp_path / "a.raw", "one\n"))
        (server,) = kit.servers._servers.values()
        await server.ready()
        await edit(kit, "one\n", "two\n")
        await server.check()
        assert not server.hangs


async def test_a_server_that_answers_again_is_waited_for_as_before(tmp_path: Path):
    async with running(tmp_path, raw()) as kit:
        kit.servers.watch(Document(tmp_path / "a.raw", "one\n"))
        (server,) = kit.servers._servers.values()
        server.in_vain = 5
        assert messages((await edit(kit, "one\n", "ERROR x\n")).errors) == [("a.raw", "x")]
        assert server.in_vain == 0


async def test_an_edit_of_several_files_shows_them_all_before_a_rename_is_asked_for(tmp_path: Path):
    async with running(tmp_path, raw()) as kit:
        main, other = kit.write("a.raw", "x\n"), Document(tmp_path / "b.raw", "not saved x\n")
        (tmp_path / "b.raw").write_text("x\n")
        await kit.servers.rename(main, START, "y", [other])
        opened = [each["params"]["textDocument"] for each in kit.heard("textDocument/didOpen")]
        assert [item["text"] for item in opened if item["uri"].endswith("b.raw")] == ["not saved x\n"]
        strange = Document(tmp_path / "c.strange", "not saved\n")
        with pytest.raises(LspError, match="must be saved first"):
            await kit.servers.rename(main, START, "y", [strange])
        many = [kit.write(f"{number}.raw", "x\n") for number in range(MOST_OPEN)]
        await kit.servers.rename(main, START, "y", [*many, other])
        (read,) = await kit.hears("workspace/didChangeWatchedFiles")
        assert [each["uri"] for each in read["params"]["changes"]] == [item.path.as_uri() for item in many]
        unsaved = [Document(item.path, "not saved\n") for item in many]
        with pytest.raises(LspError, match="must be saved first"):
            await kit.servers.rename(main, START, "y", unsaved)
