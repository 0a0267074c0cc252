"""Cancellation, in every phase."""

import json

import anyio
import pytest

from acp_agent.schema import acp
from acp_agent.schema.acp import AgentMessageChunk, CompactionUpdate, ToolCallProgress
from acp_agent.testing.fake_editor import AnswersLate, NeverAnswers
from acp_agent.testing.fake_model import Answer
from tests.executors.kit import alive
from tests.waits import until

from .kit import asks, bash, cancels, rig, went


async def _cancelled(r, turn):
    await cancels(r, turn)
    r.editor.assert_tool_calls_finished()


async def _prompted(r, id_):
    """A prompt in a request with that id."""
    params = {"sessionId": r.editor.session_id, "prompt": [{"type": "text", "text": "hi"}]}
    request = {"jsonrpc": "2.0", "id": id_, "method": "session/prompt", "params": params}
    await r.editor.send_line(json.dumps(request).encode())


async def test_before_the_first_byte(tmp_path):
    async with rig(tmp_path, [Answer(text="x", hang_before=True), "fine"]) as r:
        turn = r.editor.begin("go")
        await r.model.wait_for_request(1)
        await _cancelled(r, turn)
        with anyio.fail_after(60):
            await r.model.answer_closed(1)
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"
        assert [m["role"] for m in r.messages(2)] == ["system", "user"]


async def test_at_once_after_the_prompt(tmp_path):
    async with rig(tmp_path, lambda body: Answer(text="x", hang_before="again" not in str(body["messages"][-1]))) as r:
        turn = r.editor.begin("go")
        await anyio.lowlevel.checkpoint()
        await r.editor.wait_until(lambda: r.editor.lines("to_agent", "session/prompt"))
        await _cancelled(r, turn)
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"


async def test_while_streaming_the_model_is_dropped_and_what_was_said_stays(tmp_path):
    async with rig(tmp_path, [Answer(text=("half", " more"), hang_after=1), "fine"]) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_for(lambda u: isinstance(u, AgentMessageChunk))
        await _cancelled(r, turn)
        with anyio.fail_after(60):
            await r.model.answer_closed(1)
        await r.editor.prompt("again")
        assert [m["role"] for m in r.messages(2)] == ["system", "user", "assistant", "user"]
        assert r.messages(2)[2]["content"] == "half"


@pytest.mark.parametrize("terminal", [True, False])
async def test_a_running_command_is_killed_with_all_it_started(tmp_path, terminal):
    pids = tmp_path / "pids"
    command = f"(setsid sh -c 'echo $$ >>{pids}; sleep 600' &) ; echo $$ >>{pids}; echo begun >>{pids}; sleep 600"
    async with rig(tmp_path, [asks(bash(command)), "fine"], terminal=terminal) as r:
        turn = r.editor.begin("go")
        await until(lambda: pids.exists() and len(pids.read_text().splitlines()) == 3)
        await _cancelled(r, turn)
        r.editor.tool_call().assert_finished("failed")
        if not terminal:
            await until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split() if pid.isdigit()))
        # The cancel may come before the editor has told us the terminal's id; then it is ended a moment later.
        await until(lambda: not r.editor.terminals.open)
        await r.editor.prompt("again")
        assert [m["role"] for m in r.messages(2)] == ["system", "user", "assistant", "tool", "user"]


async def test_partial_output_of_a_cancelled_command_is_kept(tmp_path):
    async with rig(tmp_path, [asks(bash("echo begun; sleep 600"))], terminal=False) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_for(lambda u: isinstance(u, ToolCallProgress) and "begun" in str(u.content))
        await _cancelled(r, turn)
        assert "begun" in r.editor.tool_call().text()


@pytest.mark.parametrize("method", ["terminal/kill", "terminal/release", "terminal/output"])
async def test_a_client_that_does_not_answer_the_kill_does_not_hold_the_cancel(tmp_path, method):
    config = "[limits]\nkill_timeout = 0.2\nclient_timeout = 0.5\n"
    async with rig(tmp_path, [asks(bash("sleep 600"))], misbehave={method: NeverAnswers()}, config=config) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_until(lambda: r.editor.lines("from_agent", "terminal/wait_for_exit"))
        await _cancelled(r, turn)
        assert len(r.editor.lines("from_agent", "terminal/release")) == 1
        assert len(r.editor.lines("from_agent", "terminal/kill")) == 1


async def test_calls_that_had_not_begun_are_answered_for_the_model(tmp_path):
    async with rig(tmp_path, [asks(bash("sleep 600"), bash("touch never")), "fine"]) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_until(lambda: r.editor.lines("from_agent", "terminal/wait_for_exit"))
        assert [call.status for call in r.editor.tool_calls().values()] == ["in_progress", "pending"]
        await _cancelled(r, turn)
        assert [call.status for call in r.editor.tool_calls().values()] == ["failed", "failed"]
        assert not (r.project / "never").exists()
        await r.editor.prompt("again")
        assert [m["role"] for m in r.messages(2)] == ["system", "user", "assistant", "tool", "tool", "user"]


async def test_queued_prompts_are_cancelled_too(tmp_path):
    async with rig(tmp_path, [Answer(text="x", hang_before=True), "fine"]) as r:
        turns = [r.editor.begin("one"), r.editor.begin("two")]
        await r.model.wait_for_request(1)
        await r.editor.wait_until(lambda: len(r.editor.lines("to_agent", "session/prompt")) == 2)
        r.editor.cancel()
        assert [(await turn.response()).stop_reason for turn in turns] == ["cancelled"] * 2
        assert (await r.editor.prompt("three")).stop_reason == "end_turn"


async def test_a_cancel_without_a_turn_or_of_an_unknown_request_does_not_hit_the_next_prompt(tmp_path):
    async with rig(tmp_path, ["fine", "fine"]) as r:
        r.editor.cancel()
        assert (await r.editor.prompt("one")).stop_reason == "end_turn"
        for params in (*({"requestId": id_} for id_ in (None, 0, "nope", 1.5, [], {})), None):
            r.editor.notify("$/cancel_request", params)
        r.editor.cancel()
        r.editor.cancel()
        assert (await r.editor.prompt("two")).stop_reason == "end_turn"


async def test_other_sessions_go_on(tmp_path):
    async with rig(tmp_path, [Answer(text=("x",), hang_after=1), Answer(text=("y", "z"), hang_after=1)]) as r:
        one = r.editor.session_id
        two = (await r.editor.new_session(r.project)).session_id
        first = r.editor.begin("one", session_id=one)
        await r.model.wait_for_request(1)
        second = r.editor.begin("two", session_id=two)
        await r.model.wait_for_request(2)
        r.editor.cancel(session_id=one)
        assert (await first.response()).stop_reason == "cancelled"
        assert not second.done
        r.model.release()
        assert (await second.response()).stop_reason == "end_turn"


async def test_cancel_request_for_a_prompt_gives_a_stop_reason(tmp_path):
    async with rig(tmp_path, [Answer(text="x", hang_before=True)]) as r:
        await _prompted(r, "p")
        await r.model.wait_for_request(1)
        r.editor.notify("$/cancel_request", {"requestId": "p"})
        answer = await r.editor.wait_until(lambda: [m for m in r.editor.lines("from_agent") if m.get("id") == "p"])
        assert answer[0]["result"] == {"stopReason": "cancelled"}


async def test_no_update_of_the_turn_follows_its_answer(tmp_path):
    async with rig(tmp_path, [asks(bash("yes | head -c 200000; sleep 600"))], terminal=False) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_for(lambda u: isinstance(u, ToolCallProgress) and "y" in str(u.content))
        await _cancelled(r, turn)
        lines = r.editor.lines("from_agent")
        answered = next(i for i, line in enumerate(lines) if line.get("result", {}).get("stopReason"))
        await r.editor.client.list_sessions()
        assert not any(line.get("method") == "session/update" for line in lines[answered + 1 :])


async def test_a_terminal_made_after_the_cancel_is_killed_and_released(tmp_path):
    script = [asks(bash(f"sleep 1; touch {tmp_path / 'ran'}")), "fine"]
    late = AnswersLate()
    async with rig(tmp_path, script, misbehave={"terminal/create": late}) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_until(lambda: r.editor.lines("from_agent", "terminal/create"))
        await _cancelled(r, turn)
        late.release.set()
        await r.editor.wait_until(lambda: r.editor.lines("from_agent", "terminal/release"))
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"
        assert r.editor.terminals.open == 0
        assert not (tmp_path / "ran").exists()


async def test_a_late_terminal_is_ended_by_its_mark_where_the_client_kills_nothing(tmp_path):
    script = [asks(bash(f"echo $$ > {tmp_path / 'pid'}; sleep 1000")), "fine"]
    late = AnswersLate(served_at_once=True)
    async with rig(tmp_path, script, misbehave={"terminal/create": late}, nothing_is_killed=True) as r:
        turn = r.editor.begin("go")
        await until((tmp_path / "pid").exists)
        await _cancelled(r, turn)
        late.release.set()
        await r.editor.wait_until(lambda: r.editor.lines("from_agent", "terminal/release"))
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"
        asked = acp.WaitForTerminalExitRequest(session_id=r.editor.session_id, terminal_id="term-1")
        with anyio.fail_after(60):
            assert (await r.editor.terminals.wait_for_exit(asked)).signal == "SIGKILL"


async def test_a_cancelled_compaction_says_so(tmp_path):
    async with went(tmp_path, ["a", Answer(text="x", hang_before=True), "b"], compaction=True, prompt="one") as r:
        turn = r.editor.begin("/compact")
        await r.model.wait_for_request(2)
        await _cancelled(r, turn)
        updates = [u for u in r.editor.updates[r.editor.session_id] if isinstance(u, CompactionUpdate)]
        assert [u.status for u in updates] == ["in_progress", "cancelled"]


async def test_cancel_request_for_a_waiting_prompt_leaves_the_running_one_alone(tmp_path):
    async with rig(tmp_path, [Answer(text=("x",), hang_after=1)]) as r:
        first = r.editor.begin("one")
        await r.model.wait_for_request(1)
        await _prompted(r, "p2")
        r.editor.notify("$/cancel_request", {"requestId": "p2"})
        await r.editor.wait_until(lambda: [m for m in r.editor.lines("from_agent") if m.get("id") == "p2"])
        assert not first.done
        r.model.release()
        assert (await first.response()).stop_reason == "end_turn"
        assert len(r.model.requests) == 1
