"""Anthropic's Messages API as `FakeModel` speaks it: what the real server refuses, its events, and its prompt cache."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec

from acp_agent.testing import fake_answers as fake

MOST_BREAKPOINTS = 4
LOOKED_BACK = 20
"""Blocks before a breakpoint among which the cache is looked for."""
CHARS_PER_TOKEN = 4
THOUGHTS = ("thinking", "redacted_thinking")
STOPS = {"length": "max_tokens", "content_filter": "refusal", "stop": "end_turn", "tool_calls": "tool_use"}


class Messages(fake.Wire):
    paths = ("/messages", ":streamRawPredict")
    key_header = ("x-api-key", "{key}")
    seals = True
    cache: PromptCache | None = None
    """Counts the input, instead of the answers' own `usage`."""

    def chunks(self, answer: fake.Answer, request: fake.FakeRequest, number: int) -> fake.Chunks:
        counted = self.cache.count(request.body) if self.cache is not None else None
        return message_chunks(answer, request.model, number, counted)

    def refused(self, request: fake.FakeRequest, path: str) -> fake.Failure | None:
        """Vertex AI has other headers."""
        asked = self.strict and path.endswith("/messages")
        return refusal(request.body, request.headers) if asked else None


# --- what it refuses ---------------------------------------------------------------------------------------------


def refusal(body: dict[str, Any], headers: dict[str, str]) -> fake.Failure | None:
    """The answer to a request that the real server would not take, in its words."""
    missing = () if "anthropic-version" in headers else ("anthropic-version: header is required",)
    words = next(chain(missing, _wrong(body)), "")
    error = {"type": "invalid_request_error", "message": words}
    return fake.Failure(400, {"type": "error", "error": error}) if words else None


def _wrong(body: dict[str, Any]) -> Iterator[str]:
    messages = body.get("messages")
    if not isinstance(body.get("max_tokens"), int):
        yield "max_tokens: Field required"
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    messages = [{**each, "content": _as_blocks(each["content"])} for each in messages]
    yield from _wrong_thinking(body, messages)
    marked = sum("cache_control" in block for block in blocks_of(body))
    if marked > MOST_BREAKPOINTS:
        yield f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided. Found {marked}."
    for tool in body.get("tools", ()):
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]) or tool["input_schema"].get("type") != "object":
            yield f"tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$': {tool['name']}"
    for number, message in enumerate(messages):
        yield from _wrong_message(messages, number, message)
    if any(block["type"] == "tool_use" for block in messages[-1]["content"]):
        yield f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks immediately after"


def _wrong_message(messages: list[Any], number: int, message: dict[str, Any]) -> Iterator[str]:
    expected = ("user", "assistant")[number % 2]
    if message["role"] != expected:
        yield f"messages.{number}: roles must alternate between `user` and `assistant`, but found {message['role']}"
        return
    content = message["content"]
    if not content:
        yield f"messages.{number}: all messages must have non-empty content"
    before = messages[number - 1]["content"] if number else []
    asked = {block["id"] for block in before if block["type"] == "tool_use"}
    given = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    if missing := asked - set(given):
        words = "`tool_use` ids were found without `tool_result` blocks immediately after"
        yield f"messages.{number - 1}: {words}: {missing}"
    if unasked := set(given) - asked:
        yield f"messages.{number}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {unasked}"
    if len(given) != len(set(given)):
        yield f"messages.{number}: each `tool_use` must have a single result"
    if any(block["type"] == "tool_result" for block in content[len(given) :]):
        yield f"messages.{number}: `tool_result` blocks must come first"
    for place, block in enumerate(content):
        yield from (f"messages.{number}.content.{place}.{words}" for words in _wrong_block(block, expected))
    if content and content[-1]["type"] in THOUGHTS:
        yield f"messages.{number}: The final block in an assistant message cannot be `thinking`."


def _wrong_block(block: dict[str, Any], role: str) -> Iterator[str]:
    kind = block["type"]
    if kind not in {"user": ("text", "image", "document", "tool_result")}.get(role, ("text", "tool_use", *THOUGHTS)):
        yield f"type: {kind} is not allowed in messages of the {role}"
    if kind == "text" and not block["text"].strip():
        yield "text: text content blocks must contain non-whitespace text"
    if kind == "tool_use" and not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]):
        yield "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if kind == "tool_use" and not isinstance(block["input"], dict):
        yield "tool_use.input: Input should be a valid dictionary"
    if kind == "thinking" and not block.get("signature", "").startswith("sig_"):
        yield "thinking: Invalid `signature` in `thinking` block"
    if kind in THOUGHTS and "cache_control" in block:
        yield "cache_control: Extra inputs are not permitted"
    if kind == "tool_result":
        for inner in block["content"]:
            yield from _wrong_block(inner, "user")


def _wrong_thinking(body: dict[str, Any], messages: list[Any]) -> Iterator[str]:
    thinking, model = body.get("thinking", {}), body["model"]
    kind = thinking.get("type")
    newer = re.search(r"claude-[a-z]+-(5|4-[6-9])", model) is not None
    if kind == "enabled" and newer:
        yield '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and effort.'
    if kind == "adaptive" and not newer and "claude" in model:
        yield "adaptive thinking is not supported on this model"
    if kind == "disabled" and "-5-5" in model:
        yield '"thinking.type.disabled" is not supported for this model.'
    if kind == "enabled" and not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
        yield "thinking.enabled.budget_tokens: must be at least 1024 and less than `max_tokens`"
    turn = [message for message in messages[_last_words(messages) + 1 :] if message["role"] == "assistant"]
    if turn and kind == "enabled" and turn[0]["content"][0]["type"] not in THOUGHTS:
        yield "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found other blocks"
    if turn and kind == "disabled" and any(block["type"] in THOUGHTS for block in turn[-1]["content"]):
        yield "When `thinking` is disabled, an `assistant` message in the final position cannot contain `thinking`."


def _as_blocks(content: Any) -> Any:
    """A text is short for one block of text."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _last_words(messages: list[Any]) -> int:
    """The number of the last message of the user that is more than results."""
    said = [
        number
        for number, message in enumerate(messages)
        if message["role"] == "user" and any(block["type"] != "tool_result" for block in message["content"])
    ]
    return said[-1] if said else -1


# --- its cache ---------------------------------------------------------------------------------------------------


def blocks_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """All blocks that a breakpoint may stand on, in the order in which the cache sees them."""
    said = [block for message in body["messages"] for block in _as_blocks(message["content"])]
    return [*body.get("tools", ()), *_as_blocks(body.get("system", ())), *said]


class PromptCache:
    """Counts what a request reads and writes, as the real cache does: by exact prefixes that end at breakpoints, looked
    for in the blocks just before each. Entries do not expire here, and none is too short."""

    def __init__(self) -> None:
        self._entries: set[int] = set()

    def count(self, body: dict[str, Any]) -> tuple[int, int, int]:
        """Tokens at the full price, read, and written."""
        blocks = blocks_of(body)
        ends, sizes, marks = [], [], []
        prefix, size = hash(msgspec.json.encode([body["model"], body.get("thinking"), body.get("output_config")])), 0
        for number, block in enumerate(blocks):
            plain = msgspec.json.encode({key: value for key, value in block.items() if key != "cache_control"})
            prefix, size = hash((prefix, plain)), size + len(plain)
            ends.append(prefix)
            sizes.append(size // CHARS_PER_TOKEN)
            if "cache_control" in block:
                marks.append(number)
        found = -1
        for mark in marks:
            near = range(mark, max(-1, mark - LOOKED_BACK), -1)
            found = max(found, next((number for number in near if ends[number] in self._entries), -1))
        self._entries.update(ends[mark] for mark in marks)
        read = sizes[found] if found >= 0 else 0
        written = max(0, sizes[marks[-1]] - read) if marks else 0
        return sizes[-1] - read - written, read, written


# --- its events --------------------------------------------------------------------------------------------------


def message_chunks(answer: fake.Answer, model: str, number: int, counted: tuple[int, int, int] | None) -> fake.Chunks:
    """The events of an answer."""
    out: fake.Chunks = []

    def add(kind: str, *, counts: bool = False, **fields: object) -> None:
        out.append((f"event: {kind}\n".encode() + fake.event_data({"type": kind, **fields}), counts))

    usage = _usage(answer.usage, counted)
    begun = {**usage, "output_tokens": 1} if usage else {}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": []}
    add("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": begun or None})
    add("ping")
    for place, (start, deltas) in enumerate(_contents(answer, number)):
        add("content_block_start", index=place, content_block=start)
        for delta in deltas:
            add("content_block_delta", counts=True, index=place, delta=delta)
        add("content_block_stop", index=place)
    if answer.finish is None:
        return out
    given = {"auto": "tool_use" if answer.tool_calls else "end_turn"} | STOPS
    reason = "refusal" if answer.refusal else given.get(answer.finish, answer.finish)
    details = {"type": "refusal", "category": None, "explanation": answer.refusal} if answer.refusal else None
    ending = {"stop_reason": reason, "stop_sequence": None, "stop_details": details}
    add("message_delta", delta=ending, usage=usage or None)
    add("message_stop")
    return out


def _contents(answer: fake.Answer, number: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The start of each block and its deltas."""
    if thoughts := fake.pieces_of(answer.thought):
        deltas: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": thought} for thought in thoughts]
        deltas.append({"type": "signature_delta", "signature": f"sig_{number}"})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if answer.encrypted:
        yield {"type": "redacted_thinking", "data": answer.encrypted}, []
    if said := fake.texts_of(answer):
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in said]
    for place, call in enumerate(answer.tool_calls):
        given = fake.call_id(call, number, place)
        start: dict[str, Any] = {"type": "tool_use", "id": given, "name": call.name, "input": {}}
        pieces = ("", *fake.cut_up(call.text, call.pieces))
        yield start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def _usage(told: fake.Usage | None, counted: tuple[int, int, int] | None) -> dict[str, Any]:
    """As the API counts: `input_tokens` are those that the cache has nothing to do with."""
    if told is None:
        return {}
    full, read, written = counted or (told.input_tokens - told.cached_tokens, told.cached_tokens, 0)
    return {
        "input_tokens": full,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": told.output_tokens,
        "output_tokens_details": {"thinking_tokens": told.reasoning_tokens},
    }
