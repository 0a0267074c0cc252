"""An answer of the Messages API, without I/O: events of the stream in, `ModelEvent`s out.

Events and blocks that are not known are ignored, as the API demands of its clients. Other servers that speak it are met
halfway: missing or repeated indexes, blocks that never start or stop, arguments in the start of a block, a whole
message instead of a stream. Every one of these has a test in `tests/llm/test_messages.py`.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from acp_agent.llm import base as llm
from acp_agent.llm.chat_answer import LONGEST_CALLS, PER_FRAGMENT, event_of
from acp_agent.llm.chat_request import encode_json
from acp_agent.llm.provider_errors import ErrorInAnswer
from acp_agent.llm.streamed_text import SurrogateJoiner, clean
from acp_agent.llm.translate import signed
from acp_agent.llm.transport.sse import EventTooLong

REASONS: dict[str, llm.FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",  # A tool of the server was stopped; we offer none.
    "refusal": "refusal",
    "tool_use": "tool_calls",
}


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


class Block(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class _Stop(msgspec.Struct):
    explanation: str | None = None


class Delta(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: _Stop | None = None


class _Message(msgspec.Struct):
    usage: Usage | None = None


class Event(msgspec.Struct):
    type: str | None = None
    index: int | None = None
    content_block: Block | None = None
    delta: Delta | None = None
    usage: Usage | None = None
    message: _Message | None = None
    error: Any = None
    content: list[Block] | None = None
    """With the two below: of a whole message."""
    stop_reason: str | None = None
    stop_details: _Stop | None = None


_decode = msgspec.json.Decoder(Event).decode

KINDS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking", "input_json_delta": ""}
"""The block to which a delta belongs whose block never started; none is made for arguments."""


class _Open:
    """A block that is still arriving."""

    def __init__(self, index: int | None, start: Block, after: tuple[int, int]) -> None:
        self.index = index
        self.start = start
        self.after = after
        self.pieces: list[str] = []
        """Of a thought, or of the arguments of a call."""
        self.signature = start.signature or ""

    def arguments(self) -> str:
        text = "".join(self.pieces)
        return text or ("" if not self.start.input else encode_json(self.start.input).decode())


class MessagesAnswer:
    """Folds one answer. Call `feed()` with each event's data, then `finish()` once. `model`: it signs its thoughts."""

    def __init__(self, model: str) -> None:
        self.done = False
        self._model = model
        self._blocks: list[_Open] = []
        self._text = SurrogateJoiner()
        self._thought = SurrogateJoiner()
        self._said = 0
        self._calls = 0
        self._held = 0
        self._usage: Usage | None = None
        self._stop_reason: str | None = None
        self._explanation = ""

    @property
    def ended(self) -> bool:
        return self.done or self._stop_reason is not None

    def feed(self, data: bytes) -> list[llm.ModelEvent]:
        """Raises `ErrorInAnswer` if the data is an error object or not JSON at all."""
        if self.done:
            return []
        event = event_of(data, _decode, Event)
        return [] if event is None else self.take(event)

    def take(self, event: Event) -> list[llm.ModelEvent]:
        """The same for an event that is read already."""
        if self.done:
            return []
        if event.error:
            raise ErrorInAnswer({"error": event.error})
        match event.type:
            case "content_block_delta" if event.delta is not None:
                return self._delta(event.index, event.delta)
            case "content_block_start" if event.content_block is not None:
                return self._start(event.index, event.content_block)
            case "message_start" if event.message is not None:
                self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                if event.delta is not None:
                    self._stop(event.delta.stop_reason, event.delta.stop_details)
            case "message_stop":
                self.done = True
            case "message":
                return self._whole(event)
        return []

    def finish(self) -> list[llm.ModelEvent]:
        """Returns text held back, the tool calls, the usage, and `Finished`."""
        events: list[llm.ModelEvent] = []
        self._add(llm.ThoughtDelta, self._thought.finish(), events)
        rest = self._text.finish()
        if self._explanation:
            rest += f"\n\n{self._explanation}" if self._said or rest else self._explanation
        self._add(llm.TextDelta, rest, events)
        uses = self._tool_uses()
        events.extend(uses)
        if self._usage is not None:
            events.append(_usage_report(self._usage))
        reason = REASONS.get(self._stop_reason or "", "tool_calls" if uses else "stop")
        events.append(llm.Finished(reason, signed(self._thoughts(), self._model)))
        return events

    def _start(self, index: int | None, block: Block) -> list[llm.ModelEvent]:
        self._blocks.append(_Open(index, block, (self._said, self._calls)))
        self._hold(block.name or "")
        events: list[llm.ModelEvent] = []
        if block.type == "tool_use":
            self._calls += 1
        elif block.type == "text" and block.text:
            self._add(llm.TextDelta, self._text.feed(block.text), events)
        elif block.type == "thinking" and block.thinking:
            self._think(self._blocks[-1], block.thinking, events)
        return events

    def _delta(self, index: int | None, delta: Delta) -> list[llm.ModelEvent]:
        events: list[llm.ModelEvent] = []
        block = self._find(index, delta)
        kind = block.start.type if block is not None else None
        if block is None:
            return events
        if delta.type == "text_delta" and kind == "text":
            self._add(llm.TextDelta, self._text.feed(delta.text or ""), events)
        elif delta.type == "thinking_delta" and kind == "thinking":
            self._think(block, delta.thinking or "", events)
        elif delta.type == "signature_delta" and kind == "thinking":
            block.signature += delta.signature or ""
            self._hold(delta.signature or "")
        elif delta.type == "input_json_delta" and kind == "tool_use":
            block.pieces.append(delta.partial_json or "")
            self._hold(delta.partial_json or "")
        return events

    def _find(self, index: int | None, delta: Delta) -> _Open | None:
        """The block that a delta continues: the latest of its index, or the latest of all."""
        found = [block for block in reversed(self._blocks) if index is None or block.index == index][:1]
        if found:
            return found[0]
        if kind := KINDS.get(delta.type or ""):
            self._start(index, Block(type=kind))
            return self._blocks[-1]
        return None

    def _whole(self, event: Event) -> list[llm.ModelEvent]:
        events: list[llm.ModelEvent] = []
        for index, block in enumerate(event.content or ()):
            events += self._start(index, block)
        self._count(event.usage)
        self._stop(event.stop_reason or "end_turn", event.stop_details)
        self.done = True
        return events

    def _stop(self, reason: str | None, details: _Stop | None) -> None:
        self._stop_reason = reason or self._stop_reason
        if details is not None:
            self._explanation = clean(details.explanation or "")

    def _count(self, usage: Usage | None) -> None:
        """The counts are cumulative: a later one replaces an earlier."""
        if usage is None:
            return
        known = self._usage or Usage()
        later = {name: value for name in Usage.__struct_fields__ if (value := getattr(usage, name)) is not None}
        self._usage = msgspec.structs.replace(known, **later)

    def _think(self, block: _Open, text: str, events: list[llm.ModelEvent]) -> None:
        block.pieces.append(text)
        self._hold(text)
        self._add(llm.ThoughtDelta, self._thought.feed(text), events)

    def _add(self, kind: type[llm.TextDelta | llm.ThoughtDelta], text: str, events: list[llm.ModelEvent]) -> None:
        if text:
            events.append(kind(text))
            self._said += len(text) if kind is llm.TextDelta else 0

    def _hold(self, text: str) -> None:
        self._held += len(text) + PER_FRAGMENT
        if self._held > LONGEST_CALLS:
            raise EventTooLong(f"thoughts and calls of one answer are longer than {LONGEST_CALLS} characters")

    def _thoughts(self) -> list[dict[str, Any]]:
        """Those with a signature: without it, nobody takes them back."""
        thoughts: list[dict[str, Any]] = []
        for block in self._blocks:
            kind, data = block.start.type, block.start.data
            if kind == "redacted_thinking" and data:
                thoughts.append({"type": kind, "data": data, "after": block.after})
            elif kind == "thinking" and block.signature:
                text = clean("".join(block.pieces))
                thoughts.append({"type": kind, "thinking": text, "signature": block.signature, "after": block.after})
        return thoughts

    def _tool_uses(self) -> list[llm.ModelEvent]:
        taken: set[str] = set()
        events: list[llm.ModelEvent] = []
        for block in self._blocks:
            if block.start.type != "tool_use":
                continue
            name, arguments, use_id = (
                clean(block.start.name or ""),
                clean(block.arguments()),
                clean(block.start.id or ""),
            )
            if not name and not arguments:
                continue
            if not use_id or use_id in taken:
                use_id = f"toolu_{os.urandom(12).hex()}"
            taken.add(use_id)
            events.append(llm.ToolUse(use_id, name, arguments))
        return events


def _usage_report(usage: Usage) -> llm.UsageReport:
    """`input_tokens` of the API leaves out what was read from the cache or written to it."""
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    details = usage.output_tokens_details or _Details()
    return llm.UsageReport(
        input_tokens=(usage.input_tokens or 0) + read + written,
        output_tokens=usage.output_tokens or 0,
        cached_tokens=read,
        reasoning_tokens=details.thinking_tokens or 0,
        cache_write_tokens=written,
    )
