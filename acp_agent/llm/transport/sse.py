"""Server-sent events without I/O: bytes in, events out, however the network cut them.

The format is that of the WHATWG HTML standard, section "Server-sent events". `id` and `retry` are ignored: a model's
answer cannot be resumed. Data stays `bytes` until an event is complete, so a cut inside a UTF-8 sequence needs no
special care.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec import Struct

from acp_agent.limits.decoding import read_json
from acp_agent.llm.base import ModelEvent

_BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n" + _BOM
"""What may stand around JSON."""
STREAM = b":deir"
"""How a stream begins: with a comment, `data`, `event`, `id` or `retry`."""


LONGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of an event, or of an answer that is no stream."""


class EventTooLong(ValueError):
    """A line or an event exceeded the decoder's limit: not a stream of model deltas."""


class ServerSentEvent(Struct, frozen=True):
    data: bytes
    """All `data` lines, joined by a newline."""
    event: bytes = b""
    """The event's name; empty if the server sent none."""


class SseDecoder:
    """Decodes one stream. `feed()` returns the events that became complete; never keeps more than `limit` bytes."""

    def __init__(self, *, limit: int = LONGEST_ANSWER) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0
        self._skip_newline = False
        self._at_start = True
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = b""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Raises `EventTooLong` when a line or an event exceeds the limit."""
        if not chunk:
            return []
        if self._skip_newline and chunk[0] == 0x0A:
            chunk = chunk[1:]
        self._skip_newline = False
        if b"\r" in chunk:
            # A carriage return ends its line immediately; a newline after it, perhaps in the next chunk, belongs to it.
            self._skip_newline = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        head, newline, tail = chunk.partition(b"\n")
        self._parts.append(head)
        self._held += len(head)
        self._check_bound()
        if not newline:
            return []
        lines = tail.split(b"\n")
        first = b"".join(self._parts)
        rest = lines.pop()
        self._parts = [rest] if rest else []
        self._held = len(rest)
        if self._at_start:
            first = first.removeprefix(_BOM)
            self._at_start = False
        events: list[ServerSentEvent] = []
        self._line(first, events)
        for line in lines:
            self._line(line, events)
        self._check_bound()
        return events

    def finish(self) -> list[ServerSentEvent]:
        """Returns the event in which the stream ended, for servers that close without the last blank line."""
        events: list[ServerSentEvent] = []
        self._line(b"".join(self._parts), events)
        self._parts, self._held = [], 0
        self._line(b"", events)
        return events

    def _line(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._data_size += len(value)
        elif not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                events.append(ServerSentEvent(data, self._event))
                self._data = []
                self._data_size = 0
            self._event = b""
        elif line.startswith(b"event:"):
            self._event = line[6:].removeprefix(b" ")
        elif line == b"data":
            self._data.append(b"")

    def _check_bound(self) -> None:
        if self._held + self._data_size > self._limit:
            raise EventTooLong(f"an event of the stream is longer than {self._limit} bytes")


class FoldedAnswer(Protocol):
    """An answer folded from its events, without I/O."""

    @property
    def done(self) -> bool:
        """Whether nothing of interest follows."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the answer is complete."""
        ...

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Takes the data of one event, or a whole answer that was not streamed. Raises `ErrorInAnswer`."""
        ...

    def finish(self) -> list[ModelEvent]:
        """Returns what was held back, the tool calls, the usage, and `Finished`."""
        ...


class BytesReader(Protocol):
    """Reads one answer from its bytes, without I/O. Raises what `answer` raises, `WebPage`, `EventTooLong`."""

    def feed(self, chunk: bytes) -> Iterator[ModelEvent]: ...

    def end(self) -> Iterator[ModelEvent]:
        """Returns the events completed by the end of the bytes."""
        ...


class WebPage(Exception):
    """The answer is HTML: the base URL points to a web page."""


class AnswerReader:
    """Reads one answer from its bytes, whatever their type is said to be: a stream of events, JSON documents of one
    line each, one document, or a list of them.

    Raises what `answer` raises, `WebPage`, and `EventTooLong` when the answer exceeds `limit` bytes. Events before an
    error are returned first.
    """

    def __init__(self, answer: FoldedAnswer, *, limit: int = LONGEST_ANSWER) -> None:
        self.answer = answer
        self._limit = limit
        self._events = SseDecoder(limit=limit)
        self._document: bytearray | None = None
        """Of JSON: what is not read yet."""
        self._laid_out = False
        """Whether that is one document over several lines, which is read at the end."""
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[ModelEvent]:
        if not self._begun and (start := chunk.lstrip(BLANK)):
            self._begun = True
            if start[0] == ord("<"):
                raise WebPage
            if start[0] not in STREAM:
                self._document = bytearray()
                chunk = start
        if self._document is None:
            yield from self._of(self._events.feed(chunk))
            return
        *lines, rest = chunk.split(b"\n") if not self._laid_out else (chunk,)
        for line in lines:
            self._document += line + b"\n"
            whole = bytes(self._document).strip(BLANK) if not self._laid_out else b""
            self._laid_out = self._laid_out or bool(whole and not (whole.startswith(b"{") and whole.endswith(b"}")))
            if not self._laid_out:
                self._document.clear()
            if whole and not self._laid_out:
                yield from self.answer.feed(whole)
        self._document += rest
        if len(self._document) > self._limit:
            raise EventTooLong(f"the answer is longer than {self._limit} bytes")

    def end(self) -> Iterator[ModelEvent]:
        """Returns the events completed by the end of the bytes. Afterwards `answer.ended` says whether the answer is
        complete."""
        document = bytes(self._document or b"").strip(BLANK)
        documents = [document] if document else []
        if document.startswith(b"["):
            with suppress(ValueError):
                documents = [bytes(each) for each in read_json(document, list[msgspec.Raw])]
        for each in documents:
            yield from self.answer.feed(each)
        yield from self._of(self._events.finish())

    def _of(self, events: list[ServerSentEvent]) -> Iterator[ModelEvent]:
        for event in events:
            lines = event.data.split(b"\n")
            # Some servers leave out the blank lines between events.
            apart = len(lines) > 1 and all(line.startswith((b"{", b"[DONE]")) for line in lines)
            for data in lines if apart else [event.data]:
                yield from self.answer.feed(data)
