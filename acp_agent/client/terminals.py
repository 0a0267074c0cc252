"""`terminal/*` with real processes: one process group and one output buffer for each terminal.

Behaves like an editor's terminal: `create` returns immediately; stdout and stderr share one buffer that keeps its last
`outputByteLimit` bytes; a kill reaches the whole process group; a released id is unknown from then on. Output written
before the process ended is in the buffer when `wait_for_exit` answers, even if a background child still holds the pipe.
"""

from __future__ import annotations

import codecs
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import Process

from acp_agent.child import signal_group, signal_name
from acp_agent.client.tasks import Background
from acp_agent.errors import InternalError, InvalidParams, ResourceNotFound
from acp_agent.schema import acp

READ_SIZE = 64 * 1024
DRAIN_READS = 32
TAIL_BYTES = 4_096


class Terminals:
    """All terminals of one client.

    An async context manager; leaving it releases every terminal. `join_for_shell`: joins `command` and `args` unquoted
    for a shell, as some editors do; otherwise they are executed directly. `env` overrides the environment of this
    process, the request's overrides both.
    """

    def __init__(self, *, join_for_shell: bool = False, env: Mapping[str, str] | None = None) -> None:
        self.join_for_shell = join_for_shell
        self._env = dict(env or {})
        self._numbers = count(1)
        self._open: dict[tuple[str, str], _Terminal] = {}
        self._background: Background | None = None

    async def __aenter__(self) -> Self:
        self._background = await Background().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        background, self._background = self._background, None
        with anyio.CancelScope(shield=True):
            await self.close()
        return background is not None and await background.__aexit__(kind, error, trace)

    @property
    def open(self) -> int:
        """Number of terminals not yet released."""
        return len(self._open)

    def tail(self, terminal_id: str, size: int = TAIL_BYTES) -> str:
        """The last `size` bytes of a terminal's output; nothing if there is no such terminal."""
        for (_, name), terminal in self._open.items():
            if name == terminal_id:
                return terminal.tail(size)
        return ""

    def running(self) -> list[tuple[str, int]]:
        """The ids of the terminals whose process runs, and the process."""
        return [(name, each.pid) for (_, name), each in self._open.items() if not each.exited.is_set()]

    def let_go(self, terminal_id: str) -> str:
        """Lets the process of a terminal go on after this program; returns the file that its output goes to from then
        on."""
        key = next(key for key in self._open if key[1] == terminal_id)
        return self._open.pop(key).let_go()

    async def create(self, request: acp.CreateTerminalRequest) -> acp.CreateTerminalResponse:
        if self._background is None:
            raise InternalError("the terminals are closed")
        argv: Sequence[str] = [request.command, *request.args]
        if self.join_for_shell:
            argv = ["/bin/sh", "-c", " ".join(argv)]
        env = {**os.environ, **self._env, **{variable.name: variable.value for variable in request.env}}
        reading, writing = os.pipe()
        try:
            process = await anyio.open_process(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=subprocess.STDOUT,
                cwd=request.cwd,
                env=env,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(reading)
            raise InternalError(f"cannot start {request.command}: {error}") from error
        finally:
            os.close(writing)
        terminal = _Terminal(process, reading, request.output_byte_limit)
        terminal_id = f"term-{next(self._numbers)}"
        self._open[request.session_id, terminal_id] = terminal
        self._background.start(terminal.watch)
        return acp.CreateTerminalResponse(terminal_id=terminal_id)

    async def output(self, request: acp.TerminalOutputRequest) -> acp.TerminalOutputResponse:
        terminal = self._find(request.session_id, request.terminal_id)
        terminal.drain()
        return acp.TerminalOutputResponse(
            output=terminal.text(), truncated=terminal.truncated, exit_status=terminal.exit_status
        )

    async def wait_for_exit(self, request: acp.WaitForTerminalExitRequest) -> acp.WaitForTerminalExitResponse:
        terminal = self._find(request.session_id, request.terminal_id)
        await terminal.exited.wait()
        status = terminal.exit_status or acp.TerminalExitStatus()
        return acp.WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    async def kill(self, request: acp.KillTerminalRequest) -> acp.KillTerminalResponse:
        """Returns when the process has ended; its output and its id stay."""
        await self._find(request.session_id, request.terminal_id).kill()
        return acp.KillTerminalResponse()

    async def release(self, request: acp.ReleaseTerminalRequest) -> acp.ReleaseTerminalResponse:
        terminal = self._find(request.session_id, request.terminal_id)
        del self._open[request.session_id, request.terminal_id]
        await terminal.release()
        return acp.ReleaseTerminalResponse()

    async def close(self) -> None:
        """Releases every terminal."""
        while self._open:
            _, terminal = self._open.popitem()
            await terminal.release()

    def _find(self, session_id: str, terminal_id: str) -> _Terminal:
        if not terminal_id:
            raise InvalidParams("terminalId is empty")
        terminal = self._open.get((session_id, terminal_id))
        if terminal is None:
            raise ResourceNotFound(f"no such terminal: {terminal_id}")
        return terminal


class _Terminal:
    def __init__(self, process: Process, fd: int, limit: int | None) -> None:
        self.exited = anyio.Event()
        self.exit_status: acp.TerminalExitStatus | None = None
        self.truncated = False
        self._process = process
        self._fd = fd
        self._limit = limit
        self._data = bytearray()
        self._reading = anyio.CancelScope()
        self._watching = anyio.CancelScope(shield=True)
        self._at_end = False
        os.set_blocking(fd, False)

    async def watch(self) -> None:
        """Reads until the pipe is closed by all writers, or until the release, which always ends this."""
        with self._watching:
            async with anyio.create_task_group() as group:
                group.start_soon(self._read)
                code = await self._process.wait()
                self.drain()
                if code < 0:
                    self.exit_status = acp.TerminalExitStatus(signal=signal_name(-code))
                else:
                    self.exit_status = acp.TerminalExitStatus(exit_code=code)
                self.exited.set()

    async def _read(self) -> None:
        try:
            with self._reading:
                while not self._at_end:
                    await anyio.wait_readable(self._fd)
                    self.drain()
        finally:
            self._at_end = True
            os.close(self._fd)

    def drain(self) -> None:
        """Takes what the pipe holds now; bounded, since a writer may be faster than we are."""
        for _ in range(DRAIN_READS):
            if self._at_end:
                return
            try:
                data = os.read(self._fd, READ_SIZE)
            except BlockingIOError:
                return
            self._at_end = not data
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._data += data
        if self._limit is None or len(self._data) <= self._limit:
            return
        self.truncated = True
        start = len(self._data) - self._limit
        while start < len(self._data) and self._data[start] & 0xC0 == 0x80:
            start += 1  # never begins inside a character
        del self._data[:start]

    def text(self) -> str:
        """The output; while the process runs, without an incomplete last character."""
        return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._data), final=self.exited.is_set())

    def tail(self, size: int) -> str:
        return self._data[-size:].decode("utf-8", "ignore")

    async def kill(self) -> None:
        """Kills the whole group. A group whose pipe has ended is empty, and its number may have been reused."""
        if not self.exited.is_set() or not self._at_end:
            signal_group(self._process.pid, signal.SIGKILL)
        await self.exited.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def let_go(self) -> str:
        """Another process reads the pipe, so that nobody is killed for writing to it."""
        self._reading.cancel()
        file, path = tempfile.mkstemp(prefix="acp-coder-", suffix=".log")
        os.write(file, bytes(self._data))
        os.set_blocking(self._fd, True)
        subprocess.Popen(["cat"], stdin=self._fd, stdout=file, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(file)
        self._watching.cancel()
        # asyncio kills what still runs when it forgets it.
        self._process._process._transport.get_extra_info("subprocess").returncode = 0  # type: ignore[attr-defined]
        return path

    async def release(self) -> None:
        await self.kill()
        self._reading.cancel()
