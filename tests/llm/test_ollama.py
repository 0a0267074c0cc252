"""Ollama's own API: what is asked for, and its odd answers. FakeModel plays the server."""

import json
from typing import Any

import pytest

from acp_agent.errors import ProviderError
from acp_agent.llm import base as llm
from acp_agent.llm.adapters import AdaptedProvider
from acp_agent.llm.lacks.tolerant import Tolerant
from acp_agent.llm.ollama import OWN_WINDOW
from acp_agent.testing.fake_model import Answer, Failure, FakeModel, RawAnswer, Usage
from acp_agent.testing.fake_ollama import MODEL, Ollama

from .kit import SETTINGS, TOOL, TOOL_SENT, USER, check_failure, collect, connected, failure, make
from .official_clients import READ, SAID, ollama


async def test_the_whole_request() -> None:
    history = (
        llm.UserMessage((llm.TextPart("look"), llm.ImagePart("image/png", "iVBORw0="), llm.DocumentPart("JVBERi0="))),
        llm.AssistantMessage(
            "Looking.", (llm.ToolUse("c1", "read", '{"path": "a"}'), llm.ToolUse("c2", "read", "{oops")), "hm"
        ),
        llm.ToolMessage("c1", "read", (llm.TextPart("content"),)), llm.ToolMessage("c2", "read", ()),
        llm.AssistantMessage("Done.", thought="so"), USER,
    )  # fmt: skip
    asked = llm.ModelSettings("qwen3:8b", system="Be brief.", thought_level="low", max_output_tokens=9)
    async with connected("ollama", ["ok"], keep_alive=60) as (provider, model):
        await collect(provider, history, (TOOL,), asked)
    (request,) = model.requests
    assert request.path == "/api/chat"
    assert request.body == {
        "model": "qwen3:8b",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "look\n[A PDF was left out: Ollama does not take it.]", "images": ["iVBORw0="]},
            {
                "role": "assistant", "content": "Looking.", "thinking": "hm",
                "tool_calls": [
                    {"id": "c1", "function": {"name": "read", "arguments": {"path": "a"}}},
                    {"id": "c2", "function": {"name": "read", "arguments": {"_invalid": "{oops"}}},
                ],
            },
            {"role": "tool", "tool_name": "read", "tool_call_id": "c1", "content": "content"},
            {"role": "tool", "tool_name": "read", "tool_call_id": "c2", "content": "(no output)"},
            {"role": "assistant", "content": "Done.", "tool_calls": []}, {"role": "user", "content": "hi"},
        ],
        "tools": [TOOL_SENT], "think": True, "options": {"num_ctx": 32768, "num_predict": 9}, "keep_alive": 60,
        "truncate": False, "stream": True,
    }  # fmt: skip


def shown(**changes: Any) -> dict[str, Any]:
    return {**MODEL, **changes}


SMALL = {"general.architecture": "gemma", "gemma.context_length": 8192}


@pytest.mark.parametrize(("show", "configured", "window"), [
    (shown(), 0, OWN_WINDOW), (shown(), 65536, 65536), (shown(model_info=SMALL), 0, 8192),
    (shown(parameters="temperature 0.7\nnum_ctx 16384\nstop x"), 0, 16384),
    (shown(parameters="num_ctx 16384"), 20000, 20000), ({}, 0, OWN_WINDOW),
    (shown(parameters="num_ctx 0"), 0, OWN_WINDOW), (shown(parameters="num_ctx " + "9" * 5000), 0, OWN_WINDOW),
    (shown(model_info={"general.architecture": "x", "x.context_length": True}), 0, OWN_WINDOW),
    (shown(model_info={"general.architecture": ["x"], "x.context_length": 8192}, parameters={}), 0, OWN_WINDOW),
    ({"model_info": {"general.architecture": "x", "x.context_length": "many"}, "parameters": 7}, 0, OWN_WINDOW),
    (Failure(404, {"error": "model 'm' not found"}), 0, None),
    (Failure(404, {"error": "model 'm' not found"}), 12000, 12000),
])  # fmt: skip
async def test_the_context_that_is_asked_for(show: Any, configured: int, window: int | None) -> None:
    async with connected("ollama", ["ok"], context_window=configured) as (provider, model):
        model.speaking(Ollama).shown = show
        await collect(provider)
        assert model.requests[0].body["options"] == ({"num_ctx": window} if window else {})
        assert (await provider.models())[0].context_window == window


@pytest.mark.parametrize(("able", "infos"), [
    (["completion", "tools", "vision"], [llm.ModelInfo("m", OWN_WINDOW, ("image",), True)]),
    (["completion"], [llm.ModelInfo("m", OWN_WINDOW, (), False)]), (["embedding"], []),
    (None, [llm.ModelInfo("m", OWN_WINDOW)]),
])  # fmt: skip
async def test_what_a_model_can_do_is_asked(able: list[str] | None, infos: list[llm.ModelInfo]) -> None:
    async with FakeModel(models=["m"]) as model:
        model.speaking(Ollama).shown = shown(capabilities=able)
        provider = make("ollama", model.base_url)
        assert await provider.models() == infos
        await provider.aclose()


@pytest.mark.parametrize(("name", "level", "think"), [
    ("qwen3:8b", "off", False), ("qwen3:8b", "high", True), ("gpt-oss:20b", "high", "high"),
    ("gpt-oss:20b", "off", "low"), ("qwen3:8b", None, None),
])  # fmt: skip
async def test_thinking(name: str, level: Any, think: Any) -> None:
    async with connected("ollama", ["ok"]) as (provider, model):
        await collect(provider, settings=llm.ModelSettings(name, thought_level=level))
        assert model.requests[0].body.get("think") == think


async def test_what_a_model_cannot_is_not_asked_again_and_what_does_not_fit_refused() -> None:
    refused = Failure(400, {"error": '"gemma:2b" does not support thinking'})
    async with connected("ollama", [refused, "ok", "ok"]) as (provider, model):
        tolerant = AdaptedProvider(provider, Tolerant(provider.name))
        for _ in range(2):
            await collect(tolerant, settings=llm.ModelSettings("gemma:2b", thought_level="low"))
        assert ["think" in request.body for request in model.requests] == [True, False, False]
    async with connected("ollama", ["ok"]) as (provider, model):
        model.speaking(Ollama).cuts = True
        with pytest.raises(ProviderError) as caught:
            await collect(provider, (LONG,))
        assert caught.value.kind == "context_too_long"
        assert await collect(provider) == [llm.TextDelta("ok"), llm.UsageReport(9, 5), llm.Finished("stop")]


LONG = llm.UserMessage((llm.TextPart("one two three " * 20_000),))


@pytest.mark.parametrize("api", ["ollama", "chat"])
async def test_a_prompt_that_an_older_server_cut_is_noticed_once(api: Any) -> None:
    async with connected(api, [Answer(text="ok", usage=Usage(4096, 5), repeat=True)]) as (provider, _):
        tolerant = AdaptedProvider(provider, Tolerant(provider.name))
        first, second = [await collect(tolerant, (LONG,)) for _ in range(2)]
    (notice,) = [event for event in first if isinstance(event, llm.Notice)]
    assert "got about 4,096 tokens of a longer prompt" in notice.text and "providers.fake.context_window" in notice.text
    assert not [event for event in second if isinstance(event, llm.Notice)]


@pytest.mark.parametrize("tokens", [60_000, 50_000, 10])
async def test_a_prompt_that_was_read_in_whole_is_not(tokens: int) -> None:
    async with connected("chat", [Answer(text="ok", usage=Usage(tokens, 5))]) as (provider, _):
        events = await collect(AdaptedProvider(provider, Tolerant(provider.name)), (LONG,))
    assert not [event for event in events if isinstance(event, llm.Notice)]


def lines(*said: Any) -> RawAnswer:
    return RawAnswer(tuple(json.dumps(line).encode() + b"\n" for line in said), content_type="application/x-ndjson")


def said(**fields: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": "", **fields}, "done": False}


def call(arguments: Any, **fields: Any) -> dict[str, Any]:
    return said(tool_calls=[{"function": {"name": "read", "arguments": arguments}, **fields}])


END = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}


async def read(*said: Any) -> list[Any]:
    async with connected("ollama", [lines(*said)]) as (provider, _):
        return await collect(provider, tools=(TOOL,))


async def test_thoughts_calls_and_odd_values_are_read_as_far_as_possible() -> None:
    events = await read(said(content="<think>so"), said(content="</think>Hello"), END)
    assert events == [llm.ThoughtDelta("so"), llm.TextDelta("Hello"), llm.Finished("stop")]
    events = await read(call({"path": "a"}), call('{"path": "b"}', id="x"), call(None, id="x"), END)
    uses = [event for event in events if isinstance(event, llm.ToolUse)]
    assert [use.arguments for use in uses] == ['{"path":"a"}', '{"path": "b"}', "{}"]
    assert len({use.id for use in uses}) == 3 and uses[1].id == "x"
    assert events[-1] == llm.Finished("tool_calls")
    assert await read(said(content="a"), {**END, "eval_count": "3"}) == [
        llm.TextDelta("a"), llm.UsageReport(0, 3), llm.Finished("stop"),
    ]  # fmt: skip
    assert await read(said(content="a", thinking=7), {**END, "done_reason": {"a": 1}, "message": []}) == [
        llm.ThoughtDelta("7"), llm.TextDelta("a"), llm.Finished("stop"),
    ]  # fmt: skip
    async with connected("ollama", [lines({"done": {"a": 1}})], max_retries=0) as (provider, _):
        assert (await failure(provider)).kind == "network"
    assert await read({**END, "eval_count": 3}) == [llm.UsageReport(0, 3), llm.Finished("stop")]


async def test_what_is_asked_of_a_model_first_is_asked_again_like_the_request_itself() -> None:
    async with connected("ollama", ["ok"]) as (provider, model):
        model.speaking(Ollama).shown = Failure(503, {"error": "busy"})
        with pytest.raises(ProviderError, match="busy"):
            await collect(provider)
        assert (model.speaking(Ollama).shows, model.requests) == (4, [])


@pytest.mark.parametrize(("reply", "kind", "words"), [
    (lines(said(content="a"), {"error": "an error was encountered while running the model"}), "server", "running"),
    (lines(said(content="a")), "network", "ended early"),
    (RawAnswer((b"<html>Welcome</html>",)), "not_found", "web page"),
    (RawAnswer((b"not json\n",)), "server", "not json"),
    (Failure(404, {"error": 'model "m" not found, try pulling it first'}), "not_found", "try pulling it first"),
    (Failure(400, {"error": "registry.ollama.ai/library/m does not support tools"}), "bad_request", "tools"),
])  # fmt: skip
async def test_failures(reply: Any, kind: str, words: str) -> None:
    await check_failure("ollama", reply, kind, words)


async def test_a_line_may_arrive_in_any_pieces() -> None:
    whole = b"".join(json.dumps(line).encode() + b"\n" for line in (said(content="Grüße"), END))
    raw = RawAnswer(tuple(whole[place : place + 1] for place in range(len(whole))))
    async with connected("ollama", [raw]) as (provider, _):
        assert await collect(provider, settings=SETTINGS) == [llm.TextDelta("Grüße"), llm.Finished("stop")]


async def test_the_official_client_reads_our_double_as_we_do() -> None:
    """The other APIs' are in `tests/system/llm`: to import them takes seconds."""
    async with FakeModel([SAID]) as model:
        assert await ollama(model) == READ
