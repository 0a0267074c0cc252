"""Taking back what the agent did, in an editor that speaks LSP: commands and code actions."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from tests.editors import raw_agent as raw
from tests.editors.raw_agent import Failed, RawAgent
from tests.fronts.lsp.kit import LspEditor, raw_lsp

OLD = "one\ntwo\nthree\nfour\n"
NEW = "one\n2\nthree\nfour\nfive\n"
HUNKS = [
    {"id": "b2", "oldStart": 2, "oldLines": 1, "newStart": 2, "newLines": 1},
    {"id": "five", "oldStart": 4, "oldLines": 0, "newStart": 5, "newLines": 1},
]


class Doubled:
    """What the agent answers to the methods of undo, and with what they were called."""

    def __init__(self, agent: RawAgent, file: Path) -> None:
        self.agent = agent
        self.change: dict[str, Any] = {"path": str(file), "kind": "changed", "oldText": OLD, "newText": NEW}
        self.change |= {"shown": True, "added": 2, "removed": 1, "calls": ["t1"], "hunks": HUNKS}
        self.conflicts: list[dict[str, Any]] = []
        self.refusal = ""
        point = {"prompt": 1, "time": "2026-01-01T10:00:00Z", "title": "Count\x1b", "undone": False}
        point |= {"files": [{"path": str(file), "added": 2, "removed": 1}], "notCovered": ["big.bin: too large"]}
        answers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "checkpoints": lambda _: {"checkpoints": [point], "redo": True},
            "changes": lambda _: {"changes": [self.change], "notCovered": ["big.bin: too large"]}, "undo": self.undo,
            "redo": self.undo,
        }  # fmt: skip
        agent.answers = {f"_session/{name}": answer for name, answer in answers.items()}

    def undo(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.refusal:
            raise Failed(self.refusal)
        done = not params.get("dryRun", False)
        back = {**self.change, "oldText": NEW, "newText": OLD, "added": 1, "removed": 2}
        words = "Took back 1 file." if done else ""
        return {"changes": [back], "conflicts": self.conflicts, "done": done, "words": words}

    def asked(self, name: str) -> list[dict[str, Any]]:
        """The params, without the session."""
        found = [one["params"] for one in self.agent.received if one["method"] == f"_session/{name}"]
        return [{key: value for key, value in params.items() if key != "sessionId"} for params in found]


@asynccontextmanager
async def changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **how: Any
) -> AsyncIterator[tuple[LspEditor, Doubled, types.TextDocumentIdentifier]]:
    """The agent has changed an open file."""
    capabilities = {**raw.INITIALIZED["agentCapabilities"], "_meta": {"undo": {"version": 1}}}  # type: ignore[dict-item]
    monkeypatch.setitem(raw.INITIALIZED, "agentCapabilities", capabilities)
    async with raw_lsp(tmp_path, **how) as (editor, agent):
        (file := tmp_path / "project" / "a.txt").write_text(NEW)
        editor.open(file)
        doubled = Doubled(agent, file)
        await editor.execute("acpCoder.prompt", "Count")
        await (await agent.prompted()).end("Done.")
        await editor.turns_over()
        yield editor, doubled, types.TextDocumentIdentifier(uri=file.as_uri())


def shown(editor: LspEditor) -> str:
    """The document that the editor was last asked to show."""
    return Path(editor.shown_documents[-1].uri.removeprefix("file://")).read_text()


async def test_nothing_is_taken_back_before_the_user_has_seen_what_and_said_yes(tmp_path, monkeypatch):
    async with changed(tmp_path, monkeypatch) as (editor, doubled, _), anyio.create_task_group() as tasks:
        answers: list[Any] = []

        async def undo(argument: Any) -> None:
            answers.append(await editor.execute("acpCoder.undo", argument))
            editor.tick()

        doubled.conflicts = [{"path": "/w/b.txt", "why": "changed since", "mergeable": True}]
        tasks.start_soon(undo, {"to": 1, "what": "files", "wait": True})
        question = await editor.question()
        assert question.message.startswith("Agent: take back prompt 1 and all after it (files)?\n")
        assert "a.txt +1 -2" in question.message and "left alone: /w/b.txt: changed since" in question.message
        assert question.actions == ["Cancel", "Show", "Do it", "Do it, and keep what I changed"]
        question.answer("Show")
        again = await editor.question(2)
        assert "-2\n+two\n" in shown(editor)
        assert again.actions == ["Cancel", "Do it", "Do it, and keep what I changed"]
        again.answer("Cancel")
        await editor.until(lambda: answers)
        assert doubled.asked("undo") == [{"to": 1, "what": "files", "dryRun": True}]
        assert not answers[0]["done"]
        tasks.start_soon(undo, {"wait": True})
        third = await editor.question(3)
        assert third.message.startswith("Agent: take back the last prompt (files and conversation)?\n")
        third.answer(None)
        await editor.until(lambda: len(answers) == 2)
        assert doubled.asked("undo")[1:] == [{"dryRun": True}]
        tasks.start_soon(undo, {"call": "t1", "wait": True})
        (await editor.question(4)).answer("Do it, and keep what I changed")
        await editor.until(lambda: len(answers) == 3)
        assert answers[2]["done"]
        assert doubled.asked("undo")[2:] == [{"call": "t1", "dryRun": True}, {"call": "t1", "merge": True}]
        assert "Agent: Took back 1 file." in editor.said() and "*Took back 1 file.*" in editor.transcript()


async def test_who_says_yes_is_not_asked(tmp_path, monkeypatch):
    async with changed(tmp_path, monkeypatch) as (editor, doubled, document):
        await editor.execute("acpCoder.undo", {
            "uri": document.uri, "hunks": [1], "expect": ["five"], "since": 1, "yes": True, "wait": True,
        })  # fmt: skip
        await editor.execute("acpCoder.redo", {"yes": True, "wait": True})
        path = str(tmp_path / "project" / "a.txt")
        assert doubled.asked("undo") == [{"path": path, "since": 1, "hunks": [1], "expect": ["five"]}]
        assert doubled.asked("redo") == [{}]
        assert editor.questions == []


async def test_a_plain_argument_is_a_prompt_or_a_call(tmp_path, monkeypatch):
    async with changed(tmp_path, monkeypatch) as (editor, doubled, _):
        for number, argument in enumerate((3, "4", "t1"), 1):
            assert await editor.execute("acpCoder.undo", argument) is None
            (await editor.question(number)).answer("Cancel")
        assert doubled.asked("undo") == [
            {"to": 3, "dryRun": True}, {"to": 4, "dryRun": True}, {"call": "t1", "dryRun": True},
        ]  # fmt: skip


async def test_checkpoints_and_changes_are_returned_and_shown(tmp_path, monkeypatch):
    async with changed(tmp_path, monkeypatch) as (editor, doubled, _):
        found = await editor.execute("acpCoder.checkpoints", {"wait": True})
        assert found["redo"] and len(found["checkpoints"]) == 1
        text = shown(editor)
        assert "## 1. Count\\x1b\n\n2026-01-01T10:00:00Z\n" in text
        assert "a.txt +2 -1\n- not covered: big.bin: too large\n" in text
        changes = await editor.execute("acpCoder.diff", {"since": 1, "wait": True})
        assert changes["notCovered"] == ["big.bin: too large"]
        assert doubled.asked("changes") == [{"since": 1}]
        assert shown(editor).startswith("# not covered: big.bin: too large\n--- ")
        assert " one\n-two\n+2\n three\n four\n+five\n" in shown(editor)
        file = Path(editor.shown_documents[-1].uri.removeprefix("file://"))
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.exists()


async def test_the_changed_places_have_an_action_that_reverts_them(tmp_path, monkeypatch):
    async with changed(tmp_path, monkeypatch) as (editor, doubled, document):

        async def reverts(line: int) -> list[dict[str, Any]]:
            place = types.Position(line=line, character=0)
            found = await editor.actions(document.uri, types.Range(place, place), only=["source.acpCoder"])
            return [action for action in found if "revert" in action["title"]]

        assert [len(await reverts(line)) for line in range(5)] == [0, 1, 0, 0, 1]
        assert len(doubled.asked("changes")) == 1
        # The user writes above: the places move. A place that the user has changed is the user's.
        buffer = editor.buffers[document.uri]
        editor.type(buffer, 0, 0, "zero\n")
        assert [len(await reverts(line)) for line in range(6)] == [0, 0, 1, 0, 0, 1]
        editor.type(buffer, buffer.text.index("2"), buffer.text.index("2") + 1, "22")
        assert [len(await reverts(line)) for line in range(6)] == [0, 0, 0, 0, 0, 1]
        (action,) = await reverts(5)
        assert action["title"] == "Agent: revert this change (line 6)"
        await editor.execute(action["command"]["command"], *action["command"]["arguments"])
        await editor.until(lambda: any("Took back" in words for words in editor.said()))
        assert doubled.asked("undo") == [
            {"path": str(tmp_path / "project" / "a.txt"), "hunks": [1], "expect": ["five"]}
        ]
        # Also where that fails the changes are asked for again.
        assert await reverts(5)
        doubled.change["hunks"] = []
        doubled.refusal = "it was changed since"
        await editor.execute(action["command"]["command"], *action["command"]["arguments"])
        await editor.until(lambda: any("it was changed since" in words for words in editor.said()))
        assert await reverts(5) == []


async def test_a_turn_changes_what_can_be_reverted_and_while_it_runs_nothing_can(tmp_path, monkeypatch):
    async with changed(tmp_path, monkeypatch) as (editor, doubled, document):
        place = types.Range(types.Position(1, 0), types.Position(1, 0))

        async def revertible() -> bool:
            return any("revert" in action["title"] for action in await editor.actions(document.uri, place))

        assert await revertible()
        await editor.execute("acpCoder.prompt", "More")
        turn = await doubled.agent.prompted()
        assert not await revertible()
        with pytest.raises(JsonRpcException, match="the agent is working: stop it first"):
            await editor.execute("acpCoder.undo", {"yes": True, "wait": True})
        doubled.change["hunks"] = []
        await turn.end()
        await editor.turns_over(2)
        assert not await revertible()
        assert len(doubled.asked("changes")) == 2 and doubled.asked("undo") == []


async def test_an_agent_that_cannot_is_not_asked(tmp_path):
    async with raw_lsp(tmp_path) as (editor, agent):
        with pytest.raises(JsonRpcException, match="there is no session yet"):
            await editor.execute("acpCoder.undo", {"wait": True})
        await editor.execute("acpCoder.prompt", "Count")
        await (await agent.prompted()).end()
        await editor.turns_over()
        for command in ("undo", "redo", "diff", "checkpoints"):
            with pytest.raises(JsonRpcException, match="raw cannot tell or take back what it changed"):
                await editor.execute(f"acpCoder.{command}", {"wait": True})


async def test_what_is_asked_wrongly_is_said(tmp_path):
    async with raw_lsp(tmp_path) as (editor, _):
        for argument, words in (
            ({"to": "two"}, "Expected `int`"), ({"what": "all"}, "Invalid enum value 'all'"),
            ({"uri": "untitled:1"}, "`uri` is not the address of a file"),
        ):  # fmt: skip
            with pytest.raises(JsonRpcException, match=words):
                await editor.execute("acpCoder.undo", argument)
