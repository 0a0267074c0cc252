"""A command on another machine: what it prints is told by the program there, in a thread; here it is taken in turn."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator

import anyio
from msgspec import Struct

from acp_agent.child import signal_name
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, ExitStatus, OutputChunk, StreamName, Terminal, TerminalView
from acp_agent.executors.buffer import KeptOutput, Utf8Stream
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.far.news import News
from acp_agent.executors.shell_state import keep_state

log = logging.getLogger(__name__)

KILLS = 10.0
"""Seconds for an order to end something there."""
ENDS = 2.0
"""Seconds for the rest of the output of what was ended."""


class Ended(Struct, frozen=True):
    """What is told of a command's end."""

    code: int | None
    """Negative: the signal. `None`: unknown."""
    cwd: str
    state: bytes
    """Of its shell."""


class HostProcess(KeptOutput):
    view: TerminalView | None = None
    terminal: Terminal | None = None

    def __init__(self, link: FarLink, number: int, mark: str, command: Command, grace: float) -> None:
        super().__init__(command.output_limit)
        self.remark = ""
        self._link, self._number, self._mark = link, number, mark
        self._command = command
        self._grace = grace
        self._decoders: dict[StreamName, Utf8Stream] = {"stdout": Utf8Stream(), "stderr": Utf8Stream()}
        self._news: News[tuple[StreamName, bytes] | Ended] = News()
        self._status: ExitStatus | None = None
        self._losses = link.losses
        self._closed = False

    # --- in the thread that reads -------------------------------------------------------------------------------

    def printed(self, stream: StreamName, data: bytes) -> None:
        self._news.put((stream, data))

    def ended(self, code: int | None, cwd: str, state: bytes) -> None:
        self._news.put(Ended(code, cwd, state))

    # --- the contract -------------------------------------------------------------------------------------------

    async def output(self) -> AsyncIterator[OutputChunk]:
        while True:
            chunks, self._ready = self._ready, []
            for chunk in chunks:
                yield chunk
            if self._status is not None:
                return
            await self._step()

    async def wait(self) -> ExitStatus:
        while self._status is None:
            await self._step()
        return self._status

    async def look(self) -> None:
        if self._status is None:
            self._take()

    async def kill(self) -> None:
        header = {"do": "kill", "run": self._number, "mark": self._mark, "grace": self._grace}
        gone = False
        with anyio.move_on_after(KILLS):
            try:
                gone = bool(await self._link.answer_of(self._link.ask(header)))
            except (ExecutorError, OSError) as error:
                log.warning("the end of a command on %s is not known: %s", self._link.way.words, error)
        if not gone:
            self.remark = f"it is not known whether all that it started {self._link.way.where} was ended"
        with anyio.move_on_after(ENDS):
            await self.wait()
        self._take()
        if self._status is None:
            self._finish(ExitStatus(None, signal.Signals.SIGKILL.name))

    async def close(self) -> None:
        if self._closed:
            return
        if self._status is None:
            with anyio.CancelScope(shield=True):
                await self.kill()
        self._closed = True
        self._link.runs.pop(self._number, None)
        self._news.close()

    # --- taking -------------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        await self._news.wait()
        self._take()

    def _take(self) -> None:
        size = 0
        for news in self._news.take():
            if isinstance(news, Ended):
                if self._status is None:
                    self._finish(self._ended_with(news))
                continue
            stream, data = news
            size += len(data)
            self._add(stream, self._decoders[stream].decode(data))
        if size:
            self._link.send({"do": "heard", "run": self._number, "bytes": size})

    def _finish(self, status: ExitStatus) -> None:
        for stream, decoder in self._decoders.items():
            self._add(stream, decoder.decode(b"", final=True))
        self._no_more()
        self._status = status
        if lost := self._link.losses - self._losses:
            times = "" if lost == 1 else f" {lost} times"
            words = f"the connection to {self._link.way.words} was lost{times} meanwhile; no output is missing"
            self.remark = self.remark or (words if status != ExitStatus() else "")

    def _ended_with(self, ended: Ended) -> ExitStatus:
        if (code := ended.code) is None:
            self.remark = f"{self._link.over}; how the command ended is not known"
            return ExitStatus()
        keep_state(self._command, ended.state, os.fsencode(ended.cwd), self._link.way.words)
        return ExitStatus(None, signal_name(-code)) if code < 0 else ExitStatus(code)
