"""What tool calls are doing, in the editor: progress, diagnostics, inlay hints, code lenses."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from lsprotocol import types

from tests.editors.raw_agent import Failed, Turn
from tests.fronts.lsp.kit import UNITS, Buffer, LspEditor, begun, raw_lsp

TEXT = "one\n'\U0001d518 e\u0301' # two\nthree\nfour\n"


def opened(editor: LspEditor, folder: Path, name: str = "a.py") -> Buffer:
    (file := folder / "project" / name).write_text(TEXT)
    return editor.open(file)


async def call(turn: Turn, buffer: Buffer | None, line: int, number: int = 1, title: str = "Edit a.py") -> None:
    locations = [] if buffer is None else [{"path": buffer.uri.removeprefix("file://"), "line": line}]
    await turn.update(
        sessionUpdate="tool_call", toolCallId=f"t{number}", title=title, status="in_progress", locations=locations
    )


async def ended(turn: Turn, number: int = 1, status: str = "completed") -> None:
    await turn.update(sessionUpdate="tool_call_update", toolCallId=f"t{number}", status=status)


def shown(editor: LspEditor, buffer: Buffer) -> list[tuple[int, str]]:
    found = editor.diagnostics.get(buffer.uri, ())
    assert all(one.source == "acp-coder" for one in found)
    assert all(one.severity == types.DiagnosticSeverity.Information for one in found)
    return [(one.range.start.line, one.message) for one in found]


async def hints(editor: LspEditor, buffer: Buffer) -> list[tuple[types.Position, str]]:
    whole = types.Range(start=types.Position(0, 0), end=types.Position(99, 0))
    params = types.InlayHintParams(text_document=types.TextDocumentIdentifier(uri=buffer.uri), range=whole)
    return [(hint.position, str(hint.label)) for hint in await editor.text_document_inlay_hint_async(params) or ()]


async def lenses(editor: LspEditor, buffer: Buffer) -> list[tuple[int, str, str, Any]]:
    params = types.CodeLensParams(text_document=types.TextDocumentIdentifier(uri=buffer.uri))
    found = await editor.text_document_code_lens_async(params) or ()
    return [
        (one.range.start.line, one.command.title, one.command.command, list(one.command.arguments or ()))
        for one in found
        if one.command is not None
    ]


async def test_a_call_is_shown_where_it_works_until_the_next_prompt(tmp_path: Path, name: str):
    async with raw_lsp(tmp_path, name=name, process=True) as (editor, agent):
        buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        await call(turn, buffer, 2)
        await editor.until(lambda: shown(editor, buffer) == [(1, "⏳ Edit a.py")])
        (found,) = editor.diagnostics[buffer.uri]
        codec, size = UNITS[editor.encoding]
        width = len("'\U0001d518 e\u0301' # two".encode(codec)) // size
        assert found.range.end == types.Position(line=1, character=width)
        assert await hints(editor, buffer) == [(types.Position(line=1, character=width), "⏳ Edit a.py")]
        assert await lenses(editor, buffer) == [(1, "⏳ Edit a.py: stop", "acpCoder.stop", [])]
        request = await turn.ask({"toolCallId": "t1"})
        await editor.until(lambda: shown(editor, buffer) == [(1, "? Edit a.py (waits for your answer)")])
        (await editor.question()).answer("Allow")
        await request.result()
        await ended(turn)
        await editor.until(lambda: shown(editor, buffer) == [(1, "✓ Edit a.py")])
        assert await lenses(editor, buffer) == [(1, "✓ Edit a.py: show", "acpCoder.output", ["t1"])]
        await turn.end()
        await editor.turns_over()
        assert shown(editor, buffer) == [(1, "✓ Edit a.py")]
        if name.startswith("neovim"):
            assert {"hints", "lenses"} <= set(editor.refreshes)
        else:
            assert not editor.refreshes
        assert dict(editor.lines())["Agent: go"][-1].message == "done"
        await begun(editor, agent, "next")
        await editor.until(lambda: shown(editor, buffer) == [])
        assert await hints(editor, buffer) == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_places_are_counted_as_was_agreed(tmp_path: Path, encoding: str):
    def offer(params: dict[str, Any]) -> None:
        params["capabilities"]["general"] = {"positionEncodings": [encoding]}

    async with raw_lsp(tmp_path, change=offer) as (editor, agent):
        buffer = opened(editor, tmp_path)
        where = editor.range_of(TEXT, "\U0001d518 e\u0301'")
        lines = types.Range(start=where.start, end=types.Position(line=2, character=0))
        plain = {
            name: {"line": place.line, "character": place.character}
            for name, place in (("start", lines.start), ("end", lines.end))
        }
        await editor.execute("acpCoder.ask", {"uri": buffer.uri, "range": plain, "text": "What?"})
        turn = await agent.prompted()
        (sent,) = [message["params"]["prompt"] for message in agent.received if message["method"] == "session/prompt"]
        assert sent[1]["resource"] == {"uri": f"{buffer.uri}#L2", "text": TEXT.split("\n")[1]}
        start = TEXT.index("\U0001d518")
        editor.type(buffer, start, start + 1, "\U0001f468\u200d\U0001f469")
        await call(turn, buffer, 2)
        await editor.until(lambda: shown(editor, buffer))
        (found,) = editor.diagnostics[buffer.uri]
        end = editor.position(buffer.text, buffer.text.index(" two\n") + 4)
        assert found.range == types.Range(start=types.Position(line=1, character=0), end=end)
        assert (await hints(editor, buffer))[0][0] == end
        asked = editor.range_of(buffer.text, "\u200d\U0001f469 e\u0301' # two")
        (action, *_) = await editor.actions(buffer.uri, asked, only=["source"])
        assert action["command"]["arguments"][0]["range"]["end"]["character"] == end.character


async def test_what_no_file_has_is_shown_nowhere_and_ends_nothing(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        path = buffer.uri.removeprefix("file://")
        for number, (where, line) in enumerate([
            ("relative.py", 1), ("", 1), ("/a\0b", 1), ("/" + "x" * 5_000, 1), (path, 2**32 - 1),
            ("/none.py", 2**32 - 1),
        ]):  # fmt: skip
            locations = [{"path": where, "line": line}]
            await turn.update(
                sessionUpdate="tool_call", toolCallId=f"t{number}", title="\0" * 9_999, locations=locations
            )
        await call(turn, buffer, 1, 99, "")
        await editor.until(lambda: len(shown(editor, buffer)) == 2)
        assert [line for line, _ in shown(editor, buffer)] == [0, 3]
        assert not any("relative" in uri for uri in editor.diagnostics)
        editor.type(buffer, 0, 0, "\n")
        await editor.until(lambda: [line for line, _ in shown(editor, buffer)] == [1, 4])


async def test_marks_move_with_the_text_and_go_with_their_line(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        await call(turn, buffer, 3, 1, "Running")
        await call(turn, buffer, 4, 2, "Ended")
        await ended(turn, 2)
        await editor.until(lambda: shown(editor, buffer) == [(2, "⏳ Running"), (3, "✓ Ended")])
        editor.type(buffer, 0, 0, "zero\n\n")
        await editor.until(lambda: shown(editor, buffer) == [(4, "⏳ Running"), (5, "✓ Ended")])
        start = buffer.text.index("four")
        editor.type(buffer, start, start + 4, "4")
        await editor.until(lambda: shown(editor, buffer) == [(4, "⏳ Running")])
        start = buffer.text.index("three")
        editor.type(buffer, start, start + 5, "3")
        await call(turn, buffer, 3, 1, "Running still")
        await editor.until(lambda: shown(editor, buffer) == [(4, "⏳ Running still")])


async def test_the_agents_own_edit_keeps_its_mark(tmp_path: Path):
    async with raw_lsp(tmp_path, name="eglot-1.17.30") as (editor, agent):
        buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        await call(turn, buffer, 3)
        editor.echo = "never"
        path = buffer.uri.removeprefix("file://")
        await (await turn.request("fs/write_text_file", path=path, content=TEXT.replace("three", "3\n3\n3"))).result()
        await ended(turn)
        await editor.until(lambda: shown(editor, buffer) == [(2, "✓ Edit a.py")])
        start = TEXT.index("three")
        editor.type(Buffer(buffer.uri, TEXT), start, start + 5, "3\n3\n3")
        await editor.execute("acpCoder.stop", {"wait": True})
        assert [line for line, *_ in await lenses(editor, buffer)] == [2]


def begins(number: int, path: str) -> dict[str, Any]:
    return {
        "sessionUpdate": "tool_call", "toolCallId": f"t{number}", "title": f"Call {number}", "status": "in_progress",
        "locations": [{"path": path, "line": number % 4 + 1}],
    }  # fmt: skip


def ends(number: int) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": f"t{number}", "status": "completed"}


@pytest.mark.parametrize("together", [False, True])
async def test_thousands_of_calls_do_not_flood_the_editor(tmp_path: Path, together: bool):
    async with raw_lsp(tmp_path) as (editor, agent):
        buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        path = buffer.uri.removeprefix("file://")
        count = range(1_000)
        if together:
            updates = [*(begins(number, path) for number in count), *(ends(number) for number in count)]
        else:
            updates = [update for number in count for update in (begins(number, path), ends(number))]
        await agent.say(
            *({"method": "session/update", "params": {"sessionId": turn.session, "update": one}} for one in updates)
        )
        await turn.end()
        await editor.turns_over()
        await editor.until(lambda: any("✓ Call 999" in words for _, words in shown(editor, buffer)))
        assert len(shown(editor, buffer)) == 200 and len(editor.published) < 100 and len(editor.lines()) < 100
        assert len(editor.refreshes) < 200


async def test_what_changes_all_the_time_is_drawn_ten_times_a_second(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        buffer = opened(editor, tmp_path)
        turn = await begun(editor, agent)
        path = buffer.uri.removeprefix("file://")
        began = anyio.current_time()
        for number in range(100):
            await turn.update(**begins(number, path))
            await turn.update(**ends(number))
            terminal = await turn.request("terminal/create", command="")
            with pytest.raises(Failed):  # It was taken up, and what was said before.
                await terminal.result()
        await editor.until(lambda: any("✓ Call 99" in words for _, words in shown(editor, buffer)))
        assert len(editor.published) <= (anyio.current_time() - began) / 0.1 + 2


async def test_an_editor_without_progress_is_never_asked_for_it(tmp_path: Path):
    def without(params: dict[str, Any]) -> None:
        del params["capabilities"]["window"]["workDoneProgress"]

    async with raw_lsp(tmp_path, change=without, options={"diagnostics": False, "hints": False}) as (editor, agent):
        buffer = opened(editor, tmp_path)
        await call(await begun(editor, agent), buffer, 1)
        await editor.until(lambda: "lenses" in editor.refreshes)
        assert await hints(editor, buffer) == []
        assert len(await lenses(editor, buffer)) == 1
        assert not editor.progress_reports and not editor.published and "hints" not in editor.refreshes


async def test_nothing_of_ours_stays_when_the_server_shuts_down(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        buffer = opened(editor, tmp_path)
        await call(await begun(editor, agent), buffer, 1)
        await editor.until(lambda: shown(editor, buffer))
        await editor.shutdown_async(None)
        assert shown(editor, buffer) == [] and all(said[-1].kind == "end" for _, said in editor.lines())


async def test_every_update_goes_on_where_it_is_asked_for(tmp_path: Path):
    async with raw_lsp(tmp_path, options={"updates": True}) as (editor, agent):
        turn = await begun(editor, agent)
        for number in range(50):
            await turn.text_chunk(f"{number} \U0001d518 ")
        await turn.end()
        await editor.turns_over()
        assert {update.sessionId for update in editor.updates} == {"s1"}
        assert [update.update.content.text for update in editor.updates] == [f"{n} \U0001d518 " for n in range(50)]


async def test_what_a_review_found_are_diagnostics_until_the_next_review(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        buffer = opened(editor, tmp_path)
        path = buffer.uri.removeprefix("file://")
        turn = await begun(editor, agent)
        await call(turn, buffer, 2, title="Sub-agent reviewer: /review")
        found = [
            {"path": path, "line": 2, "severity": "error", "message": "wrong"},
            {"path": path, "line": 10_000, "severity": "info", "message": "far"},
            {"path": "relative", "line": 1, "severity": "info", "message": "odd"},
            {"path": path, "line": "1", "severity": "info", "message": "odd"}, None,
        ]  # fmt: skip
        await turn.update(
            sessionUpdate="tool_call_update", toolCallId="t1", status="completed", _meta={"findings": found}
        )

        def seen() -> list[tuple[str, types.DiagnosticSeverity | None, str | None]]:
            return [(one.message, one.severity, one.source) for one in editor.diagnostics.get(buffer.uri, ())]

        expected = [
            ("wrong", types.DiagnosticSeverity.Error, "acp-coder review"),
            ("far", types.DiagnosticSeverity.Information, "acp-coder review"),
        ]
        await editor.until(lambda: seen() == expected)
        first, far = (one.range.start.line for one in editor.diagnostics[buffer.uri])
        assert (first, far <= TEXT.count("\n")) == (1, True)
        await turn.end()
        turn = await begun(editor, agent)
        await call(turn, buffer, 1)
        await editor.until(lambda: len(seen()) == 3)
        await turn.update(sessionUpdate="tool_call_update", toolCallId="t1", status="completed", _meta={"findings": []})
        await editor.until(lambda: not seen())
