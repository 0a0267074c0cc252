"""What only the Messages API has: signed thoughts, breakpoints of the cache, its own events and refusals."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.llm import base as llm
from acp_agent.llm.messages_answer import MessagesAnswer
from acp_agent.llm.messages_request import CONTINUED, MessagesEncoder, manner_of
from acp_agent.loop.memory.history import History
from acp_agent.testing.fake_messages import PromptCache, refusal
from acp_agent.testing.fake_model import Answer, Call, Failure, RawAnswer
from tests.nightly import examples
from tests.tables import table

from .kit import TOOL, USER, calls, check_failure, collect, connected, listed, text_block, texts, thoughts, turn

HEADERS = {"anthropic-version": "2023-06-01"}
THINKER = llm.ModelSettings("claude-opus-5", thought_level="high")
BUDGETED = llm.ModelSettings("claude-sonnet-4-5", thought_level="low")
ADAPTIVE = {"type": "adaptive", "display": "summarized"}
RESULT = llm.ToolMessage("call_1_0", "read", (llm.TextPart("content"),))


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def start(index: int | None, kind: str, **fields: Any) -> dict[str, Any]:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: int | None, kind: str, **fields: Any) -> dict[str, Any]:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def text(piece: str, index: int | None = 0) -> dict[str, Any]:
    return delta(index, "text_delta", text=piece)


def arguments(piece: str, index: int | None = 0) -> dict[str, Any]:
    return delta(index, "input_json_delta", partial_json=piece)


def ending(reason: str = "end_turn", **fields: Any) -> dict[str, Any]:
    return event("message_delta", delta={"stop_reason": reason, **fields})


def fold(*events: Any) -> list[llm.ModelEvent]:
    answer = MessagesAnswer("claude")
    out: list[llm.ModelEvent] = []
    for one in events:
        out += answer.feed(one if isinstance(one, bytes) else json.dumps(one).encode())
    assert answer.ended
    return out + answer.finish()


def encode(
    messages: Sequence[llm.Message], settings: llm.ModelSettings = THINKER, encoder: MessagesEncoder | None = None
) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((encoder or MessagesEncoder()).encode(messages, (TOOL,), settings))
    return body


def blocks(body: dict[str, Any], number: int) -> list[str]:
    return [block["type"] for block in body["messages"][number]["content"]]


def thought(model: str, signature: str = "sig_1", after: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": signature, "after": after, "_from": model}


def called(*opaque: dict[str, Any], said: str = "") -> llm.AssistantMessage:
    return llm.AssistantMessage(said, (llm.ToolUse("call_1_0", "read", "{}"),), opaque=opaque)


# --- the request -------------------------------------------------------------------------------------------------


async def test_a_whole_request() -> None:
    messages = (
        llm.UserMessage((llm.TextPart("look"), llm.ImagePart("image/png", "AAAA"), llm.DocumentPart("JVBE", "a.pdf"))),
        called(thought("claude-opus-5"), said="Looking."), llm.ToolMessage("call_1_0", "read", ()),
        llm.UserMessage((llm.TextPart("and?"), llm.ImagePart("image/bmp", "AAAA"), llm.TextPart(" "))),
    )  # fmt: skip
    asked = llm.ModelSettings("claude-opus-5", "Be brief.", "low", max_output_tokens=9000)
    mark = {"cache_control": {"type": "ephemeral"}}
    async with connected("messages", ["ok"]) as (provider, model):
        await collect(provider, messages, (TOOL, TOOL), asked)
        request = model.requests[0]
    assert request.path == "/v1/messages" and request.headers["anthropic-version"] == "2023-06-01"
    tool = {"name": "read", "description": "Reads a file.", "input_schema": TOOL.parameters}
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}
    assert request.body == {
        "model": "claude-opus-5", "max_tokens": 9000, "stream": True, "thinking": ADAPTIVE,
        "output_config": {"effort": "low"}, "tools": [tool, tool | mark], "system": [text_block("Be brief.") | mark],
        "messages": [
            turn(
                "user", text_block("look"),
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "document", "source": source, "title": "a.pdf"} | mark,
            ),
            turn(
                "assistant", {"type": "thinking", "thinking": "hm", "signature": "sig_1"}, text_block("Looking."),
                {"type": "tool_use", "id": "call_1_0", "name": "read", "input": {}},
            ),
            turn(
                "user", {"type": "tool_result", "tool_use_id": "call_1_0", "content": [text_block("(no output)")]},
                text_block("and?"), text_block("[image/bmp was left out: this API does not accept it.]") | mark,
            ),
        ],
    }  # fmt: skip


def budget(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


@table(("model", "level", "fields"), [
    ("claude-opus-5", None, {}), ("claude-opus-5", "off", {"thinking": {"type": "disabled"}}),
    ("claude-sonnet-4-6", "high", {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}),
    ("claude-sonnet-4-5-20250929", "low", budget(4096)), ("claude-opus-4-20250514", "high", budget(24576)),
    ("claude-3-7-sonnet-20250219", "medium", budget(12288)), ("glm-4.6", "low", budget(4096)),
])  # fmt: skip
def test_thinking_is_asked_for_as_the_model_takes_it(model: str, level: Any, fields: dict[str, Any]) -> None:
    body = encode([USER], llm.ModelSettings(model, thought_level=level))
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == fields


@table(("message", "asked", "kept"), [
    (called(thought("claude-opus-5")), THINKER, True),
    (called(thought("claude-opus-5")), llm.ModelSettings("claude-opus-5"), True),
    (called(thought("claude-opus-4-8")), THINKER, False),
    (called(thought("claude-opus-5")), llm.ModelSettings("claude-opus-5", thought_level="off"), False),
    (called(thought("claude-sonnet-4-5")), BUDGETED, True),
    (called(thought("claude-sonnet-4-5")), llm.ModelSettings("claude-sonnet-4-5"), False),
    (called({"type": "reasoning", "encrypted_content": "x"}), THINKER, False),
])  # fmt: skip
def test_thoughts_go_back_if_the_model_thinks(message: llm.AssistantMessage, asked: llm.ModelSettings, kept: bool):
    body = encode([USER, message, RESULT], asked)
    assert ("thinking" in blocks(body, 1)) is kept and refusal(body, HEADERS) is None


def test_thoughts_stand_where_they_came() -> None:
    first, second = thought("claude-opus-5"), thought("claude-opus-5", "sig_2", after=(4, 1))
    message = llm.AssistantMessage(
        "One.Two.", (llm.ToolUse("a", "read", "{}"), llm.ToolUse("b", "read", "{}")), opaque=(first, second)
    )
    body = encode([USER, message, *[llm.ToolMessage(name, "read", ()) for name in "ab"]])
    assert blocks(body, 1) == ["thinking", "text", "tool_use", "thinking", "text", "tool_use"]


def test_no_budget_is_set_in_a_turn_without_a_thought_and_a_history_begins_with_the_user() -> None:
    body = encode([USER, called(), RESULT], BUDGETED)
    assert "thinking" not in body and refusal(body, HEADERS) is None
    later = encode([USER, called(), RESULT, llm.AssistantMessage("Done."), USER], BUDGETED)
    assert later["thinking"]["type"] == "enabled"
    body = encode([llm.AssistantMessage("Hello."), USER])
    assert body["messages"][0]["content"][0]["text"] == CONTINUED


IDS = st.sampled_from(["call_1", "functions.bash:0", "a b", "ü", "x" * 200, "call|fc_1"])
WORDS = st.sampled_from(["", " ", "\n", "hello", "\ud83d"])
PARTS = st.one_of(
    st.builds(llm.TextPart, WORDS),
    st.sampled_from([llm.ImagePart("image/png", "AA"), llm.AudioPart("audio/wav", "AA"), llm.DocumentPart("AA")]),
)
THOUGHTS = st.builds(
    thought, st.sampled_from(["claude-opus-5", "claude-sonnet-4-5", "gpt-5"]), st.sampled_from(["sig_1", "sig_2"]),
    st.tuples(st.integers(0, 9), st.integers(0, 3)),
)  # fmt: skip
USES = st.lists(
    st.builds(
        llm.ToolUse, IDS, st.sampled_from(["read", "no such tool!", ""]), st.sampled_from(["", "{}", "[1]", '{"a'])
    ),
    max_size=3, unique_by=lambda use: use.id,
)  # fmt: skip
MESSAGES = st.lists(
    st.one_of(
        st.builds(llm.UserMessage, st.lists(PARTS, max_size=3).map(tuple)),
        st.builds(llm.AssistantMessage, WORDS, USES.map(tuple), opaque=st.lists(THOUGHTS, max_size=2).map(tuple)),
        st.builds(llm.ToolMessage, IDS, st.just("read"), st.lists(PARTS, max_size=2).map(tuple)),
    ),
    max_size=8,
)


@given(
    messages=MESSAGES,
    model=st.sampled_from(["claude-opus-5", "claude-opus-4-8", "claude-sonnet-4-5", "claude-opus-5-5", "kimi-k2"]),
    level=st.sampled_from([None, "off", "low", "high"]), most=st.sampled_from([None, 100, 2000]),
)  # fmt: skip
@settings(max_examples=examples(200))
def test_no_history_makes_a_refused_request(messages: list[llm.Message], model: str, level: Any, most: int | None):
    asked = llm.ModelSettings(model, "Be brief.", level, max_output_tokens=most)
    history = History([*messages, USER])
    encoder = MessagesEncoder()
    answer = refusal(encode(history.messages, asked, encoder), HEADERS)
    if answer is not None:
        words = answer.body["error"]["message"]
        assert "thinking.type.disabled" in words and encoder.learn(model, encoder.manner(model), [], words)
        assert refusal(encode(history.messages, asked, encoder), HEADERS) is None


# --- what is learnt from refusals --------------------------------------------------------------------------------


@table(("model", "level", "words", "fields"), [
    ("claude-new", "low", "adaptive thinking is not supported on this model", {"thinking": "enabled"}),
    ("glm-9", "low", '"thinking.type.enabled" is not supported for this model', {"thinking": "adaptive"}),
    ("claude-opus-5-5", "off", '"thinking.type.disabled" is not supported for this model.', {"effort": "low"}),
    ("claude-opus-5", "low", "output_config: Extra inputs are not permitted", {"thinking": "adaptive"}),
    ("m", None, "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens", {"most": 8192}),
    ("m", None, "tools.0.custom.cache_control: Extra inputs are not permitted", {"marks": 0}),
])  # fmt: skip
def test_what_a_model_does_not_take_is_not_sent_again(model: str, level: Any, words: str, fields: Any) -> None:
    encoder, asked = MessagesEncoder(), llm.ModelSettings(model, "Be brief.", level)
    before = encode([USER], asked, encoder)
    assert encoder.learn(model, encoder.manner(model), [USER], words)
    after = encode([USER], asked, encoder)
    assert after != before
    seen = {
        "thinking": after.get("thinking", {}).get("type"), "effort": after.get("output_config", {}).get("effort"),
        "most": after["max_tokens"], "marks": json.dumps(after).count("cache_control"),
    }  # fmt: skip
    assert seen | fields == seen
    assert not encoder.learn(model, encoder.manner(model), [USER], words), "once is enough"


def test_a_configured_limit_holds_until_the_server_names_a_lower_one() -> None:
    encoder, asked = MessagesEncoder(), llm.ModelSettings("claude-opus-5", max_output_tokens=100_000)
    assert encode([USER], asked, encoder)["max_tokens"] == 100_000
    words = "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens"
    assert encoder.learn("claude-opus-5", encoder.manner("claude-opus-5"), [USER], words)
    assert encode([USER], asked, encoder)["max_tokens"] == 8192


async def test_what_the_server_refused_once_is_not_sent_from_then_on() -> None:
    settings_ = llm.ModelSettings("claude-next", thought_level="low")
    async with connected("messages", ["one", "two"]) as (provider, model):
        assert texts(await collect(provider, settings=settings_)) == ["one"]
        assert texts(await collect(provider, settings=settings_)) == ["two"]
        assert [request.body["thinking"]["type"] for request in model.requests] == ["adaptive", "enabled", "enabled"]
    history: list[llm.Message] = [USER, called(thought("claude-opus-5", "broken")), RESULT]
    async with connected("messages", ["one", "two"]) as (provider, model):
        assert texts(await collect(provider, history, settings=THINKER)) == ["one"]
        newer = called(thought("claude-opus-5", "sig_9"))
        assert texts(await collect(provider, [*history, newer, RESULT], settings=THINKER)) == ["two"]
        assert [str(request.body).count("'signature'") for request in model.requests] == [1, 0, 1]


# --- the answer --------------------------------------------------------------------------------------------------

HELLO = [start(0, "text", text=""), text("hello"), event("content_block_stop", index=0), ending()]
HELLO.append(event("message_stop"))
RAW_TEXT = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}'
N = [("t", '{"n":1}')]


def use(name: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return start(index, "tool_use", name=name, **fields)


@table(("events", "said", "made"), [
    (HELLO, "hello", []), ([event("ping"), *HELLO], "hello", []), ([*HELLO, text(" more"), b"nonsense"], "hello", []),
    ([event("hologram", delta={"type": "?"}), *HELLO], "hello", []), ([text("hello"), ending()], "hello", []),
    ([start(None, "text"), text("hel", None), text("lo", None), ending()], "hello", []),
    ([start(0, "text", text="hel"), text("lo"), ending()], "hello", []),
    ([start(0, "text"), delta(0, "citations_delta", citation={}), text("hello"), ending()], "hello", []),
    ([start(0, "text"), text("a"), start(0, "text"), text("b"), ending()], "ab", []),
    ([start(0, "server_tool_use", id="s", name="x"), arguments('{"q":1}'), *HELLO], "hello", []),
    ([start(0, "web_search_tool_result", content=[{"type": "x"}]), *HELLO], "hello", []),
    ([use("t", id="a", input={}), arguments('{"n"'), arguments(":1}"), ending()], "", N),
    ([use("t", id="a", input={"n": 1}), ending()], "", N), ([use("t", id="a", input={}), ending()], "", [("t", "")]),
    ([use("t", id="a"), arguments('{"n":'), ending("max_tokens")], "", [("t", '{"n":')]),
    ([use("t", id="a"), use("u", 1, id="a"), arguments('{"n":2}', 1), arguments('{"n":1}'), ending()],
     "", [*N, ("u", '{"n":2}')]),
    ([use("t"), arguments("1"), use("u"), arguments("2"), ending()], "", [("t", "1"), ("u", "2")]),
    ([arguments('{"n":1}'), *HELLO], "hello", []), ([start(0, "tool_use", id="a"), *HELLO], "hello", []),
    ([{**start(0, "text"), "index": "0"}, {**text("hello"), "index": "0"}, ending()], "hello", []),
    ([start(0, "text", text=None), text("hello"), {**ending(), "usage": None}], "hello", []),
    ([event("message", content=[text_block("hello")], stop_reason="end_turn")], "hello", []),
    ([event("message", content=[{"type": "tool_use", "id": "a", "name": "t", "input": {"n": 1}}])], "", N),
    (HELLO[:-1] + [b"[DONE]"], "hello", []), ([RAW_TEXT % b"a\xff", ending()], "a�", []),
    ([RAW_TEXT % b"a\\ud83d", RAW_TEXT % b"\\ude00", ending()], "a😀", []),
])  # fmt: skip
def test_streams_as_servers_send_them(events: list[Any], said: str, made: list[tuple[str, str]]) -> None:
    folded = fold(*events)
    assert "".join(texts(folded)) == said
    assert [(use.name, use.arguments) for use in calls(folded)] == made
    ids = [use.id for use in calls(folded)]
    assert all(ids) and len(set(ids)) == len(ids)
    assert isinstance(folded[-1], llm.Finished)


@table(("events", "reason"), [
    ([ending("end_turn")], "stop"), ([ending("stop_sequence")], "stop"), ([ending("max_tokens")], "length"),
    ([ending("model_context_window_exceeded")], "length"), ([ending("pause_turn")], "length"),
    ([ending("refusal")], "refusal"), ([ending("something new")], "stop"),
    ([use("t", id="a"), ending("tool_use")], "tool_calls"), ([use("t", id="a"), ending("end_turn")], "tool_calls"),
    ([use("t", id="a"), ending("max_tokens")], "length"),
])  # fmt: skip
def test_stop_reasons(events: list[Any], reason: Any) -> None:
    assert fold(*events)[-1] == llm.Finished(reason)


def test_the_explanation_of_a_refusal_follows_what_was_said() -> None:
    stop = ending("refusal", stop_details={"type": "refusal", "explanation": "Not that."})
    assert "".join(texts(fold(text("Well"), stop))) == "Well\n\nNot that."


def test_a_thought_is_kept_only_with_its_signature() -> None:
    pieces = [delta(0, "thinking_delta", thinking="h"), delta(0, "thinking_delta", thinking="m")]
    signed = [delta(0, "signature_delta", signature="ab"), delta(0, "signature_delta", signature="c")]
    folded = fold(
        start(0, "thinking", thinking="", signature=""), *pieces, *signed, start(1, "text"), text("a", 1), ending()
    )
    assert thoughts(folded) == ["h", "m"]
    kept = {"type": "thinking", "thinking": "hm", "signature": "abc", "after": (0, 0), "_from": "claude"}
    assert folded[-1] == llm.Finished("stop", (kept,))
    assert fold(*pieces, ending())[-1] == llm.Finished("stop")
    assert fold(text("a"), start(1, "redacted_thinking", data="zzz"), ending())[-1] == llm.Finished(
        "stop", ({"type": "redacted_thinking", "data": "zzz", "after": (1, 0), "_from": "claude"},)
    )


def began(**usage: int) -> dict[str, Any]:
    return event("message_start", message={"usage": usage})


def used(**usage: Any) -> dict[str, Any]:
    return {**ending(), "usage": usage}


@table(("events", "report"), [
    ([began(input_tokens=3, output_tokens=1), used(output_tokens=9)], llm.UsageReport(3, 9)),
    (
        [
            began(input_tokens=3, cache_read_input_tokens=100, cache_creation_input_tokens=20, output_tokens=1),
            used(output_tokens=9, output_tokens_details={"thinking_tokens": 4}),
        ],
        llm.UsageReport(123, 9, cached_tokens=100, reasoning_tokens=4, cache_write_tokens=20),
    ),
    ([used(input_tokens=5, output_tokens=2.0)], llm.UsageReport(5, 2)),
    ([event("message", content=[], usage={"input_tokens": 5, "output_tokens": 2})], llm.UsageReport(5, 2)),
])  # fmt: skip
def test_usage_counts_all_input_whatever_the_cache_did(events: list[Any], report: llm.UsageReport) -> None:
    assert fold(*events)[-2] == report


# --- over a socket -----------------------------------------------------------------------------------------------


def wire(*events: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)


def failing(kind: str, message: str) -> dict[str, Any]:
    return event("error", error={"type": kind, "message": message})


@pytest.mark.parametrize(("reply", "kind", "said"), [
    (RawAnswer(wire(failing("overloaded_error", "Overloaded"))), "server", "Overloaded"),
    (RawAnswer(wire(failing("rate_limit_error", "slow"))), "rate_limit", "slow"),
    (RawAnswer(wire(failing("api_error", "oops"))), "server", "oops"),
    (RawAnswer((b"data: what is this\n\n",)), "server", "what is this"),
    (RawAnswer((b"<html>hello</html>",)), "not_found", "a web page"),
    (RawAnswer(wire(event("message_start", message={}), text("a"))), "network", "ended early"),
    # A refusal is one sentence with what to do.
    (Failure(400, failing("invalid_request_error", "Your credit balance is too low")), "quota", "credit"),
    (Failure(401, failing("authentication_error", "invalid x-api-key")), "auth", "key"),
    (Failure(403, failing("permission_error", "no")), "auth", "permissions"),
    (Failure(404, failing("not_found_error", "model: x")), "not_found", "the model"),
    (Failure(413, failing("request_too_large", "big")), "context_too_long", "reads more"),
    (Failure(400, failing("invalid_request_error", "prompt is too long: 2 > 1")), "context_too_long", "reads more"),
])  # fmt: skip
async def test_errors(reply: Any, kind: str, said: str) -> None:
    await check_failure("messages", reply, kind, said)


async def test_an_overload_before_the_first_words_and_a_break_after_the_last_are_forgiven() -> None:
    overload = RawAnswer(wire(failing("overloaded_error", "Overloaded")))
    async with connected("messages", [overload, "at last"]) as (provider, model):
        assert texts(await collect(provider)) == ["at last"]
        assert len(model.requests) == 2
    chunks = (*wire(text("a"), ending()), b"never")
    async with connected("messages", [RawAnswer(chunks, drop_after=2)]) as (provider, _):
        assert await collect(provider) == [llm.TextDelta("a"), llm.Finished("stop")]


async def test_a_turn_with_thoughts_goes_back_as_it_came() -> None:
    first = Answer(thought=("h", "m"), encrypted="zzz", text="Looking.", tool_calls=(Call("read", {"path": "a"}),))
    async with connected("messages", [first, "done"]) as (provider, model):
        events = await collect(provider, settings=THINKER)
        finished = events[-1]
        assert isinstance(finished, llm.Finished) and events[0] == llm.ThoughtDelta("h")
        stored = llm.AssistantMessage(
            "".join(texts(events)), tuple(calls(events)), "".join(thoughts(events)), finished.opaque
        )
        result = llm.ToolMessage(calls(events)[0].id, "read", (llm.TextPart("content"),))
        assert texts(await collect(provider, [USER, stored, result], settings=THINKER)) == ["done"]
        assert model.requests[1].body["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "hm", "signature": "sig_1"}, {"type": "redacted_thinking", "data": "zzz"},
            text_block("Looking."), {"type": "tool_use", "id": "call_1_0", "name": "read", "input": {"path": "a"}},
        ]  # fmt: skip


async def test_models_come_with_what_they_take_and_are_known_by_their_names() -> None:
    able = {"image_input": {"supported": True}, "pdf_input": {"supported": False}}
    entries = [{"id": "a", "max_input_tokens": 1_000_000, "capabilities": able}]
    assert await listed("messages", entries) == [llm.ModelInfo("a", 1_000_000, ("image",))]
    assert manner_of("anthropic/claude-opus-4.8").adaptive and not manner_of("claude-haiku-4-5-20251001").adaptive


# --- the fake itself ---------------------------------------------------------------------------------------------


def said(*content: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [turn("user", *content)]}


@table(("change", "because"), [
    ({"max_tokens": None}, "max_tokens"), ({"messages": []}, "at least one message"),
    ({"messages": [turn("assistant", text_block("a"))]}, "alternate"), (said(text_block("")), "non-whitespace"),
    (said(), "non-empty"), ({"system": [text_block("a") | {"cache_control": {}}] * 5}, "maximum of 4"),
    (said({"type": "tool_result", "tool_use_id": "x", "content": []}), "unexpected"),
])  # fmt: skip
def test_the_fake_refuses_what_the_real_server_refuses(change: dict[str, Any], because: str) -> None:
    good = {"model": "claude-opus-5", "max_tokens": 1, **said(text_block("a"))}
    assert refusal(good, HEADERS) is None
    answer = refusal(good | change, HEADERS)
    assert answer is not None and because in answer.body["error"]["message"]


def test_the_fakes_cache_looks_twenty_blocks_back() -> None:
    def ask(cache: PromptCache, size: int) -> tuple[int, int, int]:
        content: list[dict[str, Any]] = [text_block("x" * 40) for _ in range(size)]
        content[-1]["cache_control"] = {"type": "ephemeral"}
        return cache.count({"model": "m", **said(*content)})

    cache = PromptCache()
    assert ask(cache, 5)[1] == 0 and ask(cache, 24)[1] > 0
    assert ask(cache, 45)[1] == 0, "too far from the last one"
