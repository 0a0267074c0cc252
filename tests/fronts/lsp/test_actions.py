"""Code actions: what is offered at a position, in the form that the editor accepts."""

from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from acp_agent.fronts.lsp_server.documents.text_positions import Text
from acp_agent.fronts.lsp_server.prompt_content import question_in
from tests.fronts.lsp.kit import raw_lsp

TEXT = "# Why is this \U0001d518 so slow?\nx = [\n    1,\n]\n"
GENERAL = [
    "Agent: show the transcript", "Agent: pick the mode", "Agent: pick the model", "Agent: new session",
    "Agent: earlier sessions",
]  # fmt: skip


async def test_what_is_offered_does_what_it_says(tmp_path: Path, name: str):
    async with raw_lsp(tmp_path, name=name) as (editor, agent):
        (file := tmp_path / "project" / "a.py").write_text(TEXT)
        buffer = editor.open(file)
        where = editor.range_of(TEXT, "x = [\n    1")
        problem = types.Diagnostic(range=where, message="a\nlist " + "of one " * 20, source="lint")
        ours = types.Diagnostic(range=where, message="⏳ Edit", source="acp-coder")
        actions = await editor.actions(buffer.uri, where, problem, ours)
        titles = [action["title"] for action in actions]
        assert titles[0].startswith("Agent: fix: a list of one") and len(titles[0]) < 80
        assert titles[1:] == [
            "Agent: ask about the selection", "Agent: explain the selection", "Agent: write a test for the selection",
            "Agent: continue", *GENERAL,
        ]  # fmt: skip
        assert [action["kind"] for action in actions] == ["quickfix"] + ["source.acpCoder"] * (len(actions) - 1)
        await editor.execute(actions[0]["command"]["command"], *actions[0]["command"]["arguments"])
        turn = await agent.prompted()
        assert turn.text.startswith(f"Fix this problem at [a.py:2-3]({buffer.uri}#L2-L3): a\nlist of one")
        busy = [action["title"] for action in await editor.actions(buffer.uri, where)]
        assert "Agent: stop" in busy and "Agent: continue" not in busy
        line = editor.range_of(TEXT, "slow")
        line.end = line.start
        (ask, *rest) = await editor.actions(buffer.uri, line, only=["source.acpCoder"])
        assert ask["title"] == "Ask the agent: Why is this \U0001d518 so slow?"
        assert rest[0]["title"] == "Agent: ask about this line"
        cursor = types.Position(line=line.start.line, character=line.start.character + 1)  # As Helix's is.
        found = await editor.actions(buffer.uri, types.Range(line.start, cursor), only=["source.acpCoder"])
        assert [action["title"] for action in found] == [action["title"] for action in (ask, *rest)]
        assert {action["kind"] for action in rest} == {"source.acpCoder"}
        fixes = await editor.actions(buffer.uri, where, problem, only=["quickfix"])
        assert [action["title"][:10] for action in fixes] == ["Agent: fix"]
        assert await editor.actions(buffer.uri, where, problem, only=["source.fixAll", "refactor"]) == []
        await turn.end()
        await editor.execute(ask["command"]["command"], *ask["command"]["arguments"])
        assert (await agent.prompted()).text == "Why is this \U0001d518 so slow?"


async def test_an_editor_that_takes_commands_only_gets_commands(tmp_path: Path):
    def old(params: dict[str, Any]) -> None:
        del params["capabilities"]["textDocument"]["codeAction"]["codeActionLiteralSupport"]

    async with raw_lsp(tmp_path, change=old) as (editor, _):
        (file := tmp_path / "project" / "a.py").write_text(TEXT)
        actions = await editor.actions(editor.open(file).uri, editor.range_of(TEXT, "x"))
        assert {type(action["command"]) for action in actions} == {str}
        assert actions[-1] == {"title": GENERAL[-1], "command": "acpCoder.sessions", "arguments": []}
        assert editor.result is not None
        options = editor.result.capabilities.execute_command_provider
        assert options is not None and {action["command"] for action in actions} <= set(options.commands)


@pytest.mark.parametrize(("text", "selected", "question"), [
    ("# make this faster\n", "", "make this faster"), ("  // why so?  \n", "", "why so?"),
    ("/* tidy this up */\n", "", "tidy this up"), ("<!-- say it better -->\n", "", "say it better"),
    ("# one thing\n# and another\nx = 1\n", "# one thing\n# and another", "one thing and another"),
    ("Is this right?\n", "Is this right?", "Is this right?"), ("x = 1\n", "", ""), ("x = 1\n", "x = 1", ""),
    ("#\n", "", ""), ("# x\n", "", ""), ("# one thing\nx = 1\n", "o", "one thing"),
    ("# one thing\nx = 1\n", "\n", "one thing"), ("", "", ""), (" " * 100_000 + "?\n", "", ""),
    ("# " + "say it " * 300 + "\n", "", ""),
])  # fmt: skip
def test_a_comment_or_a_question_is_something_to_ask(text: str, selected: str, question: str):
    whole = Text(text, "utf-32")
    start = text.index(selected)
    where = types.Range(start=whole.position(start), end=whole.position(start + len(selected)))
    assert question_in(whole, where) == question
