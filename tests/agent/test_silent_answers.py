"""Answers with neither text nor call: asked for again, then told in words, never a silent end of the turn."""

import json
from typing import Any

import pytest

from acp_agent.errors import PeerError
from acp_agent.testing.fake_model import Answer, Call, RawAnswer

from .kit import rig, went

NUDGE = "The last answer was empty"


def events(*data: Any) -> RawAnswer:
    """Those of a stream; a text stands as it is."""
    lines = [each if isinstance(each, str) else json.dumps(each) for each in data]
    return RawAnswer(chunks=("".join(f"data: {line}\n\n" for line in lines).encode(),))


def chat(finish: str | None, **delta: Any) -> RawAnswer:
    return events({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, "[DONE]")


def messages(stop: str, *blocks: dict[str, Any]) -> RawAnswer:
    starts = [{"type": "content_block_start", "index": at, "content_block": each} for at, each in enumerate(blocks)]
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 7}}
    return events({"type": "message_start", "message": {}}, *starts, end, {"type": "message_stop"})


USED = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}}
SILENT = {
    "the end alone": ("", events("[DONE]"), "nothing in it"),
    "an empty text": ("", chat("stop", content=""), "nothing in it"),
    "null": ("", chat("stop", content=None), "nothing in it"),
    "white space": ("", chat("stop", content=" \n"), "nothing in it"),
    "reasoning": ("", chat("stop", reasoning_content="Hm."), "only reasoning"),
    "a call that is announced": ("", chat("tool_calls"), "a call that was announced and did not come"),
    "usage": ("", events(USED, "[DONE]"), "nothing in it (5 tokens by the server's count)"),
    "no call of the Messages API": ("messages", messages("tool_use"), "announced and did not come (7 tokens"),
    "no block": ("messages", messages("end_turn"), "nothing in it (7 tokens"),
    "no output": (
        "responses", events({"type": "response.completed", "response": {"status": "completed", "output": []}}),
        "nothing in it",
    ),
    "a line of Ollama": ("ollama", RawAnswer(chunks=(b'{"message":{"content":""},"done":true}\n',)), "nothing in it"),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
async def test_it_is_asked_for_again_then_with_a_nudge_then_told(tmp_path, name):
    api, silent, what = SILENT[name]
    script = [silent, silent, "Done.", silent, silent, silent, "Here again."]
    async with went(tmp_path, script, environ={"ACP_CODER_API": api} if api else {}) as r:
        assert r.editor.text().strip() == "Done."
        first, second, third = [each.body for each in r.model.requests]
        assert second == first
        assert ("was announced" if "announced" in what else NUDGE) in json.dumps(third)
        with pytest.raises(PeerError, match="answered 3 times without a text and without a call") as error:
            await r.editor.prompt("and now?")
        assert what in error.value.message
        assert (await r.editor.prompt("hello?")).stop_reason == "end_turn"
        assert r.editor.text().endswith("Here again.") and "empty" not in r.editor.text()


async def test_so_it_is_after_a_result_and_where_a_text_announces_a_call(tmp_path):
    script = [
        Answer(tool_calls=(Call("bash", {"command": "echo one"}),)), chat("stop"),
        chat("tool_calls", content="I look at it."), "Done.",
    ]  # fmt: skip
    async with went(tmp_path, script, mode="auto") as r:
        assert len(r.model.requests) == 4
        assert r.editor.text() == "I look at it.Done."
        assert "was announced" in json.dumps(r.model.requests[3].body["messages"][-1])


async def test_another_model_goes_on_where_one_says_nothing(tmp_path):
    async with went(tmp_path, [chat("stop")] * 3 + ["I do."], config='[agent]\nfallback_models = ["b"]\n') as r:
        assert r.editor.text().endswith("I do.")
        assert r.model.requests[3].body["model"] == "b"


AT_ONCE = "[providers.default]\nmax_retries = 0\n"
COMPLAINTS = (
    '{"choices":null,"error_message":"Out of order"}', '{"detail":"Out of order"}',
    '{"status":"error","response":{"errors":[{"msg":"Out of order"}]}}',
    'data: {"message":"Out of order"}\n\ndata: [DONE]\n\n',
    'data: {"choices":[],"detail":{"message":"Out of order"}}\n\n',
)  # fmt: skip


@pytest.mark.parametrize("api", ["", "messages", "responses"])
async def test_what_a_server_says_in_place_of_an_answer_is_shown(tmp_path, api):
    script = [RawAnswer(chunks=(body.encode(),)) for body in COMPLAINTS]
    async with rig(tmp_path, script, environ={"ACP_CODER_API": api}, config=AT_ONCE) as r:
        for body in COMPLAINTS:
            with pytest.raises(PeerError, match="Out of order"):
                assert not await r.editor.prompt("go"), body


async def test_an_input_that_is_too_long_is_shortened_wherever_the_server_says_so(tmp_path):
    too_long = RawAnswer(chunks=(b'{"choices":null,"error_message":"Input is too long"}',))
    async with went(tmp_path, ["One.", "Two.", too_long, "A summary.", "Three."], prompt="word " * 3000) as r:
        await r.editor.prompt("again")
        assert (await r.editor.prompt("go")).stop_reason == "end_turn"
        assert r.editor.text().endswith("Three.")
        assert len(json.dumps(r.messages(5))) < len(json.dumps(r.messages(2)))


async def test_words_beside_an_answer_are_no_complaint(tmp_path):
    answer = {"message": "queued", "choices": [{"index": 0, "delta": {"content": "Fine."}, "finish_reason": "stop"}]}
    async with went(tmp_path, [events({"message": "queued"}, answer, "[DONE]")]) as r:
        assert r.editor.text() == "Fine."
