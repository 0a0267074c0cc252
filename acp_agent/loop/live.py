"""What a person sees of a command while it runs, where the editor does not show it by itself.

Clients that draw terminals from `_meta.terminal_output` (DF-1) get the output as it comes; the others get the tool
call's content replaced a few times a second. Neither is stored: the final update holds what remains.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import anyio

from acp_agent.executors.base import ExitStatus, OutputChunk
from acp_agent.executors.buffer import BoundedText
from acp_agent.schema.acp import Content, TextContent, ToolCallProgress

__all__ = ["ContentFeed", "Feed", "TerminalFeed", "terminal_info"]

Emit = Callable[[ToolCallProgress], None]
Drain = Callable[[], Awaitable[None]]


class Cleaner(Protocol):
    """Takes credentials out of a stream."""

    def feed(self, text: str) -> str: ...

    def finish(self) -> str: ...


Redact = Callable[[], Cleaner]

TERMINAL_FACTOR = 16
"""A display terminal gets each character once, the content of a call again and again: it may get more at once."""


def terminal_info(terminal_id: str, cwd: str) -> dict[str, Any]:
    """The `_meta` that makes a display terminal (DF-1)."""
    return {"terminal_info": {"terminal_id": terminal_id, "cwd": cwd}}


class Feed:
    """Collects chunks; `pump()` sends what came since the last time, at most `rate` times a second."""

    def __init__(self, call_id: str, emit: Emit, drain: Drain, rate: int, redact: Redact) -> None:
        self._redact = redact
        self._streams: dict[str, Cleaner] = {}
        self._call_id = call_id
        self._emit = emit
        self._drain = drain
        self._pause = 1 / rate
        self._news = anyio.Event()

    def add(self, chunk: OutputChunk) -> None:
        if chunk.stream not in self._streams:
            self._streams[chunk.stream] = self._redact()
        self._take(self._streams[chunk.stream].feed(chunk.text))
        self._news.set()

    async def pump(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._news.wait()
            await self._drain()  # A client that does not read is not told more.
            self._news = anyio.Event()
            self._send()
            await anyio.sleep(self._pause)

    def finish(self, status: ExitStatus | None) -> dict[str, Any] | None:
        """Sends what is left; the `_meta` of the call's final update."""
        for stream in self._streams.values():
            self._take(stream.finish())
        self._streams = {}
        return None

    def _take(self, text: str) -> None: ...

    def _send(self) -> None: ...


class ContentFeed(Feed):
    """The last `limit` characters, as the call's content."""

    def __init__(self, call_id: str, emit: Emit, drain: Drain, rate: int, limit: int, redact: Redact) -> None:
        super().__init__(call_id, emit, drain, rate, redact)
        self._limit = limit
        self._text = ""

    def _take(self, text: str) -> None:
        self._text = (self._text + text)[-self._limit :]

    def _send(self) -> None:
        content = Content(content=TextContent(text=self._text))
        self._emit(ToolCallProgress(tool_call_id=self._call_id, content=[content]))


class TerminalFeed(Feed):
    """Every character, to the display terminal `call_id`; of a flood, the beginning and end of each update."""

    def __init__(self, call_id: str, emit: Emit, drain: Drain, rate: int, limit: int, redact: Redact) -> None:
        super().__init__(call_id, emit, drain, rate, redact)
        self._limit = limit * TERMINAL_FACTOR
        self._new = BoundedText(self._limit)

    def _take(self, text: str) -> None:
        self._new.add(text)

    def _send(self) -> None:
        text = self._new.text()
        if not text:
            return
        self._new = BoundedText(self._limit)
        # A display terminal is a terminal: a line feed alone would not return the carriage.
        data = text.replace("\r\n", "\n").replace("\n", "\r\n")
        meta = {"terminal_output": {"terminal_id": self._call_id, "data": data}}
        self._emit(ToolCallProgress(tool_call_id=self._call_id, meta=meta))

    def finish(self, status: ExitStatus | None) -> dict[str, Any] | None:
        super().finish(status)
        self._send()
        code = status.exit_code if status is not None else None
        signal = status.signal if status is not None else None
        return {"terminal_exit": {"terminal_id": self._call_id, "exit_code": code, "signal": signal}}
