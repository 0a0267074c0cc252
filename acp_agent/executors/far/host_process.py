"""A command on another machine: what it prints is told by the program there, in a thread; here it is taken in turn."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread

from acp_agent.child import signal_name
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, ExitStatus, OutputChunk, StreamName, Terminal, TerminalView
from acp_agent.executors.buffer import KeptOutput, Utf8Stream
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.shell_state import store_state

log = logging.getLogger(__name__)

KILLS = 10.0
"""Seconds for an order to end something there."""
ENDS = 2.0
"""Seconds for the rest of the output of what was ended."""


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
        self._lock = threading.Lock()
        self._news: deque[tuple[StreamName, bytes]] = deque()
        self._told: tuple[int | None, str, bytes] | None = None
        self._reads, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._status: ExitStatus | None = None
        self._losses = link.losses
        self._killed = self._closed = False

    # --- in the thread that reads -------------------------------------------------------------------------------

    def printed(self, stream: StreamName, data: bytes) -> None:
        with self._lock:
            if not self._closed:
                self._news.append((stream, data))
                self._wake()

    def ended(self, code: int | None, cwd: str, state: bytes) -> None:
        with self._lock:
            if not self._closed and self._told is None:
                self._told = (code, cwd, state)
                self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wakes, b"x")
        except BlockingIOError:
            pass

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
        if self._status is None and not self._closed:
            self._take()

    async def kill(self) -> None:
        self._killed = True
        header = {"do": "kill", "run": self._number, "mark": self._mark, "grace": self._grace}
        gone = False
        with anyio.move_on_after(KILLS):
            try:
                answer = self._link.ask(header)
                try:
                    gone = bool(await anyio.to_thread.run_sync(self._link.value_of, answer, abandon_on_cancel=True))
                finally:
                    answer.cancel()  # The thread that waits for it ends.
            except (ExecutorError, OSError) as error:
                log.warning("the end of a command on %s is not known: %s", self._link.way.words, error)
        if not gone:
            self.remark = f"it is not known whether all that it started on {self._link.way.words} was ended"
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
        with self._lock:
            self._closed = True
            self._news.clear()
        self._link.runs.pop(self._number, None)
        os.close(self._reads)
        os.close(self._wakes)

    # --- taking -------------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        await anyio.wait_readable(self._reads)
        self._take()

    def _take(self) -> None:
        try:
            os.read(self._reads, 4096)
        except BlockingIOError:
            return
        with self._lock:
            news, told = list(self._news), self._told
            self._news.clear()
        size = 0
        for stream, data in news:
            size += len(data)
            self._add(stream, self._decoders[stream].decode(data))
        if size:
            self._link.send({"do": "heard", "run": self._number, "bytes": size})
        if told is not None and self._status is None:
            self._finish(self._ended_with(*told))

    def _finish(self, status: ExitStatus) -> None:
        for stream, decoder in self._decoders.items():
            self._add(stream, decoder.decode(b"", final=True))
        self._no_more()
        self._status = status
        if lost := self._link.losses - self._losses:
            times = "" if lost == 1 else f" {lost} times"
            words = f"the connection to {self._link.way.words} was lost{times} meanwhile; no output is missing"
            self.remark = self.remark or (words if status != ExitStatus() else "")

    def _ended_with(self, code: int | None, cwd: str, state: bytes) -> ExitStatus:
        if code is None:
            self.remark = f"{self._link.over}; how the command ended is not known"
            return ExitStatus()
        if self._command.state_file is not None and self._command.keeps_state and cwd and state:
            try:
                store_state(self._command.state_file, state, os.fsencode(cwd))
            except OSError as error:
                log.warning("the state of the shell could not be stored: %s", error)
        return ExitStatus(None, signal_name(-code)) if code < 0 else ExitStatus(code)
