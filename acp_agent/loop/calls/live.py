"""Live output of a command while it runs, if the editor does not show it itself.

Clients that draw terminals from `_meta.terminal_output` (DF-1) get the output as it arrives; the others get the tool
call's content replaced a few times a second. Neither is stored: the final update holds the result.

A command may print far more than can be shown. Output between two updates is collected unchanged, and what no update
would show is dropped before the rest is searched for credentials. After such a gap the search starts again at the next
line; before it, a possible start of a credential is dropped, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import anyio
import msgspec

from acp_agent.executors.base import ExitStatus, OutputChunk, StreamName
from acp_agent.executors.buffer import LONGEST_CUT_LINE
from acp_agent.legible import verbatim
from acp_agent.output.envelope import bounded
from acp_agent.schema.acp import Content, TextContent, ToolCallProgress

Emit = Callable[[ToolCallProgress], None]
Drain = Callable[[], Awaitable[None]]


class Cleaner(Protocol):
    """Takes credentials out of a stream."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...

    @property
    def held(self) -> int:
        """Characters that were fed and not given yet."""
        ...


Redact = Callable[[], Cleaner]

SPARE = 4
"""Factor of kept to shown output when searching for credentials: marks are shorter than credentials."""

TERMINAL_FACTOR = 16
"""A display terminal gets each character once, a call's content gets it repeatedly, so a terminal may get more at a
time."""


def terminal_info(terminal_id: str, cwd: str) -> dict[str, Any]:
    """The `_meta` that creates a display terminal (DF-1)."""
    return {"terminal_info": {"terminal_id": terminal_id, "cwd": cwd}}


class Gap(msgspec.Struct, frozen=True):
    """The part of one stream that was dropped."""

    size: int
    """Characters."""
    in_line: bool
    """Whether the last line of it is cut."""


class Taken(msgspec.Struct, frozen=True):
    """The chunks since the last time. The gaps are between `first` and `last`."""

    first: Sequence[OutputChunk]
    last: Sequence[OutputChunk]
    gaps: dict[StreamName, Gap]


class Backlog:
    """Chunks as they come; of a flood, the first `head` characters and the last `tail`, both in whole chunks."""

    def __init__(self, head: int, tail: int) -> None:
        self._most = (head, tail)
        self._clear()

    def _clear(self) -> None:
        self._first: list[OutputChunk] = []
        self._last: deque[OutputChunk] = deque()
        self._room, self._size = self._most[0], 0
        self._gaps: dict[StreamName, Gap] = {}

    def add(self, chunk: OutputChunk) -> None:
        if self._room > 0:
            self._first.append(chunk)
            self._room -= len(chunk.text)
            return
        self._last.append(chunk)
        self._size += len(chunk.text)
        while self._size - len(self._last[0].text) >= self._most[1]:
            gone = self._last.popleft()
            self._size -= len(gone.text)
            before = self._gaps[gone.stream].size if gone.stream in self._gaps else 0
            self._gaps[gone.stream] = Gap(before + len(gone.text), not gone.text.endswith("\n"))

    def take(self) -> Taken:
        taken = Taken(self._first, tuple(self._last), self._gaps)
        self._clear()
        return taken


class _Stream:
    """One stream of a command, without its credentials."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._cleaner = redact()
        self._skipping = 0
        """Characters still to be searched for the end of a cut line."""

    def feed(self, text: str) -> tuple[str, int]:
        """Returns the part that may be shown now, and how many characters of a cut line were left out."""
        if not self._skipping:
            return self._cleaner.feed(text), 0
        at = text.find("\n", 0, self._skipping) + 1
        cut = at or min(len(text), self._skipping)
        self._skipping = 0 if at else self._skipping - cut
        return self._cleaner.feed(text[cut:]), cut

    def cut(self, gap: Gap) -> int:
        """Marks a gap; returns the number of missing characters, held ones included."""
        missing = gap.size + self._cleaner.held
        self._cleaner, self._skipping = self._redact(), LONGEST_CUT_LINE if gap.in_line else 0
        return missing

    def finish(self) -> str:
        return self._cleaner.finish()


class Feed:
    """Collects chunks; `pump()` sends what arrived since the last time, at most `rate` times a second."""

    def __init__(
        self, call_id: str, emit: Emit, drain: Drain, rate: int, redact: Redact, *, head: int, tail: int
    ) -> None:
        self._redact = redact
        self._streams: dict[str, _Stream] = {}
        self._backlog = Backlog(head, tail)
        self._call_id = call_id
        self._emit = emit
        self._drain = drain
        self._pause = 1 / rate
        self._news = anyio.Event()

    def add(self, chunk: OutputChunk) -> None:
        self._backlog.add(chunk)
        self._news.set()

    async def pump(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._news.wait()
            await self._drain()  # A client that does not read gets no more updates.
            self._news = anyio.Event()
            self._send()
            await anyio.sleep(self._pause)

    def finish(self, status: ExitStatus | None) -> dict[str, Any] | None:
        """Sends what is left; the `_meta` of the call's final update."""
        return None

    def _taken(self) -> tuple[str, int, str]:
        """Returns the output since the last time, without credentials: the beginning, how many characters are missing
        behind it (0: none, and nothing follows), and the end."""
        taken = self._backlog.take()
        first, missing = self._fed(taken.first)
        missing += sum(self._stream(name).cut(gap) for name, gap in taken.gaps.items())
        last, skipped = self._fed(taken.last)
        return (first, missing + skipped, last) if taken.gaps else (first + last, 0, "")

    def _fed(self, chunks: Sequence[OutputChunk]) -> tuple[str, int]:
        shown, skipped = [], 0
        for chunk in chunks:
            text, cut = self._stream(chunk.stream).feed(chunk.text)
            shown.append(text)
            skipped += cut
        return "".join(shown), skipped

    def _stream(self, name: str) -> _Stream:
        if name not in self._streams:
            self._streams[name] = _Stream(self._redact)
        return self._streams[name]

    def _send(self) -> None: ...


class ContentFeed(Feed):
    """The last `limit` characters, as the call's content."""

    def __init__(self, call_id: str, emit: Emit, drain: Drain, rate: int, limit: int, redact: Redact) -> None:
        super().__init__(call_id, emit, drain, rate, redact, head=0, tail=limit * SPARE)
        self._limit = limit
        self._text = ""

    def _send(self) -> None:
        new, missing, last = self._taken()
        self._text = (last if missing else self._text + new)[-self._limit :]
        content = Content(content=TextContent(text=verbatim(self._text)))
        self._emit(ToolCallProgress(tool_call_id=self._call_id, content=[content]))


class ScreenFeed(Feed):
    """What a terminal's screen shows, as the call's content."""

    def __init__(
        self, call_id: str, emit: Emit, drain: Drain, rate: int, redact: Redact, screen: Callable[[], str]
    ) -> None:
        """`screen`: its text, without credentials."""
        super().__init__(call_id, emit, drain, rate, redact, head=0, tail=0)
        self._screen = screen

    def add(self, chunk: OutputChunk) -> None:
        self._news.set()

    def _send(self) -> None:
        content = Content(content=TextContent(text=verbatim(self._screen())))
        self._emit(ToolCallProgress(tool_call_id=self._call_id, content=[content]))


class TerminalFeed(Feed):
    """Every character, to the display terminal `call_id`; of a flood, the beginning and end of each update."""

    def __init__(self, call_id: str, emit: Emit, drain: Drain, rate: int, limit: int, redact: Redact) -> None:
        self._half = limit * TERMINAL_FACTOR // 2
        super().__init__(call_id, emit, drain, rate, redact, head=self._half, tail=self._half)

    def _send(self) -> None:
        self._show(*self._taken())

    def _show(self, first: str, missing: int, last: str) -> None:
        if missing:
            missing += max(0, len(first) - self._half) + max(0, len(last) - self._half)
            text = f"{first[: self._half]}\n[... {missing} characters omitted ...]\n{last[-self._half :]}"
        else:
            text = bounded(first + last, 2 * self._half)
        if not text:
            return
        # A display terminal is a terminal: a line feed alone would not return the carriage.
        data = text.replace("\r\n", "\n").replace("\n", "\r\n")
        meta = {"terminal_output": {"terminal_id": self._call_id, "data": data}}
        self._emit(ToolCallProgress(tool_call_id=self._call_id, meta=meta))

    def finish(self, status: ExitStatus | None) -> dict[str, Any] | None:
        first, missing, last = self._taken()
        self._show(first, missing, last + "".join(stream.finish() for stream in self._streams.values()))
        self._streams = {}
        code = status.exit_code if status is not None else None
        signal = status.signal if status is not None else None
        return {"terminal_exit": {"terminal_id": self._call_id, "exit_code": code, "signal": signal}}
