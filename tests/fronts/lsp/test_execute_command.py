"""`workspace/executeCommand`: turns started, awaited, queued, stopped; and invalid requests."""

import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from tests.editors import raw_agent as raw
from tests.editors.raw_agent import RawAgent
from tests.fronts.lsp.kit import LspEditor, begun, lsp, raw_lsp


def prompts(agent: RawAgent) -> list[list[dict[str, Any]]]:
    return [message["params"]["prompt"] for message in agent.received if message["method"] == "session/prompt"]


async def heard(agent: RawAgent, method: str, number: int = 1) -> None:
    """The agent got that message so often."""
    with anyio.fail_after(60):
        while agent.count(method) < number:
            await anyio.sleep(0.01)


async def test_a_command_is_answered_at_once_or_when_its_turn_is_over(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        assert await editor.execute("acpCoder.prompt", "one") is None
        await (await agent.prompted()).end()
        async with anyio.create_task_group() as tasks:
            answers: list[Any] = []

            async def ask() -> None:
                answers.append(await editor.execute("acpCoder.continue", {"wait": True}))

            tasks.start_soon(ask)
            turn = await agent.prompted()
            assert not answers
            await turn.end()
        assert [answer["stopReason"] for answer in answers] == ["end_turn"]
        assert [blocks[0]["text"] for blocks in prompts(agent)] == ["one", "Continue."]
        assert agent.count("session/new") == 1


async def test_half_a_character_is_no_reason_to_fail(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        (file := tmp_path / "project" / "a.py").write_text("x\n")
        editor.open(file, "one \ud83d two \U0001d518\n")
        await editor.execute("acpCoder.prompt", {"text": "Why \udc00?", "uri": file.as_uri()})
        turn = await agent.prompted()
        assert turn.text == "Why \ufffd?"
        assert prompts(agent)[0][1]["resource"]["text"] == "one \ufffd two \U0001d518\n"
        await turn.end()
        await editor.turns_over()
        assert "Why \ufffd?" in editor.transcript()


async def test_cancelling_the_request_stops_the_turn(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        params = types.ExecuteCommandParams(command="acpCoder.prompt", arguments=[{"text": "x", "wait": True}])
        request = editor.protocol.send_request(types.WORKSPACE_EXECUTE_COMMAND, params, msg_id="mine")
        turn = await agent.prompted()
        editor.cancel_request(types.CancelParams(id="mine"))
        await editor.until(request.done)
        error = request.exception()
        assert isinstance(error, JsonRpcException) and error.code == types.LSPErrorCodes.RequestCancelled.value
        await heard(agent, "session/cancel")
        await agent.say(id=turn.id, result={"stopReason": "cancelled"})
        await editor.turns_over()


async def test_a_prompt_while_a_turn_runs_waits_for_its_end(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        turn = await begun(editor, agent, "first")
        await editor.execute("acpCoder.prompt", {"text": "second"})
        assert editor.said() == ["Queued until the current turn ends: second"]
        assert len(prompts(agent)) == 1
        await turn.end()
        assert (await agent.prompted()).text == "second"


async def test_a_prompt_that_waits_is_taken_back(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        turn = await begun(editor, agent, "first")
        params = types.ExecuteCommandParams(command="acpCoder.prompt", arguments=[{"text": "second", "wait": True}])
        request = editor.protocol.send_request(types.WORKSPACE_EXECUTE_COMMAND, params, msg_id="mine")
        await editor.until(editor.said)
        editor.cancel_request(types.CancelParams(id="mine"))
        await editor.until(request.done)
        await turn.end("Done.")
        await editor.turns_over()
        await editor.execute("acpCoder.prompt", "third")
        assert (await agent.prompted()).text == "third" and agent.count("session/cancel") == 0


async def test_stop_ends_the_turn_and_what_is_queued(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        assert not (await editor.execute("acpCoder.stop", {"wait": True}))["stopped"]
        turn = await begun(editor, agent, "first")
        await editor.execute("acpCoder.prompt", "second")
        question = await turn.ask({"toolCallId": "t1", "title": "rm -rf x"})
        await editor.question()
        assert (await editor.execute("acpCoder.stop", {"wait": True}))["stopped"]
        assert await question.chosen() == "cancelled"
        await editor.until(lambda: editor.questions[0].withdrawn)
        await heard(agent, "session/cancel")
        await agent.say(id=turn.id, result={"stopReason": "cancelled"})
        await editor.turns_over()
        await editor.execute("acpCoder.prompt", "third")
        assert (await agent.prompted()).text == "third"


@pytest.mark.parametrize("which", ["turn", "call"])
async def test_cancelling_the_progress_of_the_turn_or_of_a_call_stops_the_turn(tmp_path: Path, which: str):
    async with raw_lsp(tmp_path, name="helix-25.07.1") as (editor, agent):
        turn = await begun(editor, agent, "first")
        await turn.update(sessionUpdate="tool_call", toolCallId="t1", title="Long work", status="in_progress")
        await editor.until(lambda: any(title == "Long work" for title, _ in editor.lines()))
        title = "Agent: first" if which == "turn" else "Long work"
        (token,) = [token for token, said in editor.progress_reports.items() if said[0].title == title]  # type: ignore
        editor.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token="nobody's"))
        editor.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token=token))
        await heard(agent, "session/cancel")
        await agent.say(id=turn.id, result={"stopReason": "cancelled"})
        await editor.turns_over()
        assert dict(editor.lines())["Agent: first"][-1].message == "Stopped."


async def test_the_passage_goes_along_as_the_agent_takes_it(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        (file := tmp_path / "project" / "a.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
        buffer = editor.open(file)
        editor.type(buffer, 6, 7, "'\U0001d518'")
        where = {"start": {"line": 0, "character": 3}, "end": {"line": 2, "character": 0}}
        place = {"uri": buffer.uri, "range": where}
        problem = {"message": "one is odd", "source": "lint", "range": where}
        await editor.execute("acpCoder.ask", {**place, "text": "Why?"})
        await (await agent.prompted()).end()
        await editor.execute("acpCoder.fix", {"uri": buffer.uri, "diagnostic": problem})
        await (await agent.prompted()).end()
        await editor.execute("acpCoder.explain", {"uri": buffer.uri})
        await (await agent.prompted()).end()
        await editor.execute("acpCoder.test", place)
        await (await agent.prompted()).end()
        said = prompts(agent)
        link = f"{file.as_uri()}#L1-L2"
        text = "one = '\U0001d518'\ntwo = 2"
        assert said[0] == [
            {"type": "text", "text": "Why?"}, {"type": "resource", "resource": {"uri": link, "text": text}},
        ]  # fmt: skip
        assert said[1][0]["text"] == f"Fix this problem at [a.py:1-2]({link}): one is odd (lint)"
        assert said[2][1]["resource"]["text"] == buffer.text and said[3][1]["resource"]["text"] == text


async def test_an_agent_without_resources_gets_a_link_and_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(raw.INITIALIZED, "agentCapabilities", {})
    async with raw_lsp(tmp_path) as (editor, agent):
        (file := tmp_path / "project" / "a.py").write_text("one = 1\n")
        await editor.execute("acpCoder.explain", {"uri": file.as_uri()})
        await agent.prompted()
        (said,) = prompts(agent)
        assert said[1:] == [
            {"type": "resource_link", "uri": f"{file.as_uri()}#L1", "name": "a.py:1"},
            {"type": "text", "text": "a.py:1 says:\n\none = 1\n"},
        ]


@pytest.mark.parametrize(("command", "arguments", "words"), [
    ("acpCoder.none", [], "unknown command 'acpCoder.none'; known are: acpCoder.answer"),
    ("acpCoder.prompt", [], "takes a string"), ("acpCoder.prompt", [" "], "takes a string"),
    ("acpCoder.prompt", [7], "takes a string or an object"),
    ("acpCoder.prompt", [{"text": 7}], "`text` must be a string"),
    ("acpCoder.prompt", ["a", "b"], "takes one argument, not 2"),
    ("acpCoder.prompt", [{"text": "a", "wait": "yes"}], "`wait` is true or false"),
    ("acpCoder.explain", [{"uri": "file:///a", "range": {"start": 1}}], "not a range"),
    (
        "acpCoder.explain",
        [{"uri": "file:///a", "range": {"start": {"line": -1, "character": 0}, "end": {"line": 0, "character": 0}}}],
        "not a range",
    ),
    ("acpCoder.explain", ["x"], "takes an object"), ("acpCoder.explain", [], "needs an object with `uri`"),
    ("acpCoder.fix", [{"uri": "file:///a"}], "needs a `diagnostic`"),
    ("acpCoder.fix", [{"uri": "file:///a", "diagnostic": [1]}], "`diagnostic` is an object"),
    ("acpCoder.send", ["file:///none"], "open transcript"), ("acpCoder.output", ["none"], "from an earlier turn"),
])  # fmt: skip
async def test_what_is_asked_wrongly_is_told(wrong: LspEditor, command: str, arguments: list[Any], words: str):
    with pytest.raises(JsonRpcException, match=re.escape(words)):
        await wrong.execute(command, *arguments)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def wrong(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One server for all: what is asked wrongly changes nothing."""
    async with lsp(tmp_path_factory.mktemp("wrong"), command=["false"]) as (editor, _):
        yield editor


async def test_an_agent_that_dies_is_told_with_its_last_words_and_started_anew(tmp_path: Path):
    count = tmp_path / "count"
    dies = f"import sys; open({str(count)!r}, 'a').write('x'); sys.exit('no luck today')"
    async with lsp(tmp_path, command=[sys.executable, "-c", dies]) as (editor, _):
        for number in (1, 2):
            with pytest.raises(JsonRpcException, match="exited with status 1 .*no luck today"):
                await editor.execute("acpCoder.prompt", {"text": "x", "wait": True})
            assert count.read_text() == "x" * number
        assert len(editor.said()) == 2
        await editor.execute("acpCoder.mode")
        await editor.until(lambda: len(editor.said()) == 3)


async def test_an_agent_that_does_not_stop_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.fronts.lsp_server.conversation.STOP_SECONDS", 0.1)
    async with raw_lsp(tmp_path) as (editor, agent):
        await editor.execute("acpCoder.prompt", "first")
        await agent.prompted()
        await editor.execute("acpCoder.stop")
        await editor.turns_over()
        assert "did not stop within 0.1 s and was killed" in editor.said()[0]
        await editor.execute("acpCoder.prompt", "second")
        assert (await agent.prompted()).text == "second" and agent.count("initialize") == 2


async def test_an_agent_that_cannot_be_started_or_refuses_a_session_is_told(tmp_path: Path):
    async with lsp(tmp_path, command=["/nowhere/agent"]) as (editor, _):
        await editor.execute("acpCoder.prompt", "x")
        await editor.until(editor.said)
        assert editor.said()[0].startswith("Agent: cannot start /nowhere/agent")
        await editor.turns_over()
        assert "## You\n\nx\n\n## Agent\n\n*cannot start /nowhere/agent" in editor.transcript()
    async with raw_lsp(tmp_path) as (editor, agent):
        agent.refusal = "log in\x1b[2J first"
        await editor.execute("acpCoder.prompt", "x")
        await editor.turns_over()
        assert editor.said() == ["Agent: log in\\x1b[2J first"]
        agent.refusal = None
        await editor.execute("acpCoder.prompt", "y")
        assert (await agent.prompted()).text == "y"


async def test_a_turn_is_stopped_while_its_agent_still_starts(tmp_path: Path):
    async with lsp(tmp_path, command=["sh", "-c", "cat >/dev/null"]) as (editor, _):
        await editor.execute("acpCoder.prompt", "x")
        await editor.until(editor.lines)
        assert (await editor.execute("acpCoder.stop", {"wait": True}))["stopped"]
        await editor.turns_over()
        assert editor.said() == []
