"""What servers with the chat-completions API really send, and the required results."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from acp_agent.config.model import ProviderOptions
from acp_agent.config.provider_rows import table as known_servers
from acp_agent.llm import base as llm
from acp_agent.llm.chat import ChatProvider
from acp_agent.llm.chat_answer import ChatAnswer
from acp_agent.llm.chat_request import Dialect, RequestEncoder
from acp_agent.llm.choose import choose_api, is_loopback
from acp_agent.testing.fake_model import Answer, Call, Failure, RawAnswer
from tests.tables import table

from .kit import (
    SETTINGS,
    TOOL,
    TOOL_SENT,
    USER,
    Api,
    calls,
    check_failure,
    collect,
    connected,
    failure,
    listed,
    text_block,
    texts,
    thoughts,
    turn,
)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(name: str | None = None, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**fields, "function": function}


def fold(*chunks: Any) -> list[llm.ModelEvent]:
    """The events of an answer made of these chunks, followed by `[DONE]`. Bytes are sent as they stand."""
    answer = ChatAnswer()
    events: list[llm.ModelEvent] = []
    for chunk in chunks:
        events += answer.feed(chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode())
    events += answer.feed(b"[DONE]")
    assert answer.done and answer.ended
    return events + answer.finish()


def shown(events: Sequence[llm.ModelEvent]) -> list[tuple[str, str]]:
    return [(use.name, use.arguments) for use in calls(events)]


# --- tool calls --------------------------------------------------------------------------------------------------


def called(*made: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return delta(finish, tool_calls=list(made))


A, B = '{"n":1}', '{"n":2}'
TOOL_CALLS: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {
    "whole calls in one chunk": (
        [called(call("a", "{}", index=0, id="x"), call("b", A, index=1, id="y"))], [("a", "{}"), ("b", A)],
    ),
    "no index": ([called(call("a", "{}", id="x"), call("b", "{}", id="y"))], [("a", "{}"), ("b", "{}")]),
    "no index, no id, the same tool twice": ([called(call("a", A), call("a", B))], [("a", A), ("a", B)]),
    "every call has index 0": (
        [called(call("a", "{}", index=0, id="x")), called(call("b", "{}", index=0, id="y"))],
        [("a", "{}"), ("b", "{}")],
    ),
    "index 0 and no ids": ([called(call("a", A, index=0)), called(call("a", B, index=0))], [("a", A), ("a", B)]),
    "fragments without index": (
        [called(call("a", "", id="x")), called(call(arguments='{"n"')), called(call(arguments=":1}"))], [("a", A)],
    ),
    "fragments known by id only": (
        [
            called(call("a", "", id="x"), call("b", "", id="y")), called(call(arguments=A, id="x")),
            called(call(arguments=B, id="y")),
        ],
        [("a", A), ("b", B)],
    ),
    "name and id repeated in each fragment": (
        [called(call("a", piece, index=0, id="x")) for piece in ('{"n"', ":1}", "")], [("a", A)],
    ),
    "a new id in each fragment": (
        [called(call("a", '{"n"', index=0, id="x1")), called(call(arguments=":1}", index=0, id="x2"))], [("a", A)],
    ),
    "interleaved fragments": (
        [
            called(call("a", "", index=0, id="x")), called(call("b", "", index=1, id="y")),
            called(call(arguments=A, index=0)), called(call(arguments=B, index=1)),
        ],
        [("a", A), ("b", B)],
    ),
    "arguments under another index": (
        [
            called(call("a", "", index=0, id="x")), called(call(arguments='{"n"', index=1)),
            called(call(arguments=":1}", index=1)),
        ],
        [("a", A)],
    ),
    "arguments as an object": ([called(call("a", {"n": 1}, index=0))], [("a", A)]),
    "arguments as a list": ([called(call("a", [1], index=0))], [("a", "[1]")]),
    "arguments not valid JSON": ([called(call("a", '{"n":', index=0))], [("a", '{"n":')]),
    "no arguments": ([called(call("a", index=0))], [("a", "")]),
    "odd types": ([called(call("a", "{}", index="0", id=7))], [("a", "{}")]),
    "a call of nothing": ([called(call(index=0, id="x"))], []),
    "an empty list of calls": ([delta(content="a", tool_calls=[])], []),
    "a finish reason of stop": ([called(call("a", "{}", index=0), finish="stop")], [("a", "{}")]),
}  # fmt: skip


@pytest.mark.parametrize(("chunks", "expected"), TOOL_CALLS.values(), ids=TOOL_CALLS)
def test_tool_calls(chunks: list[Any], expected: list[tuple[str, str]]) -> None:
    events = fold(*chunks)
    assert shown(events) == expected
    ids = [use.id for use in calls(events)]
    assert all(ids) and len(set(ids)) == len(ids)
    assert events[-1] == llm.Finished("tool_calls" if expected else "stop")


@pytest.mark.parametrize("given", [(None, None), ("", ""), ("same", "same"), ("same", None)])
def test_ids_are_made_up_where_missing_and_kept_where_unique(given: tuple[str | None, str | None]) -> None:
    made = [call("a", "{}", index=number, **({} if id_ is None else {"id": id_})) for number, id_ in enumerate(given)]
    ids = [use.id for use in calls(fold(called(*made)))]
    assert len(set(ids)) == 2 and all(ids)
    assert given[0] not in ("same",) or ids[0] == "same"


def test_a_broken_surrogate_in_arguments_is_joined_or_replaced() -> None:
    chunk = b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"a","arguments":%s}}]}}]}'
    assert shown(fold(chunk % b'"{\\"p\\":\\"\\ud83d"', chunk % b'"\\ude00 \\ud83d\\"}"')) == [("a", '{"p":"😀 �"}')]


# --- thoughts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [("reasoning_content",), ("reasoning",), ("reasoning", "reasoning_content")])
def test_thoughts_in_fields_of_their_own_come_once(fields: tuple[str, ...]) -> None:
    events = fold(delta(**dict.fromkeys(fields, "hm")), delta(content="yes"))
    assert events == [llm.ThoughtDelta("hm"), llm.TextDelta("yes"), llm.Finished("stop")]


@table(("content", "thought", "text"), [
    ("<think>hm</think>yes", "hm", "yes"), ("<think>\nhm\n</think>\n\nyes\n", "\nhm\n", "yes\n"),
    ("\n <think>hm</think>yes", "hm", "yes"), ("<think></think>yes", "", "yes"),
    ("<think>a < b </ think></think>yes", "a < b </ think>", "yes"),
    ("<think>never closed </thi", "never closed </thi", ""), ("<thin", "", "<thin"),
    ("<thinking>no</thinking>", "", "<thinking>no</thinking>"),
    ("The tag <think> opens a thought</think>.", "", "The tag <think> opens a thought</think>."),
    ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"), (" plain", "", " plain"), ("  ", "", "  "),
])  # fmt: skip
@table("size", [1, 2, 3, 7, 1000])
def test_thoughts_between_tags_however_they_are_cut(content: str, thought: str, text: str, size: int) -> None:
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    events = fold(*(delta(content=piece) for piece in pieces))
    assert "".join(thoughts(events)) == thought
    assert "".join(texts(events)) == text
    assert all(event.text for event in events if isinstance(event, (llm.TextDelta, llm.ThoughtDelta)))


# --- usage -------------------------------------------------------------------------------------------------------


USED = {"prompt_tokens": 7, "completion_tokens": 2}


@table(("usage", "report"), [
    (USED, llm.UsageReport(7, 2)),
    (USED | {"prompt_tokens_details": {"cached_tokens": 4}}, llm.UsageReport(7, 2, cached_tokens=4)),
    (USED | {"prompt_cache_hit_tokens": 3}, llm.UsageReport(7, 2, cached_tokens=3)),
    (USED | {"cached_tokens": 3}, llm.UsageReport(7, 2, cached_tokens=3)),
    (USED | {"prompt_tokens_details": None}, llm.UsageReport(7, 2)),
    ({"prompt_tokens": 7.0, "completion_tokens": "2"}, llm.UsageReport(7, 2)), ({}, llm.UsageReport(0, 0)),
])  # fmt: skip
def test_usage_in_every_dialect(usage: dict[str, Any], report: llm.UsageReport) -> None:
    assert fold(delta("stop", content="a"), {"choices": [], "usage": usage})[-2:] == [report, llm.Finished("stop")]


def test_usage_is_reported_once_with_its_last_value_wherever_it_stands() -> None:
    first = {**delta(content="a"), "usage": USED | {"completion_tokens": 1}}
    second = {**delta("stop", content="b"), "usage": USED}
    assert fold(first, second)[-2:] == [llm.UsageReport(7, 2), llm.Finished("stop")]
    chunk = {"choices": [{"delta": {}, "finish_reason": "stop", "usage": USED}]}
    assert fold(chunk)[-2:] == [llm.UsageReport(7, 2), llm.Finished("stop")]
    assert fold({**delta("stop", content="a"), "usage": None}) == [llm.TextDelta("a"), llm.Finished("stop")]


# --- text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pieces", "text"), [
    (["a\\ud83d", "\\ude00b"], "a😀b"), (["a\\ud83d"], "a�"), (["a\\ud83d", "b"], "a�b"), (["\\ude00b"], "�b"),
    (["\\ud83d", "", "\\ude00"], "😀"), (["\\ud83d", "\\ud83d", "\\ude00"], "�😀"), (["\\ud83d\\ude00"], "😀"),
    (["né", "€😀"], "né€😀"),
])  # fmt: skip
def test_halves_of_surrogate_pairs(pieces: list[str], text: str) -> None:
    chunk = b'{"choices":[{"delta":{"content":"%b"}}]}'
    assert "".join(texts(fold(*(chunk % piece.encode() for piece in pieces)))) == text


def test_content_may_be_broken_in_parts_or_not_streamed() -> None:
    assert texts(fold(b'{"choices":[{"delta":{"content":"a\xff"}}]}')) == ["a�"]
    assert texts(fold(delta(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))) == ["ab"]
    message = {"role": "assistant", "content": "hi", "tool_calls": [call("a", "{}", id="x")]}
    document = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    assert fold(document) == [llm.TextDelta("hi"), llm.ToolUse("x", "a", "{}"), llm.Finished("tool_calls")]


# --- over a socket -----------------------------------------------------------------------------------------------


HELLO = b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'


@pytest.mark.parametrize(
    "chunks",
    [
        (HELLO, STOP, b"data: [DONE]\n\n"), (HELLO, STOP), (HELLO, b"data: [DONE]\n\n"), (HELLO, STOP.rstrip()),
        (b": keep-alive\n\n", HELLO, b": OPENROUTER PROCESSING\n\n", STOP), ((HELLO + STOP).replace(b"\n", b"\r\n"),),
        tuple(bytes([byte]) for byte in HELLO + STOP), (HELLO, STOP, b"data: [DONE]\n\ndata: nonsense\n\n"),
    ],
    ids=["as it should be", "no [DONE]", "no finish", "no last newline", "comments", "crlf", "byte by byte", "chatter"],
)  # fmt: skip
async def test_streams_that_end_in_their_own_way(chunks: tuple[bytes, ...]) -> None:
    async with connected("chat", [RawAnswer(chunks, content_type="text/event-stream")]) as (provider, _):
        assert await collect(provider) == [llm.TextDelta("hello"), llm.Finished("stop")]


MESSAGE = {"role": "assistant", "content": "hello"}
TEXT = [{"type": "text", "text": "hello"}]
OUTPUT = [{"type": "message", "content": [{"type": "output_text", "text": "hello"}]}]
DOCUMENTS: dict[Api, dict[str, Any]] = {
    "chat": {"choices": [{"message": MESSAGE, "finish_reason": "stop"}]},
    "messages": {"type": "message", "role": "assistant", "content": TEXT, "stop_reason": "end_turn"},
    "responses": {"object": "response", "status": "completed", "output": OUTPUT},
    "ollama": {"message": MESSAGE, "done": True, "done_reason": "stop"},
}


@pytest.mark.parametrize(
    "kind", ["application/json", "text/plain", "text/html; charset=utf-8", "text/event-stream", "x"]
)
@pytest.mark.parametrize("api", DOCUMENTS)
async def test_json_instead_of_a_stream_is_read_whatever_its_type_is_said_to_be(api: Api, kind: str) -> None:
    compact = json.dumps(DOCUMENTS[api]).encode()
    laid_out = json.dumps(DOCUMENTS[api], indent=2).encode()
    forms = [
        compact, laid_out, b"\n  " + laid_out, b"\xef\xbb\xbf" + compact, b"[%b]" % laid_out, b"data: %b\n\n" % compact,
    ]  # fmt: skip
    script = [RawAnswer((form[:7], form[7:30], form[30:]), content_type=kind) for form in forms]
    async with connected(api, script, max_retries=0) as (provider, _):
        for form in forms:
            events = await collect(provider)
            assert (texts(events), events[-1]) == (["hello"], llm.Finished("stop")), form


@pytest.mark.parametrize("api", ["chat", "ollama"])
async def test_events_that_are_a_line_each_are_read(api: Api) -> None:
    pieces: list[dict[str, Any]] = [{"choices": [{"delta": {"content": "hel"}}]}]
    pieces += [{"choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]}]
    if api == "ollama":
        pieces = [{"message": {"content": "hel"}}, {"message": {"content": "lo"}, "done": True, "done_reason": "stop"}]
    lines = [json.dumps(piece).encode() + b"\n" for piece in pieces]
    forms = [
        b"".join(lines), b"".join(b"data: " + line for line in lines), b"".join(b"data: %b\n" % line for line in lines),
    ]  # fmt: skip
    script = [RawAnswer((form,), content_type="application/json") for form in forms]
    async with connected(api, script, max_retries=0) as (provider, _):
        for form in forms:
            assert "".join(texts(await collect(provider))) == "hello", form


async def test_a_break_after_the_finish_reason_is_forgiven() -> None:
    async with connected("chat", [RawAnswer((HELLO, STOP, b"never"), drop_after=2)]) as (provider, _):
        assert await collect(provider) == [llm.TextDelta("hello"), llm.Finished("stop")]


@pytest.mark.parametrize(("chunk", "kind", "words", "before"), [
    (b'data: {"error":{"message":"the GPU is on fire","code":500}}\n\n', "server", "the GPU is on fire", []),
    (b'{"error":"the GPU is on fire"}', "server", "the GPU is on fire", []),
    (b'data: {"error":{"message":"slow down","code":429}}\n\n', "rate_limit", "slow down", []),
    (b'data: {"choices":[{"delta":{},"finish_reason":"error"}]}\n\n', "server", "ended in an error", []),
    (b"data: what is this\n\n", "server", "what is this", []),
    (b"\n<html>Welcome to the chat server</html>", "not_found", "a web page", []),
    (b": nothing\n\n", "network", "ended early", []), (HELLO, "network", "ended early", [llm.TextDelta("hello")]),
])  # fmt: skip
async def test_errors_inside_an_answer(chunk: bytes, kind: str, words: str, before: list[llm.ModelEvent]) -> None:
    assert await check_failure("chat", RawAnswer((chunk,)), kind, words) == before


async def test_tool_calls_in_every_shape_over_a_socket() -> None:
    answer = Answer(
        thought=("h", "m"), thought_as="think", text="Looking.",
        tool_calls=(
            Call("a", {"n": 1}, id=None, index=None), Call("b", {"n": 2}, id="", index=None, as_object=True),
            Call("c", {"n": 3}, id="x", index=None),
        ),
        finish=None, done=False, usage=None,
    )  # fmt: skip
    async with connected("chat", [answer]) as (provider, _):
        events = await collect(provider)
    assert shown(events) == [("a", '{"n":1}'), ("b", '{"n":2}'), ("c", '{"n":3}')]
    assert "".join(thoughts(events)) == "hm"
    assert texts(events) == ["Looking."] and events[-1] == llm.Finished("tool_calls")


# --- what servers refuse, and what is learnt from it -------------------------------------------------------------


async def test_a_server_without_stream_options_is_asked_without_them_from_then_on() -> None:
    def script(body: dict[str, Any]) -> Answer | Failure:
        if "stream_options" in body:
            return Failure(400, {"error": {"message": "Unrecognized request argument: stream_options"}})
        return Answer(text="ok")

    async with connected("chat", script) as (provider, model):
        assert texts(await collect(provider)) == ["ok"] and texts(await collect(provider)) == ["ok"]
        assert ["stream_options" in request.body for request in model.requests] == [True, False, False]


async def test_a_server_that_wants_its_thoughts_back_gets_them() -> None:
    def script(body: dict[str, Any]) -> Answer | Failure:
        if any("tool_calls" in message and "reasoning_content" not in message for message in body["messages"]):
            return Failure(400, {"error": {"message": "Missing `reasoning_content` field in the assistant message"}})
        return Answer(text="ok")

    history = (
        USER, llm.AssistantMessage(thought="hm", tool_calls=(llm.ToolUse("x", "a", "{}"),)),
        llm.ToolMessage("x", "a", ()),
    )  # fmt: skip
    async with connected("chat", script) as (provider, model):
        assert texts(await collect(provider, history)) == ["ok"]
        assert model.requests[1].body["messages"][1]["reasoning_content"] == "hm"


async def test_models_come_with_their_windows_and_of_lm_studio_with_what_is_loaded() -> None:
    entries = [
        {"id": "vllm", "max_model_len": 8192}, {"id": "openrouter", "context_length": 128000},
        {"id": "groq", "context_window": 32768}, {"id": "llama.cpp", "meta": {"n_ctx_train": 4096}},
        {"id": "none", "context_length": None},
    ]  # fmt: skip
    windows = {"vllm": 8192, "openrouter": 128000, "groq": 32768, "llama.cpp": 4096, "none": None}
    assert await listed("chat", entries) == [llm.ModelInfo(name, window) for name, window in windows.items()]
    loaded: list[dict[str, Any]] = [
        {"id": "embed", "type": "embeddings"},
        {"id": "other", "type": "llm", "state": "not-loaded", "max_context_length": 32768},
        {"id": "qwen", "type": "vlm", "state": "loaded", "max_context_length": 32768, "loaded_context_length": 8192},
    ]
    found = await listed("chat", [{**entry, "owned_by": "organization_owner"} for entry in loaded])
    assert found == [llm.ModelInfo("qwen", 8192, ("image",)), llm.ModelInfo("other", None, ())]


# --- the request -------------------------------------------------------------------------------------------------


def body(
    messages: Sequence[llm.Message], dialect: Dialect | None = None, settings: llm.ModelSettings = SETTINGS
) -> dict[str, Any]:
    encoded: dict[str, Any] = json.loads(RequestEncoder(dialect or Dialect()).encode(messages, (TOOL,), settings))
    return encoded


def test_a_whole_request() -> None:
    messages = (
        llm.UserMessage((llm.TextPart("a"), llm.TextPart("b"))),
        llm.AssistantMessage(thought="hm", tool_calls=(llm.ToolUse("x", "read", '{"path":"a"}'),)),
        llm.ToolMessage("x", "read", (llm.TextPart("content"),)), llm.AssistantMessage("Done."),
        llm.UserMessage((llm.TextPart("listen"), llm.AudioPart("audio/mpeg", "AAAA"))),
    )  # fmt: skip
    settings = llm.ModelSettings("m", system="Be brief.", thought_level="low", max_output_tokens=9, cache_key="k")
    made = {"id": "x", "type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}}
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}
    assert body(messages, settings=settings) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "a\nb"},
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": "x", "content": "content"}, {"role": "assistant", "content": "Done."},
            turn("user", text_block("listen"), sound),
        ],
        "stream": True, "stream_options": {"include_usage": True}, "tools": [TOOL_SENT], "reasoning_effort": "low",
        "max_tokens": 9,
    }  # fmt: skip


@table(("thinking", "level", "fields"), [
    ("effort", "low", {"reasoning_effort": "low"}), ("effort", "off", {}),
    ("template", "low", {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": True}}),
    ("template", "off", {"chat_template_kwargs": {"enable_thinking": False}}), ("template", None, {}),
    ("reasoning", "low", {"reasoning": {"effort": "low"}}), ("reasoning", "off", {"reasoning": {"enabled": False}}),
    ("type", "high", {"thinking": {"type": "enabled"}}), ("type", "off", {"thinking": {"type": "disabled"}}),
    ("switch", "off", {"enable_thinking": False}), ("switch", None, {}), ("none", "high", {}),
])  # fmt: skip
def test_thinking_is_set_as_the_server_takes_it(thinking: str, level: Any, fields: dict[str, Any]) -> None:
    plain = body((USER,))
    asked = body((USER,), Dialect(thinking=thinking), llm.ModelSettings(SETTINGS.model, thought_level=level))
    assert {key: value for key, value in asked.items() if key not in plain} == fields


PLAIN = {"reasoning_effort": "low", "stream_options": {"include_usage": True}}
LOCAL = {**PLAIN, "chat_template_kwargs": {"enable_thinking": True}}
OF_ROWS: dict[str, dict[str, Any]] = {
    "deepseek": {"thinking": {"type": "enabled"}, "stream_options": {"include_usage": True}}, "mistral": {},
    "moonshot": {"stream_options": {"include_usage": True}},
    "openrouter": {"reasoning": {"effort": "low"}, "stream_options": {"include_usage": True}},
    "qwen": {"enable_thinking": True, "stream_options": {"include_usage": True}},
    "zai": {"thinking": {"type": "enabled"}, "stream_options": {"include_usage": True}},
}  # fmt: skip
"""What a known server is sent besides the conversation, where it differs from `PLAIN`."""


def test_each_known_server_is_sent_what_it_takes() -> None:
    for name, row in known_servers().items():
        if (row.api or choose_api(row.base_url)) != "chat":
            continue
        provider = ChatProvider(ProviderOptions(name=name, base_url=row.base_url, api_key="x"))
        asked = llm.ModelSettings("anthropic/claude-5", "Be brief.", "low")
        sent = json.loads(provider._exchange((USER, llm.AssistantMessage("a"), USER), (TOOL,), asked).body)
        more = {key: sent[key] for key in sent if key not in ("model", "messages", "stream", "tools")}
        assert more == OF_ROWS.get(name, LOCAL if is_loopback(row.base_url) else PLAIN), name
        assert str(sent).count("cache_control") == (3 if name == "openrouter" else 0), name


@table(("model", "breakpoints", "marked"), [
    ("anthropic/claude-sonnet-5", True, [0, 3, 6]), ("openai/gpt-5", True, []), ("anthropic/claude-5", False, []),
])  # fmt: skip
def test_claudes_cache_is_told_where_to_begin_where_that_is_known(model: str, breakpoints: bool, marked: list[int]):
    first, second = (llm.AssistantMessage(tool_calls=(llm.ToolUse(name, "read", "{}"),)) for name in "ab")
    results = [llm.ToolMessage(name, "read", (llm.TextPart("content"),)) for name in "ab"]
    history = (USER, first, results[0], second, results[1], llm.UserMessage((llm.TextPart("and?"),)))
    asked = llm.ModelSettings(model, system="Be brief.")
    sent = body(history, Dialect(breakpoints=breakpoints), asked)["messages"]
    assert [number for number, message in enumerate(sent) if "cache_control" in str(message)] == marked
    for message in sent:
        if isinstance(message["content"], list):
            message["content"] = message["content"][0]["text"]
    assert sent == body(history, Dialect(), asked)["messages"], "the words are the same"


def test_what_gemini_signs_a_call_with_goes_back_to_it_alone() -> None:
    extra = {"google": {"thought_signature": "sig"}}
    answer = ChatAnswer("google")
    chunk = called(call("read", "{}", index=0, id="x", extra_content=extra), finish="tool_calls")
    events = [*answer.feed(json.dumps(chunk).encode()), *answer.finish()]
    finished = events[-1]
    assert isinstance(finished, llm.Finished)
    history = (
        USER, llm.AssistantMessage(tool_calls=tuple(calls(events)), opaque=finished.opaque),
        llm.ToolMessage("x", "read", ()),
    )  # fmt: skip
    for origin, kept in (("google", {"extra_content": extra}), ("elsewhere", {})):
        sent = body(history, Dialect(origin=origin))["messages"][1]["tool_calls"][0]
        assert {key: sent[key] for key in sent if key not in ("id", "type", "function")} == kept


def test_openai_itself_gets_its_own_field_names() -> None:
    sent = body((USER,), Dialect(openai=True), llm.ModelSettings("m", max_output_tokens=9, cache_key="k"))
    assert (sent["max_completion_tokens"], sent["prompt_cache_key"]) == (9, "k") and "max_tokens" not in sent


@pytest.mark.parametrize(("arguments", "sent"), [
    ('{"a": 1}', '{"a": 1}'), ("", "{}"), ("  ", "{}"), ('{"a": ', '{"_invalid":"{\\"a\\": "}'),
    ("[1]", '{"_invalid":"[1]"}'), ("null", '{"_invalid":"null"}'),
])  # fmt: skip
def test_arguments_that_a_server_would_refuse_are_wrapped(arguments: str, sent: str) -> None:
    messages = (llm.AssistantMessage(tool_calls=(llm.ToolUse("x", "a", arguments),)),)
    assert body(messages)["messages"][0]["tool_calls"][0]["function"]["arguments"] == sent


@pytest.mark.parametrize(("content", "sent"), [
    ((), "(no output)"), ((llm.TextPart("a"), llm.TextPart("b")), "a\nb"),
    ((llm.ImagePart("image/png", "AAAA"),), "The result is in the next message."),
])  # fmt: skip
def test_tool_results_are_never_empty(content: tuple[Any, ...], sent: str) -> None:
    assert body((llm.ToolMessage("x", "a", content),))["messages"][0]["content"] == sent


def test_messages_are_encoded_once_and_never_mistaken_for_another() -> None:
    encoder = RequestEncoder(Dialect())
    for number in range(10_000):
        # Short-lived messages: the next one is likely to be born at the same address.
        message = llm.UserMessage((llm.TextPart(str(number)),))
        sent = json.loads(encoder.encode((message, message), (), SETTINGS))
        assert [entry["content"] for entry in sent["messages"]] == [str(number)] * 2


async def test_what_a_server_refuses_is_not_sent_again_and_the_same_twice_an_error() -> None:
    words = "chat_template is not supported for Mistral tokenizers."
    async with connected("chat", [Failure(400, {"message": words}), "ok", "ok"]) as (provider, model):
        for _ in range(2):
            await collect(provider, settings=llm.ModelSettings("m", thought_level="low"))
        assert ["chat_template_kwargs" in request.body for request in model.requests] == [True, False, False]
        assert model.requests[2].body["reasoning_effort"] == "low"
    refusal = Failure(400, {"error": {"message": "stream_options is not for you"}})
    async with connected("chat", [refusal] * 5) as (provider, model):
        assert (await failure(provider)).kind == "bad_request"
        assert len(model.requests) == 2
    async with connected("chat", [Failure(308, "", {"Location": "https://elsewhere/v1"})]) as (provider, _):
        assert "https://elsewhere/v1" in str(await failure(provider))


def test_thoughts_that_openrouter_signs_go_back_with_their_calls_in_whole() -> None:
    """As documented: the pieces of one thought, then its signature; encrypted ones are whole."""
    answer = ChatAnswer("openrouter.ai")
    text = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
    sealed = [{"type": "reasoning.encrypted", "index": 1, "data": data} for data in ("first", "second")]
    pieces = [[{**text, "text": "let me "}], [{**text, "text": "see"}], [{**text, "signature": "sig", "text": None}]]
    for details in (*pieces, sealed, "nonsense", ["nonsense"]):
        answer.feed(json.dumps(delta(reasoning_details=details)).encode())
    answer.feed(json.dumps(called(call("ls", "{}", id="c1"))).encode())
    use, finished = answer.finish()
    assert isinstance(use, llm.ToolUse) and isinstance(finished, llm.Finished)
    message = llm.AssistantMessage(tool_calls=(use,), opaque=finished.opaque)
    (sent,) = body((message,), Dialect(origin="openrouter.ai"))["messages"]
    assert sent["reasoning_details"] == [{**text, "text": "let me see", "signature": "sig"}, *sealed]
    (sent,) = body((message,), Dialect(origin="elsewhere.example"))["messages"]
    assert "reasoning_details" not in sent
    # Without calls they are not kept.
    answer = ChatAnswer("openrouter.ai")
    said = delta(reasoning_details=[{"type": "reasoning.text", "text": "x"}], content="Hello")
    answer.feed(json.dumps(said).encode())
    assert answer.finish()[-1] == llm.Finished("stop")
