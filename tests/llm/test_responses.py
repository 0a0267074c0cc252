"""What only the Responses API has: items that are sent back, and its own events."""

import json
from typing import Any

import pytest

from acp_agent.llm import base as llm
from acp_agent.llm.responses import ResponsesProvider
from acp_agent.testing.fake_model import Answer, Call, RawAnswer

from .kit import TOOL, TOOL_SENT, USER, calls, check_failure, collect, connected, make, text_block, texts, turn

REASONER = llm.ModelSettings(model="gpt-5", system="Be brief.", thought_level="low", max_output_tokens=3, cache_key="k")


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


async def test_a_whole_request() -> None:
    messages = (
        llm.UserMessage((llm.TextPart("hi"), llm.AudioPart("audio/wav", "AAAA"))),
        llm.AssistantMessage(
            "Looking.", (llm.ToolUse("x", "read", ""),), thought="hm",
            opaque=({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zzz"}, {"type": "other"}),
        ),
        llm.ToolMessage("x", "read", (llm.TextPart("content"),)),
    )  # fmt: skip
    async with connected("responses", ["ok"]) as (provider, model):
        await collect(provider, messages, (TOOL,), REASONER)
        assert model.requests[0].body == {
            "model": "gpt-5", "instructions": "Be brief.",
            "input": [
                turn(
                    "user", text_block("hi", "input_text"),
                    text_block("[Audio (audio/wav) was left out: this API does not accept audio.]", "input_text"),
                ),
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zzz"},
                {"type": "message", **turn("assistant", text_block("Looking.", "output_text"))},
                {"type": "function_call", "call_id": "x", "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "x", "output": "content"},
            ],
            "tools": [{"type": "function", **TOOL_SENT["function"], "strict": False}], "stream": True, "store": False,
            "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto", "effort": "low"},
            "max_output_tokens": 16, "prompt_cache_key": "k",
        }  # fmt: skip


async def test_encrypted_reasoning_goes_back_unchanged() -> None:
    first = Answer(thought="hm", encrypted="zzz", tool_calls=(Call("read"),))
    async with connected("responses", [first, "done"]) as (provider, model):
        events = await collect(provider, settings=REASONER)
        finished = events[-1]
        assert isinstance(finished, llm.Finished)
        history = (USER, llm.AssistantMessage(tool_calls=tuple(calls(events)), opaque=finished.opaque))
        await collect(provider, history, settings=REASONER)
        assert model.requests[1].body["input"][1] == {
            "id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "zzz",
        }  # fmt: skip


async def test_reasoning_that_was_not_encrypted_is_not_sent_back() -> None:
    async with connected("responses", [Answer(thought="hm", text="ok")]) as (provider, _):
        assert (await collect(provider))[-1] == llm.Finished("stop", ())


@pytest.mark.parametrize(("model", "level", "included"), [
    ("gpt-4o", None, False), ("gpt-4o", "off", False), ("gpt-4o", "low", True), ("o3", None, True),
    ("gpt-5", "off", True),
])  # fmt: skip
async def test_encrypted_reasoning_is_asked_for_when_there_is_reasoning(model: str, level: Any, included: bool) -> None:
    async with connected("responses", ["ok"]) as (provider, server):
        await collect(provider, settings=llm.ModelSettings(model=model, thought_level=level))
        assert ("include" in server.requests[0].body) is included


async def test_an_azure_key_travels_in_its_own_header_too() -> None:
    provider = make("responses", "https://acme.openai.azure.com")
    assert isinstance(provider, ResponsesProvider) and provider._base_url == "https://acme.openai.azure.com/openai/v1"
    assert provider._headers == {"Authorization": "Bearer sk-test", "api-key": "sk-test"}
    await provider.aclose()


async def test_a_server_that_does_not_stream() -> None:
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zzz", "status": None},
        {"type": "message", **turn("assistant", text_block("Hello", "output_text"), "odd")},
        {"type": "function_call", "call_id": "", "name": "read", "arguments": {"path": "a"}}, "odd",
    ]  # fmt: skip
    usage = {"input_tokens": 7, "output_tokens": "many", "input_tokens_details": None}
    whole = json.dumps({"object": "response", "status": "completed", "output": output, "usage": usage}).encode()
    async with connected("responses", [RawAnswer((whole,), content_type="application/json")]) as (provider, _):
        text, use, usage_report, finished = await collect(provider)
    assert (text, usage_report) == (llm.TextDelta("Hello"), llm.UsageReport(7, 0))
    assert isinstance(use, llm.ToolUse) and (use.id[:5], use.name, use.arguments) == ("call_", "read", '{"path":"a"}')
    assert isinstance(finished, llm.Finished) and finished.reason == "tool_calls"
    assert [item["encrypted_content"] for item in finished.opaque] == ["zzz"]


def call(**fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "name": "read", "arguments": "{}", **fields}


def completed(*output: Any) -> bytes:
    return event("response.completed", response={"status": "completed", "output": output})


def item(call_id: str) -> bytes:
    return event("response.output_item.done", item=call(call_id=call_id))


def text(piece: str) -> bytes:
    return event("response.output_text.delta", delta=piece)


MESSAGE = {"type": "message", "content": [text_block("Hello", "output_text")]}


@pytest.mark.parametrize(("chunks", "said", "called"), [
    ((completed(MESSAGE, call(call_id="a")),), ["Hello"], 1),
    ((text("Hello"), completed(MESSAGE, call(call_id="a"))), ["Hello"], 1),
    ((item("a"), completed(call(call_id="a"))), [], 1),
    ((event("response.output_item.done", item=None), completed(None, 7, [])), [], 0),
    ((completed({"type": "message", "content": 7}, {"type": []}),), [], 0),
    ((item("a_2"), item("a"), item("a"), completed()), [], 3), ((completed(call(call_id="a")), item("b")), [], 1),
], ids=[
    "nothing but the end", "text alone", "twice", "null items", "odd items", "one id", "after the end",
])  # fmt: skip
async def test_items_that_come_late_twice_or_never(chunks: tuple[bytes, ...], said: list[str], called: int) -> None:
    async with connected("responses", [RawAnswer(chunks)]) as (provider, _):
        events = await collect(provider)
    assert texts(events) == said and len({use.id for use in calls(events)}) == len(calls(events)) == called


def paragraph(index: int, words: str) -> tuple[bytes, bytes]:
    place = {"item_id": "r", "output_index": 0, "summary_index": index}
    kind = "response.reasoning_summary"
    return event(f"{kind}_part.added", **place), event(f"{kind}_text.delta", **place, delta=words)


@pytest.mark.parametrize(("chunks", "events"), [
    (
        (*paragraph(0, "one"), *paragraph(1, "two")),
        [llm.ThoughtDelta("one"), llm.ThoughtDelta("\n\n"), llm.ThoughtDelta("two")],
    ),
    ((text("a\ud83d"), text("\ude00b\ud83d")), [llm.TextDelta("a"), llm.TextDelta("😀b"), llm.TextDelta("�")]),
    ((event("response.hologram.delta", delta="?"), text("a")), [llm.TextDelta("a")]),
], ids=[
    "paragraphs of a summary are kept apart", "halves of surrogate pairs are joined", "unknown events",
])  # fmt: skip
async def test_streams(chunks: tuple[bytes, ...], events: list[llm.ModelEvent]) -> None:
    async with connected("responses", [RawAnswer((*chunks, completed()))]) as (provider, _):
        assert await collect(provider) == [*events, llm.Finished("stop")]


def failed(code: str, message: str) -> bytes:
    return event("response.failed", response={"status": "failed", "error": {"code": code, "message": message}})


@pytest.mark.parametrize(("chunk", "kind", "words"), [
    (failed("server_error", "oops"), "server", "oops"),
    (failed("rate_limit_exceeded", "slow down"), "rate_limit", "slow down"),
    (event("error", code="server_error", message="oops", param=None), "server", "oops"),
    (event("error", error={"code": "context_length_exceeded", "message": "Too long"}), "context_too_long", "Too long"),
    (b"data: what is this\n\n", "server", "what is this"),
    (event("response.output_text.done", text=""), "network", "ended early"),
    (b"<html>hello</html>", "not_found", "web page"),
])  # fmt: skip
async def test_errors_inside_an_answer(chunk: bytes, kind: str, words: str) -> None:
    assert await check_failure("responses", RawAnswer((chunk,)), kind, words) == []
