"""One contract, every provider: what `acp_agent.llm.base` promises, over real sockets."""

import json
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.errors import ConfigError, ProviderError
from acp_agent.llm import base as llm
from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel, FakeRequest, RawAnswer, Script, Usage

from .kit import SETTINGS, TOOL, USER, WIRES, Api, calls, collect, connected, failure, listed, make, scripted, texts

over_http = pytest.mark.parametrize("api", WIRES)
everywhere = pytest.mark.parametrize("api", [*WIRES, "scripted"])

GOLDEN = Path(__file__).with_name("golden")


async def answered(api: Any, answer: Answer, tmp_path: Path) -> list[llm.ModelEvent]:
    async with AsyncExitStack() as stack:
        if api == "scripted":
            provider: llm.Provider = scripted(tmp_path / "script.json", [answer])
        else:
            provider, _ = await stack.enter_async_context(connected(api, [answer]))
        return await collect(provider, tools=(TOOL,))


# --- what comes back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("api", "line"), [
    ("chat", b'data: {"error": %b}\n\n'),
    ("messages", b'data: {"type": "content_block_start", "content_block": {"input": %b}}\n\n'),
    ("ollama", b'{"message": {"tool_calls": [{"function": {"arguments": %b}}]}}\n'),
    ("responses", b'data: {"type": "response.output_item.done", "item": %b}\n\n'),
])  # fmt: skip
async def test_an_answer_that_is_nested_without_end_is_an_error_like_any_other(api: Any, line: bytes) -> None:
    async with connected(api, [RawAnswer((line % (b"[" * 10_000 + b"]" * 10_000),))], max_retries=0) as (provider, _):
        assert "nested too deeply" in str(await failure(provider))


@everywhere
async def test_events_come_in_order_and_end_with_one_finished(api: str, tmp_path: Path) -> None:
    answer = Answer(
        thought=("let me ", "see"), text=("Hel", "lo"), tool_calls=(Call("read", {"path": "a"}),),
        usage=Usage(input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=8),
    )  # fmt: skip
    events = await answered(api, answer, tmp_path)
    (call,) = calls(events)
    counted = {"cached_tokens": 64, "reasoning_tokens": 8}
    for name in WIRES[api].untold if api in WIRES else ():
        del counted[name]
    assert events == [
        llm.ThoughtDelta("let me "), llm.ThoughtDelta("see"), llm.TextDelta("Hel"), llm.TextDelta("lo"),
        llm.ToolUse(call.id, "read", '{"path":"a"}'), llm.UsageReport(input_tokens=100, output_tokens=20, **counted),
        llm.Finished("tool_calls", events[-1].opaque if isinstance(events[-1], llm.Finished) else ()),
    ]  # fmt: skip


@everywhere
async def test_parallel_tool_calls_come_whole_in_the_models_order_with_ids_of_their_own(api: str, tmp_path: Path):
    answer = Answer(
        tool_calls=(Call("b", {"n": 1}, pieces=3), Call("a", {"n": 2}, pieces=2), Call("a", {"n": 2}), Call("c"))
    )
    found = calls(await answered(api, answer, tmp_path))
    assert [(call.name, call.arguments) for call in found] == [
        ("b", '{"n":1}'), ("a", '{"n":2}'), ("a", '{"n":2}'), ("c", "{}"),
    ]  # fmt: skip
    assert len({call.id for call in found}) == 4 and all(call.id for call in found)
    found = calls(await answered(api, Answer(tool_calls=(Call("a", id="x"), Call("b", id="x"))), tmp_path))
    assert [call.name for call in found] == ["a", "b"] and len({call.id for call in found}) == 2


@everywhere
async def test_arguments_that_are_not_json_pass_and_nothing_is_an_answer_too(api: str, tmp_path: Path) -> None:
    (call,) = calls(await answered(api, Answer(tool_calls=(Call("a", '{"path": "x'),)), tmp_path))
    assert call.arguments == '{"path": "x'
    assert await answered(api, Answer(usage=None), tmp_path) == [llm.Finished("stop")]


@over_http
@pytest.mark.parametrize(("answer", "reason"), [
    (Answer(text="a"), "stop"), (Answer(tool_calls=(Call("a"),)), "tool_calls"),
    (Answer(text="a", tool_calls=(Call("a"),)), "tool_calls"), (Answer(text="a", finish="length"), "length"),
    (Answer(tool_calls=(Call("a", '{"b'),), finish="length"), "length"),
    (Answer(text="a", finish="content_filter"), "refusal"), (Answer(refusal="I will not."), "refusal"),
])  # fmt: skip
async def test_finish_reasons(api: Api, answer: Answer, reason: str, tmp_path: Path) -> None:
    if not WIRES[api].refuses and reason == "refusal":
        reason = "stop"
    assert (await answered(api, answer, tmp_path))[-1] == llm.Finished(reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("api", [api for api, wire in WIRES.items() if wire.explains])
async def test_the_words_of_a_refusal_are_text(api: Api, tmp_path: Path) -> None:
    assert texts(await answered(api, Answer(refusal="I will not."), tmp_path)) == ["I will not."]


@over_http
async def test_deltas_arrive_at_once_and_one_connection_serves_call_after_call(api: Api) -> None:
    async with connected(api, [Answer(text=("first", "second"), hang_after=1)]) as (provider, model):
        stream = provider.stream((USER,), (), SETTINGS)
        assert await anext(stream) == llm.TextDelta("first")
        model.release()
        assert texts([event async for event in stream]) == ["second"]
    async with connected(api, ["one", "two", "three"]) as (provider, model):
        for expected in ("one", "two", "three"):
            assert texts(await collect(provider)) == [expected]
        assert model.connections == 1


@over_http
async def test_concurrent_streams_do_not_mix(api: Api) -> None:
    def script(body: dict[str, Any]) -> Answer:
        return Answer(text=(body["model"], "-", body["model"]))

    seen: dict[str, str] = {}
    async with connected(api, script) as (provider, _):

        async def run(model: str) -> None:
            seen[model] = "".join(texts(await collect(provider, settings=llm.ModelSettings(model=model))))

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(run, f"m{number}")
    assert seen == {f"m{number}": f"m{number}-m{number}" for number in range(8)}


# --- what is sent ------------------------------------------------------------------------------------------------


async def sent(
    api: Api, *, messages: Any = (USER,), tools: Any = (), settings: llm.ModelSettings = SETTINGS
) -> FakeRequest:
    async with connected(api, ["ok"]) as (provider, model):
        await collect(provider, messages, tools, settings)
        return model.requests[0]


@over_http
async def test_no_tools_means_no_tools_field(api: Api) -> None:
    assert not {"tools", "toolConfig"} & (await sent(api)).body.keys()
    body = (await sent(api, tools=(TOOL,))).body
    assert len(body.get("toolConfig", body)["tools"]) == 1


@over_http
async def test_the_key_travels_in_its_header_and_a_configured_one_wins(api: Api) -> None:
    headers = (await sent(api)).headers
    name, form = WIRES[api].key_header
    assert headers[name] == form.format(key="sk-test")
    async with connected(api, ["ok"], api_key=None, headers={"authorization": "Basic abc"}) as (provider, model):
        await collect(provider)
        assert model.requests[0].headers["authorization"] == "Basic abc"


@pytest.mark.parametrize("api", [api for api in WIRES if not WIRE_APIS[api].keyless])
async def test_without_a_key_no_authorization_is_sent(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    async with connected(api, ["ok"], api_key=None, headers={"X-Team": "blue"}) as (provider, model):
        await collect(provider)
        assert not {"authorization", "x-api-key"} & model.requests[0].headers.keys()
        assert model.requests[0].headers["x-team"] == "blue"


SENT: dict[str, dict[str, Any]] = {
    "an image of the user": {
        "messages": (llm.UserMessage((llm.TextPart("look"), llm.ImagePart("image/png", "iVBORw0="))),),
    },
    "an image of a tool stays with its call, and the results stay together": {
        "messages": (
            USER, llm.AssistantMessage(tool_calls=(llm.ToolUse("c1", "shot", "{}"), llm.ToolUse("c2", "ls", "{}"))),
            llm.ToolMessage("c1", "shot", (llm.TextPart("done"), llm.ImagePart("image/png", "iVBORw0="))),
            llm.ToolMessage("c2", "ls", (llm.TextPart("a.txt"),)), llm.UserMessage((llm.TextPart("and?"),)),
        ),
    },
    "a call and its result have the same id": {
        "messages": (
            USER, llm.AssistantMessage(text="Looking.", tool_calls=(llm.ToolUse("c1", "read", '{"path":"a"}'),)),
            llm.ToolMessage("c1", "read", (llm.TextPart("content"),)),
        ),
        "tools": (TOOL,),
    },
    "a level of thought and a limit": {
        "settings": llm.ModelSettings(model="m", system="You are.", thought_level="high", max_output_tokens=500),
    },
}  # fmt: skip


@over_http
async def test_what_is_sent_is_the_golden_request(api: Api) -> None:
    bodies = {name: (await sent(api, **given)).body for name, given in SENT.items()}
    file = GOLDEN / f"{api}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(json.dumps(bodies, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    assert bodies == json.loads(file.read_text(encoding="utf-8"))


@over_http
async def test_lone_surrogates_in_the_history_are_replaced(api: Api) -> None:
    broken = "a\ud83d"
    messages = (
        llm.UserMessage((llm.TextPart(broken),)),
        llm.AssistantMessage(text=broken, tool_calls=(llm.ToolUse("c1", "read", '{"path":"' + broken + '"}'),)),
        llm.ToolMessage("c1", "read", (llm.TextPart(broken),)),
    )
    request = await sent(api, messages=messages, settings=llm.ModelSettings(model="m", system=broken))
    assert "a�" in str(request.body)


@over_http
@pytest.mark.parametrize("level", [None, "off"])
async def test_without_a_thought_level_no_effort_is_sent(api: Api, level: Any) -> None:
    body = (await sent(api, settings=llm.ModelSettings(model="m", thought_level=level))).body
    assert "reasoning_effort" not in body and "reasoning" not in body


# --- trying again ------------------------------------------------------------------------------------------------


@over_http
@pytest.mark.parametrize("obstacle", [
    Failure(429, {"error": {"message": "slow down"}}, {"Retry-After-Ms": "2"}),
    Failure(500, {"error": {"message": "oops"}}), Failure(503, "Loading model"),
    Failure(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    Answer(text="never seen", drop_after=0),
], ids=["rate limit", "server error", "loading", "overload", "broken before the first event"])  # fmt: skip
async def test_a_passing_failure_is_tried_again(api: Api, obstacle: Any) -> None:
    async with connected(api, [obstacle, obstacle, "at last"]) as (provider, model):
        assert texts(await collect(provider)) == ["at last"]
        assert len(model.requests) == 3


@over_http
async def test_retries_end_and_a_wait_longer_than_the_bound_is_reported_at_once(api: Api) -> None:
    async with connected(api, [Failure(500, {"error": {"message": "oops"}})] * 9, max_retries=2) as (provider, model):
        error = await failure(provider)
        assert (error.kind, error.status, len(model.requests)) == ("server", 500, 3)
    script: Script = [Failure(429, {"error": {"message": "slow down"}}, {"Retry-After": "3600"}), "never"]
    async with connected(api, script) as (provider, model):
        error = await failure(provider)
        assert (error.kind, error.retry_after, len(model.requests)) == ("rate_limit", 3600.0, 1)


@over_http
async def test_after_the_first_event_nothing_is_tried_again(api: Api) -> None:
    script: Script = [Answer(text=("Hel", "lo"), drop_after=1), "never"]
    async with connected(api, script) as (provider, model):
        seen: list[llm.ModelEvent] = []
        error = await failure(provider, seen)
        assert seen == [llm.TextDelta("Hel")]
        assert (error.kind, len(model.requests)) == ("network", 1)


# --- failing -----------------------------------------------------------------------------------------------------


@over_http
@pytest.mark.parametrize(("status", "error", "kind"), [
    (401, {"message": "Incorrect API key provided.", "code": "invalid_api_key"}, "auth"),
    (403, {"message": "Country, region, or territory not supported"}, "region"),
    (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}, "rate_limit"),
    (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}, "quota"),
    (400, {"message": "Too long.", "code": "context_length_exceeded"}, "context_too_long"),
    (400, {"message": "Filtered.", "code": "content_filter"}, "refusal"),
    (404, {"message": "The model `x` does not exist", "code": "model_not_found"}, "not_found"),
    (400, {"message": "Unknown parameter: 'x'"}, "bad_request"), (502, {"message": "Bad gateway"}, "server"),
])  # fmt: skip
async def test_one_clear_error_per_kind_and_what_cannot_pass_is_not_tried_again(api: Api, status, error, kind: str):
    passes = {"max_retries": 0} if kind in ("rate_limit", "server") else {}
    async with connected(api, [Failure(status, {"error": error}), "never"], **passes) as (provider, model):
        raised = await failure(provider)
        assert len(model.requests) == 1
        assert (raised.kind, raised.status) == (kind, status) and str(raised).startswith("fake ")
        assert error["message"] in str(raised)


@over_http
async def test_a_server_that_is_not_there_and_a_key_that_http_cannot_carry_are_errors(api: Api) -> None:
    async with FakeModel() as model:
        base_url = model.base_url
    provider = make(api, base_url, max_retries=1)
    error = await failure(provider)
    await provider.aclose()
    assert error.kind == "network"
    assert base_url.removesuffix("/v1") in str(error)
    async with connected(api, ["never"], api_key="sk-\n“quoted”") as (provider, model):
        assert (await failure(provider)).kind == "auth"
        assert model.requests == []


@over_http
@pytest.mark.parametrize("answer", [Answer(text="a", hang_before=True), Answer(text=("a", "b"), hang_after=1)])
async def test_silence_ends_in_a_timeout(api: Api, answer: Answer) -> None:
    async with connected(api, [answer, "never"], idle_timeout=0.2) as (provider, model):
        assert ((await failure(provider)).kind, len(model.requests)) == ("timeout", 1)
        await model.answer_closed()


@over_http
@pytest.mark.parametrize("base_url", ["ftp://localhost/v1", "http://[::1", "http://localhost:port/v1"])
async def test_an_unusable_base_url_is_a_config_error(api: Api, base_url: str) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        make(api, base_url)


# --- cancelling and closing --------------------------------------------------------------------------------------


@over_http
@pytest.mark.parametrize("answer", [Answer(text="a", hang_before=True), Answer(text=("a", "b"), hang_after=1)])
async def test_cancelling_closes_the_connection(api: Api, answer: Answer) -> None:
    async with connected(api, [answer, "alive"]) as (provider, model):
        async with anyio.create_task_group() as group:
            group.start_soon(collect, provider)
            await model.wait_for_request()
            group.cancel_scope.cancel()
        await model.answer_closed()
        assert texts(await collect(provider)) == ["alive"]


@over_http
async def test_closing_the_stream_closes_the_connection(api: Api) -> None:
    async with connected(api, [Answer(text=("a", "b"), hang_after=1)]) as (provider, model):
        stream: Any = provider.stream((USER,), (), SETTINGS)
        assert await anext(stream) == llm.TextDelta("a")
        await stream.aclose()
        await model.answer_closed()


@everywhere
async def test_aclose_may_be_called_twice(api: Any, tmp_path: Path) -> None:
    provider = scripted(tmp_path / "s.json", []) if api == "scripted" else make(api, "http://127.0.0.1:1")
    await provider.aclose()
    await provider.aclose()


# --- models ------------------------------------------------------------------------------------------------------


@over_http
async def test_models_are_the_configured_ones_or_asked_from_the_server(api: Api) -> None:
    provider = make(api, "http://127.0.0.1:1", models=("a", "b"))
    assert await provider.models() == [llm.ModelInfo("a"), llm.ModelInfo("b")]
    await provider.aclose()
    assert [info.id for info in await listed(api, ["a", "b"])] == ["a", "b"]


@over_http
@pytest.mark.parametrize(("reply", "kind"), [
    (Failure(401, {"error": {"message": "no"}}), "auth"), (Failure(404, "<html></html>"), "not_found"),
    (Failure(200, "<html></html>"), "server"), (Failure(200, "not json"), "server"),
    (Failure(200, {"data": None}), "server"), (Failure(200, 7), "server"),
])  # fmt: skip
async def test_a_list_of_models_that_cannot_be_had_is_a_provider_error(api: Api, reply: Failure, kind: str) -> None:
    with pytest.raises(ProviderError) as raised:
        await listed(api, reply, max_retries=0)
    assert raised.value.kind == kind
