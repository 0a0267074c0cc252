"""A chat-completions answer, without I/O: events of the stream in, `ModelEvent`s out.

The API specifies what a well-behaved server sends. This file copes with the others, such as llama.cpp, Ollama, vLLM, LM
Studio and many proxies: whole tool calls in one chunk, missing or repeated ids and indexes, arguments as an object,
thoughts in three places, usage anywhere, no finish reason, no `[DONE]`, half surrogate pairs, and one JSON document
instead of a stream. Every one of these has a test in `tests/llm/test_chat_quirks.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm import base as llm
from acp_agent.llm.chat_request import encode_json
from acp_agent.llm.provider_errors import ErrorInAnswer
from acp_agent.llm.streamed_text import SurrogateJoiner, ThinkSplitter, clean
from acp_agent.llm.translate import DETAILS, EXTRA, signed
from acp_agent.llm.transport.sse import EventTooLong

_DONE = b"[DONE]"
_JOINED = ("text", "summary")
"""Fields of a piece of `reasoning_details` that are cut up."""


# The fields of a chunk that we use. Anything of another type takes the slow path through `_lenient`.


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: Any = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    reasoning_details: Any = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    """Replaces `delta` in an answer that is not streamed."""
    finish_reason: str | None = None
    usage: _Usage | None = None
    """Where Moonshot puts it."""


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    cached_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    cost: float | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_Fields = TypeVar("_Fields", bound=msgspec.Struct)

_decode = msgspec.json.Decoder(_Chunk).decode


LONGEST_CALLS = 16 * 1024 * 1024
"""Characters of all tool calls of one answer, which are held until its end."""
PER_FRAGMENT = 16
"""What a fragment counts for besides: there may be endless ones with nothing in them."""


class _OpenCall:
    """A tool call with fragments still arriving."""

    __slots__ = ("arguments", "extra", "id", "index", "name")

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: Any = None
        """What the server wants back with the call."""


class ChatAnswer:
    """Folds one answer. Call `feed()` with each event's data, then `finish()` once.

    Nothing may be fed after `finish()`. `ended` says whether the answer is complete: the server sent `[DONE]`, gave a
    finish reason, or sent tool calls that need nothing more.
    """

    def __init__(self, origin: str = "") -> None:
        self._origin = origin
        self._extra: list[dict[str, Any]] = []
        self._details: list[dict[str, Any]] = []
        self.done = False
        """`[DONE]` was read: nothing of interest follows."""
        self._text = SurrogateJoiner()
        self._thought = SurrogateJoiner()
        self._think = ThinkSplitter()
        self._calls: list[_OpenCall] = []
        self._calls_size = 0
        self._usage: _Usage | None = None
        self._finish_reason: str | None = None
        self._refused = False

    @property
    def ended(self) -> bool:
        if self.done or self._finish_reason is not None:
            return True
        return bool(self._calls) and all(_is_json_object("".join(call.arguments)) for call in self._calls)

    def feed(self, data: bytes) -> list[llm.ModelEvent]:
        """Raises `ErrorInAnswer` if the data is an error object or not JSON at all."""
        if self.done:
            return []
        chunk = event_of(data, _decode, _Chunk)
        if chunk is None:
            self.done = True
            return []
        if chunk.error:
            raise ErrorInAnswer({"error": chunk.error})
        if chunk.usage is not None:
            self._usage = chunk.usage
        if not chunk.choices:
            return []
        return self._choice(chunk.choices[0])

    def finish(self) -> list[llm.ModelEvent]:
        """Returns text held back, the tool calls, the usage, and `Finished`."""
        events: list[llm.ModelEvent] = []
        thought, text = self._think.finish()
        self._add_thought(thought + self._thought.finish(), events)
        if rest := text + self._text.finish():
            events.append(llm.TextDelta(rest))
        uses = self._tool_uses()
        events.extend(uses)
        if uses:
            self._extra += [{"type": DETAILS, "content": detail} for detail in self._details]
        if self._usage is not None:
            events.append(_usage_report(self._usage))
        events.append(llm.Finished(self._reason(called=bool(uses)), signed(self._extra, self._origin)))
        return events

    def _choice(self, choice: _Choice) -> list[llm.ModelEvent]:
        events: list[llm.ModelEvent] = []
        delta = choice.delta or choice.message
        if delta is not None:
            if thought := delta.reasoning_content or delta.reasoning:
                self._add_thought(self._thought.feed(thought), events)
            if isinstance(delta.reasoning_details, list):
                for detail in delta.reasoning_details:
                    self._add_detail(detail)
            if delta.content:
                self._add_text(delta.content, events)
            if delta.tool_calls:
                for call in delta.tool_calls:
                    self._add_call(call)
            if delta.refusal:
                self._refused = True
                self._add_text(delta.refusal, events)
        if choice.finish_reason:
            if choice.finish_reason == "error":
                raise ErrorInAnswer({"error": {"message": "the model's answer ended in an error"}})
            self._finish_reason = choice.finish_reason
        if choice.usage is not None:
            self._usage = choice.usage
        return events

    def _add_text(self, text: str, events: list[llm.ModelEvent]) -> None:
        text = self._text.feed(text)
        if not self._think.settled:
            thought, text = self._think.feed(text)
            self._add_thought(thought, events)
        if text:
            events.append(llm.TextDelta(text))

    def _add_thought(self, thought: str, events: list[llm.ModelEvent]) -> None:
        if thought:
            events.append(llm.ThoughtDelta(thought))

    def _add_detail(self, piece: object) -> None:
        """Joins the pieces of one thought: those in a row with the same type and index. Encrypted ones come whole."""
        if not isinstance(piece, dict):
            return
        last = self._details[-1] if self._details else {}
        parts = any(isinstance(piece.get(key), str) for key in _JOINED) or piece.get("signature")
        if last and parts and all(last.get(key) == piece.get(key) for key in ("type", "index")):
            for key, value in piece.items():
                if value is not None:
                    last[key] = f"{last.get(key) or ''}{value}" if key in _JOINED else value
        else:
            self._details.append(dict(piece))
        self._calls_size += len(str(piece.get("text") or piece.get("data") or "")) + PER_FRAGMENT
        if self._calls_size > LONGEST_CALLS:
            raise EventTooLong(f"the thoughts and tool calls of one answer are longer than {LONGEST_CALLS} characters")

    def _add_call(self, fragment: _Call) -> None:
        function = fragment.function or _Function()
        name, arguments = function.name or "", function.arguments
        if isinstance(arguments, dict):
            arguments = encode_json(arguments).decode()
        arguments = arguments or ""
        call = self._find_call(fragment, name, arguments)
        call.id = call.id or fragment.id or ""
        call.name = call.name or name
        call.extra = call.extra or fragment.extra_content
        if arguments:
            call.arguments.append(arguments)
        self._calls_size += len(name) + len(arguments) + PER_FRAGMENT
        if self._calls_size > LONGEST_CALLS:
            raise EventTooLong(f"the tool calls of one answer are longer than {LONGEST_CALLS} characters")

    def _find_call(self, fragment: _Call, name: str, arguments: str) -> _OpenCall:
        """Returns the open call that a fragment continues, or a new one.

        The index decides, if there is one, unless the fragment clearly begins another call: some servers give every
        call index 0.
        """
        if fragment.index is not None:
            candidates = [call for call in self._calls if call.index == fragment.index]
            if not candidates and not (name or fragment.id):
                candidates = self._calls  # The name came under another index.
        elif fragment.id and not name:
            candidates = [call for call in self._calls if call.id == fragment.id] or self._calls
        else:
            candidates = self._calls
        found = candidates[-1] if candidates else None  # The latest, if several share the index.
        if found is None or _begins_another(found, fragment, name, arguments):
            found = _OpenCall(fragment.index)
            self._calls.append(found)
        return found

    def _tool_uses(self) -> list[llm.ModelEvent]:
        taken: set[str] = set()
        events: list[llm.ModelEvent] = []
        for call in self._calls:
            name, arguments = clean(call.name), clean("".join(call.arguments))
            if not name and not arguments:
                continue
            call_id = clean(call.id)
            if not call_id or call_id in taken:
                call_id = f"call_{os.urandom(12).hex()}"
            taken.add(call_id)
            if call.extra:
                self._extra.append({"type": EXTRA, "call_id": call_id, "content": call.extra})
            events.append(llm.ToolUse(call_id, name, arguments))
        return events

    def _reason(self, *, called: bool) -> llm.FinishReason:
        if self._finish_reason in ("length", "max_tokens"):
            return "length"
        if self._finish_reason == "content_filter":
            return "refusal"
        if called or self._finish_reason in ("tool_calls", "function_call"):
            return "tool_calls"
        return "refusal" if self._refused else "stop"


def _begins_another(call: _OpenCall, fragment: _Call, name: str, arguments: str) -> bool:
    if not name or not call.name:
        return False
    if fragment.id and call.id and fragment.id != call.id:
        return True
    if name != call.name:
        return True
    # The same name again: some servers repeat it in each fragment of one call, others call the same tool twice.
    ends = bool(arguments and call.arguments) and call.arguments[-1].rstrip().endswith("}")
    return ends and _is_json_object("".join(call.arguments))


def _is_json_object(text: str) -> bool:
    """Whether `text` is one complete JSON object."""
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(read_loose_json(text), dict)
    except ValueError:
        return False


def _usage_report(usage: _Usage) -> llm.UsageReport:
    prompt = usage.prompt_tokens_details or _Details()
    completion = usage.completion_tokens_details or _Details()
    return llm.UsageReport(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_tokens=prompt.cached_tokens or usage.cached_tokens or usage.prompt_cache_hit_tokens or 0,
        reasoning_tokens=completion.reasoning_tokens or 0,
        cache_write_tokens=prompt.cache_write_tokens or 0,
        cost=usage.cost,
    )


def event_of(data: bytes, decode: Callable[[bytes], _Fields], kind: type[_Fields]) -> _Fields | None:
    """`None` at the end, as some servers tell it. Raises `ErrorInAnswer` if it is no JSON at all."""
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None if data.strip() == _DONE else lenient(data, kind)


def lenient(data: bytes, kind: type[_Fields]) -> _Fields:
    """Reads what the strict decoder rejected: lone surrogates, broken UTF-8, values of unexpected types."""
    text = data.decode("utf-8", "replace")
    try:
        body = read_loose_json(text)
    except ValueError:
        raise ErrorInAnswer(text) from None
    if not isinstance(body, dict):
        raise ErrorInAnswer(text)
    return _fitted(body, kind)


def _fitted(data: dict[str, Any], kind: type[_Fields]) -> _Fields:
    """Reads the object as a Struct of this kind, each field as far as possible."""
    return kind(**{field.name: _field(data.get(field.name), field.type) for field in msgspec.structs.fields(kind)})


def _field(value: Any, kind: Any) -> Any:
    """Reads the value as a field of this type; None if it cannot be read as one."""
    if kind is Any:
        return value
    first = get_args(kind)[0]
    if first is int:
        return _number(value)
    if first in (bool, float):
        return value if isinstance(value, first) else None
    if kind == str | None:
        return _string(value)
    if first is str:  # The arguments of a call.
        return value if isinstance(value, (str, dict)) or value is None else json.dumps(value)
    if get_origin(first) is list and isinstance(value, list):
        return [_fitted(item, get_args(first)[0]) for item in value if isinstance(item, dict)]
    return _fitted(value, first) if isinstance(value, dict) and value and get_origin(first) is None else None


def _string(value: object) -> str | None:
    if isinstance(value, list):
        # Content as a list of parts, as sent by Mistral's reasoning models.
        return "".join(part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str))
    if isinstance(value, bool) or value is None:
        return None
    return str(value) if isinstance(value, (str, int)) else None


def _number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return int(value) if isinstance(value, (int, float)) and abs(value) < 2**53 else None
