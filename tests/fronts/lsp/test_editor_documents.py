"""The editor's open documents are the agent's files: unsaved text is read, and a write is an edit."""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import anyio
import pytest
from lsprotocol import types

from acp_agent.fronts.lsp_server.documents.editor_documents import Documents
from acp_agent.fronts.lsp_server.prompt_content import passage
from acp_agent.fronts.lsp_server.questions import QUIET_SECONDS
from tests.editors.raw_agent import Failed, Turn
from tests.fronts.lsp.kit import Buffer, LspEditor, begun, raw_lsp

ZWJ = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
HARD = f"a = '\U0001d518'\nb = 'e\u0301 \u00fc'\nc = '{ZWJ}' # \u20ac\nd = 1\n"


async def read(turn: Turn, path: Path, **part: int) -> str:
    return str((await (await turn.request("fs/read_text_file", path=str(path), **part)).result())["content"])


async def write(turn: Turn, path: Path, content: str) -> Any:
    return await (await turn.request("fs/write_text_file", path=str(path), content=content)).result()


async def run(turn: Turn, script: str) -> str:
    """The output of a command in a terminal of the editor's side."""
    created = await (await turn.request("terminal/create", command="sh", args=["-c", script])).result()
    terminal = {"terminalId": created["terminalId"]}
    await (await turn.request("terminal/wait_for_exit", **terminal)).result()
    output = (await (await turn.request("terminal/output", **terminal)).result())["output"]
    await (await turn.request("terminal/release", **terminal)).result()
    return str(output)


def opened(editor: LspEditor, folder: Path, text: str = "one\ntwo\nthree\n", name: str = "a.py") -> tuple[Path, Buffer]:
    (file := folder / "project" / name).write_bytes(text.encode())
    return file, editor.open(file)


async def test_reads_see_what_is_not_saved_and_the_disk_where_nothing_is_open(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        file, buffer = opened(editor, tmp_path)
        (other := tmp_path / "project" / "b c.py").write_text("on disk\n")
        editor.type(buffer, 4, 7, "2 \U0001d518")
        editor.type(buffer, 7, 7, "!")
        buffer.text, buffer.version = "one\n2 \U0001d518!\n3\nfour\n", buffer.version + 1
        changes = [
            types.TextDocumentContentChangePartial(range=editor.range_of("\n\nthree", "three"), text="3"),
            types.TextDocumentContentChangePartial(range=editor.range_of("\n\n\n", ""), text=""),
            types.TextDocumentContentChangePartial(
                range=types.Range(start=types.Position(3, 0), end=types.Position(3, 0)), text="four\n"
            ),
        ]
        named = types.VersionedTextDocumentIdentifier(uri=buffer.uri, version=buffer.version)
        editor.text_document_did_change(types.DidChangeTextDocumentParams(text_document=named, content_changes=changes))
        turn = await begun(editor, agent)
        assert await read(turn, file) == buffer.text and await read(turn, file, line=2, limit=1) == "2 \U0001d518!\n"
        assert await read(turn, other) == "on disk\n"
        (linked := tmp_path / "linked").symlink_to(tmp_path / "project")
        assert await read(turn, linked / "a.py") == buffer.text
        with pytest.raises(Failed, match="not found"):
            await read(turn, tmp_path / "project" / "none.py")
        editor.text_document_did_close(
            types.DidCloseTextDocumentParams(text_document=types.TextDocumentIdentifier(uri=buffer.uri))
        )
        assert await read(turn, file) == "one\ntwo\nthree\n"


async def test_a_write_is_an_edit_of_what_differs_in_the_form_that_the_editor_takes(tmp_path: Path, name: str):
    async with raw_lsp(tmp_path, name=name, process=True) as (editor, agent):
        file, buffer = opened(editor, tmp_path, HARD)
        turn = await begun(editor, agent)
        await turn.update(
            sessionUpdate="tool_call", toolCallId="t1", title="Edit a.py\nfor you", status="in_progress",
            locations=[{"path": str(file)}],
        )  # fmt: skip
        await write(turn, file, HARD.replace("d = 1", f"d = '{ZWJ}'\ne = 2"))
        (sent,) = editor.edits
        assert sent.label == "Edit a.py for you"
        if name.startswith("neovim"):
            edits: Any = (sent.edit.changes or {})[buffer.uri]
        else:
            (change,) = sent.edit.document_changes or ()
            assert isinstance(change, types.TextDocumentEdit) and change.text_document.version == 1
            edits = change.edits
        assert [(edit.range.start.line, edit.range.end.line) for edit in edits] == [(3, 4)]
        assert buffer.text == HARD.replace("d = 1", f"d = '{ZWJ}'\ne = 2") and file.read_text() == HARD


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_any_text_becomes_any_other(tmp_path: Path, encoding: str):
    def offer(params: dict[str, Any]) -> None:
        params["capabilities"]["general"] = {"positionEncodings": ["utf-7", encoding]}

    texts = [
        HARD, "", "no end \U0001d518", "no end \U0001d518\nand no end here: \u00fc\U0001d518",
        "dos\r\nlines\r\n\U0001d518\r\n", "dos\r\nlin\u00fces\r\n\U0001d518", "\n\n\n", f"{ZWJ}\n{HARD}x",
        f"{ZWJ}{ZWJ}\n{HARD}xy\n", "form\x0cfeed \u2028 separator\nnext\n", "form\x0cfeed \u2028 separator\nNEXT",
    ]  # fmt: skip
    async with raw_lsp(tmp_path, name="helix-25.07.1", change=offer) as (editor, agent):
        assert editor.encoding == encoding
        file, buffer = opened(editor, tmp_path, texts[0])
        turn = await begun(editor, agent)
        for text in [*texts[1:], *reversed(texts)]:
            await write(turn, file, text)
            assert buffer.text == text
            assert await read(turn, file) == text
            end = len(buffer.text)
            editor.type(buffer, end, end, "\U0001d518")
            editor.type(buffer, end, end + 1, "")
            assert await read(turn, file) == text


async def test_an_editor_that_tells_of_edits_late_or_never_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.fronts.lsp_server.buffers.ECHO_SECONDS", 1.0)
    async with raw_lsp(tmp_path, name="eglot-1.17.30") as (editor, agent):
        file, buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        editor.echo = "never"
        await write(turn, file, "one\n2\nthree\n")
        assert await read(turn, file) == "one\n2\nthree\n"
        writing = await turn.request("fs/write_text_file", path=str(file), content="one\n2\n3\n")
        await run(turn, "true")  # What was asked before that has been taken up.
        assert len(editor.edits) == 1
        editor.tell(buffer)
        await writing.result()
        assert [edit.edit.document_changes[0].text_document.version for edit in editor.edits] == [1, 2]  # type: ignore
        await write(turn, file, "1\n2\n3\n")
        assert buffer.text == await read(turn, file) == "1\n2\n3\n"


async def test_a_file_is_that_of_the_disk_until_it_is_open_and_then_the_editors(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        project, turn = tmp_path / "project", await begun(editor, agent)
        await write(turn, project / "new" / "b.py", "x = 1\n")
        assert (project / "new" / "b.py").read_text() == "x = 1\n"
        assert not editor.edits
        buffer = editor.open(project / "new" / "b.py")
        editor.type(buffer, 0, 0, "# mine\n")
        await write(turn, project / "new" / "b.py", "x = 1\ny = 2\n")
        assert buffer.text == "# mine\nx = 1\ny = 2\n"
        (read_before := project / "read_before.py").write_text("one\ntwo\nthree\n")
        assert await read(turn, read_before) == "one\ntwo\nthree\n"
        buffer = editor.open(read_before)
        editor.type(buffer, 0, 0, "# mine\n")
        await write(turn, read_before, "one\ntwo\n3\n")
        assert buffer.text == "# mine\none\ntwo\n3\n"
        (dos := project / "dos.py").write_bytes(b"one\r\ntwo\r\n")
        assert await read(turn, dos) == "one\r\ntwo\r\n"
        buffer = editor.open(dos, text="one\ntwo\n")  # It hides the ends of lines.
        await write(turn, dos, "one\r\n2\r\n")
        assert buffer.text == "one\n2\n"
        deleted, buffer = opened(editor, tmp_path, name="deleted.py")
        deleted.unlink()
        assert await read(turn, deleted) == "one\ntwo\nthree\n"
        await write(turn, deleted, "one\n")
        assert buffer.text == "one\n" and not deleted.exists()
        typed, buffer = opened(editor, tmp_path, name="typed.py")
        editor.type(buffer, 0, 0, "typed\n")
        typed.write_text("other\n")
        assert await read(turn, typed) == "typed\none\ntwo\nthree\n"
        (recovered := project / "recovered.py").write_text("old\n")
        editor.open(recovered, "recovered\n")  # As after a crash of the editor.
        assert await read(turn, recovered) == "recovered\n"


async def test_an_edit_that_is_refused_or_meets_another_change_fails_in_words(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        file, buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        assert await read(turn, file) == buffer.text
        editor.type(buffer, 4, 7, "mine")
        with pytest.raises(Failed, match="was changed there in the same place since it was read"):
            await write(turn, file, "one\ntheirs\nthree\n")
        assert buffer.text == "one\nmine\nthree\n"
        assert not editor.edits
        assert await read(turn, file) == buffer.text
        editor.refusals = 2
        with pytest.raises(Failed, match=r"the user said no; nothing was written"):
            await write(turn, file, "gone\n")
        assert (buffer.text, file.read_text()) == ("one\nmine\nthree\n", "one\ntwo\nthree\n")
        assert len(editor.edits) == 1
        editor.refusals = 0
        await write(turn, file, "one\ntheirs\nthree\n")
        assert buffer.text == "one\ntheirs\nthree\n"


async def test_an_editor_without_edits_fails_a_write_in_words(tmp_path: Path):
    def cannot(params: dict[str, Any]) -> None:
        del params["capabilities"]["workspace"]["applyEdit"]

    async with raw_lsp(tmp_path, change=cannot) as (editor, agent):
        file, buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        with pytest.raises(Failed, match="does not accept edits"):
            await write(turn, file, "gone\n")
        assert buffer.text == file.read_text() == "one\ntwo\nthree\n"


async def test_what_a_person_types_meanwhile_stays(tmp_path: Path):
    async with raw_lsp(tmp_path, name="helix-25.07.1") as (editor, agent):
        file, buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        assert await read(turn, file) == buffer.text
        editor.type(buffer, 0, 0, "zero\n")
        editor.before_edit = lambda: editor.type(buffer, 0, 4, "nil")
        await write(turn, file, "one\ntwo\n3\n")
        assert buffer.text == "nil\none\ntwo\n3\n"
        assert len(editor.edits) == 2


async def test_commands_before_a_save_are_warned_of_once_a_turn(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        file, buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        assert await run(turn, "echo hello") == "hello\n"
        assert editor.said() == []
        await write(turn, file, "one\n")
        assert await run(turn, f"cat {file}") == "one\ntwo\nthree\n"
        await run(turn, "true")
        assert editor.said() == ["Save a.py: commands see the file on disk."]
        editor.save(buffer.uri)
        await turn.end()
        await editor.turns_over()
        turn = await begun(editor, agent)
        assert await run(turn, f"cat {file}") == "one\n"
        assert len(editor.said()) == 1
        await write(turn, file, "1\n")
        await run(turn, "true")
        assert len(editor.said()) == 2


async def test_the_editor_saves_what_was_saved_before(tmp_path: Path):
    async with raw_lsp(tmp_path, options={"save": "client"}) as (editor, agent):
        file, buffer = opened(editor, tmp_path)
        other, unsaved = opened(editor, tmp_path, "x\ny\n", "b.py")
        editor.type(unsaved, 0, 1, "mine")
        editor.saves_when_told = True
        turn = await begun(editor, agent)
        await write(turn, file, "one\n")
        assert editor.saves == [buffer.uri]
        assert await run(turn, f"cat {file}") == "one\n"
        await write(turn, other, "mine\nz\n")
        assert editor.saves == [buffer.uri]
        assert other.read_text() == "x\ny\n"


async def test_the_server_saves_with_the_line_ends_of_the_file(tmp_path: Path):
    async with raw_lsp(tmp_path, name="eglot-1.17.30", options={"save": "disk"}) as (editor, agent):
        (file := tmp_path / "project" / "dos.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
        buffer = editor.open(file, "one\ntwo\n")  # as Emacs tells of such a file
        turn = await begun(editor, agent)
        await write(turn, file, "one\n2\n")
        assert file.read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n"
        assert buffer.text == "one\n2\n"
        assert await run(turn, "true") == ""
        assert editor.said() == []


async def test_edits_of_one_file_at_once_are_made_one_after_the_other(tmp_path: Path):
    async with raw_lsp(tmp_path, name="helix-25.07.1") as (editor, agent):
        file, buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        texts = ("1\ntwo\nthree\n", "1\n2\nthree\n", "1\n2\n3\n")
        for writing in [await turn.request("fs/write_text_file", path=str(file), content=text) for text in texts]:
            await writing.result()
        assert len(editor.edits) == 3
        assert buffer.text == texts[-1]


async def test_a_slow_look_at_the_folders_lets_no_later_edit_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    passed, first = Event(), Lock()

    def slow(path: Path, folders: Sequence[Path]) -> bool:
        if first.acquire(blocking=False):
            passed.wait(0.2)
        else:
            passed.set()
        return True

    async with raw_lsp(tmp_path, name="helix-25.07.1") as (editor, agent):
        file, buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        monkeypatch.setattr("acp_agent.client.fs._is_below", slow)
        texts = ("1\ntwo\nthree\n", "1\n2\nthree\n")
        for writing in [await turn.request("fs/write_text_file", path=str(file), content=text) for text in texts]:
            await writing.result()
        assert buffer.text == texts[-1]


async def test_a_new_file_that_a_person_has_begun_is_theirs_to_save(tmp_path: Path):
    async with raw_lsp(tmp_path, options={"save": "disk"}) as (editor, agent):
        file = tmp_path / "project" / "new.py"
        buffer = editor.open(file, text="")
        editor.type(buffer, 0, 0, "# a thought\n")
        await write(await begun(editor, agent), file, "# a thought\nx = 1\n")
        assert buffer.text == "# a thought\nx = 1\n"
        assert not file.exists()


def test_a_pipe_is_not_read_for_a_prompt(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    found: list[str] = []
    uri = (tmp_path / "pipe").as_uri()
    reader = Thread(target=lambda: found.append(passage(Documents(), uri, None).text), daemon=True)
    reader.start()
    reader.join(10)
    assert found == [""]


def test_a_passage_that_is_cut_says_so(tmp_path: Path):
    (tmp_path / "long").write_text("x" * 100_007)
    found = passage(Documents(), (tmp_path / "long").as_uri(), None).text
    assert found == "x" * 100_000 + "\n[7 more characters are left out: read the file]\n"


async def test_what_a_command_changed_behind_a_document_is_read_and_written_as_it_is(tmp_path: Path):
    async with raw_lsp(tmp_path, options={"save": "client"}) as (editor, agent):
        file, buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        await run(turn, f"sed -i s/two/TWO/ '{file}'")
        await editor.until(lambda: editor.changed == [buffer.uri])  # An editor that does so reads it again.
        assert await read(turn, file) == "one\nTWO\nthree\n"
        await write(turn, file, "one\nTWO\n3\n")
        assert buffer.text == "one\nTWO\n3\n"  # And not a mixture with what it was before.


async def test_no_question_comes_up_while_the_person_types(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        _, buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        editor.type(buffer, 0, 0, "typed\n")
        began = anyio.current_time()
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        await turn.request("session/request_permission", toolCall={"toolCallId": "t", "title": "x"}, options=options)
        await editor.question()
        assert anyio.current_time() - began >= QUIET_SECONDS / 2  # Never sooner, however slow the machine is.
