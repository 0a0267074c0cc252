"""`kill -9` at any moment loses nothing that was reported to the client."""

import os
import random
import signal

import anyio
import pytest

from acp_agent.errors import ConnectionClosed
from acp_agent.schema.acp import AgentMessageChunk, ToolCall
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call
from tests.agent.kit import without_context
from tests.e2e.kit import spawned
from tests.nightly import times

ROUNDS = times(6, 60)
SEED = 20_261_121


def script() -> list[Answer]:
    words = tuple(f"w{n} " for n in range(300))
    return [
        Answer(text=words, tool_calls=(Call("write", {"path": "a.txt", "content": "x" * 1000}),), delay=0.0005),
        Answer(text=words, tool_calls=(Call("bash", {"command": "seq 1 2000"}),), delay=0.0005),
        Answer(text=words, delay=0.0005),
    ]


def said(editor: FakeEditor, session_id: str) -> list[object]:
    """What was told of the answer."""
    return [u for u in editor.updates.get(session_id, []) if isinstance(u, AgentMessageChunk | ToolCall)]


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_what_was_told_is_there_after_a_kill(tmp_path, round_):
    stop_at = random.Random(SEED + round_).randint(1, 60)
    async with spawned(tmp_path, script()) as (editor, _):
        session_id = editor.session_id
        turn = editor.begin("go on until you die")
        with anyio.move_on_after(20):
            await editor.wait_until(lambda: len(said(editor, session_id)) >= stop_at or turn.done)
        os.kill(editor.process.pid, signal.SIGKILL)
        with anyio.fail_after(60):
            await editor.process.wait()
        if not turn.done:
            with pytest.raises(ConnectionClosed), anyio.fail_after(60):
                await turn.response()
        told = editor.text(session_id=session_id)
        calls = editor.tool_calls(session_id=session_id)
    async with spawned(tmp_path, ["and on"]) as (editor, model):
        await editor.load_session(session_id, tmp_path / "project")
        assert editor.text().startswith(told)
        replayed = editor.tool_calls()
        assert list(replayed)[: len(calls)] == list(calls)
        for call_id, call in replayed.items():
            assert call.status in ("completed", "failed")
            if call_id in calls and calls[call_id].status in ("completed", "failed"):
                assert call.status == calls[call_id].status
        assert (await editor.prompt("go on")).stop_reason == "end_turn"
        messages = without_context(model.requests[0].body["messages"])
        assert messages[1]["content"].startswith("go on until you die")
        assert told in "".join(str(m.get("content") or "") for m in messages if m["role"] == "assistant")
        open_calls = [c["id"] for m in messages for c in m.get("tool_calls", [])]
        assert open_calls == [m["tool_call_id"] for m in messages if m["role"] == "tool"]
        assert len(said(editor, session_id)) >= 1
