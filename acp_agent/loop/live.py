"""What a person sees of a command while it runs, where the editor does not show it by itself.

Clients that draw terminals from `_meta.terminal_output` (DF-1) get the output as it comes; the others get the tool
call's content replaced a few times a second. Neither is stored: the final update holds what remains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from acp_agent.executors.base import ExitStatus, OutputChunk
from acp_agent.schema.acp import Content, TextContent, ToolCallProgress

__all__ = ["ContentFeed", "Feed", "TerminalFeed", "terminal_info"]

Emit = Callable[[ToolCallProgress], None]


def terminal_info(terminal_id: str, cwd: str) -> dict[str, Any]:
    """The `_meta` that makes a display terminal (DF-1)."""
    return {"terminal_info": {"terminal_id": terminal_id, "cwd": cwd}}


class Feed:
    """Collects chunks; `pump()` sends what came since the last time, at most `rate` times a second."""

    def __init__(self, call_id: str, emit: Emit, rate: int) -> None:
        self._call_id = call_id
        self._emit = emit
        self._pause = 1 / rate
        self._news = anyio.Event()

    def add(self, chunk: OutputChunk) -> None:
        self._take(chunk.text)
        self._news.set()

    async def pump(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            self._send()
            await anyio.sleep(self._pause)

    def finish(self, status: ExitStatus | None) -> dict[str, Any] | None:
        """Sends what is left; the `_meta` of the call's final update."""
        return None

    def _take(self, text: str) -> None: ...

    def _send(self) -> None: ...


class ContentFeed(Feed):
    """The last `limit` characters, as the call's content."""

    def __init__(self, call_id: str, emit: Emit, rate: int, limit: int) -> None:
        super().__init__(call_id, emit, rate)
        self._limit = limit
        self._text = ""

    def _take(self, text: str) -> None:
        self._text = (self._text + text)[-self._limit :]

    def _send(self) -> None:
        content = Content(content=TextContent(text=self._text))
        self._emit(ToolCallProgress(tool_call_id=self._call_id, content=[content]))


class TerminalFeed(Feed):
    """Every character, to the display terminal `call_id`."""

    def __init__(self, call_id: str, emit: Emit, rate: int) -> None:
        super().__init__(call_id, emit, rate)
        self._parts: list[str] = []

    def _take(self, text: str) -> None:
        self._parts.append(text)

    def _send(self) -> None:
        if not self._parts:
            return
        # A display terminal is a terminal: a line feed alone would not return the carriage.
        data = "".join(self._parts).replace("\r\n", "\n").replace("\n", "\r\n")
        self._parts.clear()
        meta = {"terminal_output": {"terminal_id": self._call_id, "data": data}}
        self._emit(ToolCallProgress(tool_call_id=self._call_id, meta=meta))

    def finish(self, status: ExitStatus | None) -> dict[str, Any] | None:
        self._send()
        code = status.exit_code if status is not None else None
        signal = status.signal if status is not None else None
        return {"terminal_exit": {"terminal_id": self._call_id, "exit_code": code, "signal": signal}}
