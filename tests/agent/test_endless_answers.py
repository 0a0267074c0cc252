"""A provider whose answer never ends: bounded, and cancelled while it streams as fast as it can."""

import json
from typing import Any

import anyio
import pytest

from acp_agent.errors import PeerError
from acp_agent.llm import chat_answer, responses
from acp_agent.schema.acp import AgentMessageChunk
from acp_agent.testing.fake_model import RawAnswer

from .kit import cancels, rig, went

NEVER_STOPPED = "[agent]\nmax_repetition = 0\n"
PIECES = 500_000
"""More than anybody waits for."""


def endless(**delta: Any) -> RawAnswer:
    data = json.dumps({"choices": [{"index": 0, "delta": delta}]})
    return RawAnswer(chunks=(f"data: {data}\n\n".encode(),) * PIECES)


async def test_a_cancel_is_answered_while_the_server_still_streams(tmp_path):
    async with rig(tmp_path, [endless(content="word " * 200), "fine"], config=NEVER_STOPPED) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_for(lambda u: isinstance(u, AgentMessageChunk))
        await cancels(r, turn)
        with anyio.fail_after(60):
            await r.model.answer_closed(1)
        assert len(r.editor.text()) < 1_000 * PIECES / 10
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
async def test_text_and_thoughts_end_at_the_configured_length_and_the_session_goes_on(tmp_path, field):
    config = NEVER_STOPPED + "max_answer_bytes = 300000\n"
    async with went(tmp_path, [endless(**{field: "wörd " * 200}), "fine"], config=config, ends="max_tokens") as r:
        assert "stopped after 300000 bytes (`agent.max_answer_bytes`)" in r.editor.text()
        with anyio.fail_after(60):
            await r.model.answer_closed(1)
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"
        assert len(str(r.messages(2))) < 150_000


async def test_calls_that_never_end_are_an_error_of_the_responses_api_too(tmp_path, monkeypatch):
    monkeypatch.setattr(responses, "LONGEST_CALLS", 50_000)
    event = {"type": "response.function_call_arguments.delta", "item_id": "1", "output_index": 0, "sequence_number": 1}
    line = f"event: {event['type']}\ndata: {json.dumps({**event, 'delta': 'x' * 1000})}\n\n".encode()
    environ = {"ACP_CODER_API": "responses"}
    async with rig(tmp_path, lambda body: RawAnswer(chunks=(line,) * PIECES), environ=environ) as r:
        with pytest.raises(PeerError, match="longer than 50000 characters"):
            await r.editor.prompt("go")
        assert not r.editor.tool_calls()


async def test_calls_that_never_end_are_an_error_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(chat_answer, "LONGEST_CALLS", 50_000)
    call = {"index": 0, "id": "1", "function": {"name": "bash", "arguments": "x" * 1000}}
    async with rig(tmp_path, lambda body: endless(tool_calls=[call])) as r:
        with pytest.raises(PeerError, match="longer than 50000 characters"):
            await r.editor.prompt("go")
        assert not r.editor.tool_calls()
