"""The process of a server on stdio: started, spoken to by lines, and ended for certain.

It leads a session of its own, so that one signal reaches it and all it started. The end is: close its stdin, wait a
little; SIGTERM to the group, wait a little; SIGKILL. No step depends on the server's good will.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path

import anyio

from acp_agent.mcp.base import McpError, ServerSpec
from acp_agent.mcp.content import one_line

log = logging.getLogger(__name__)

READ_SIZE = 64 * 1024
LEAVE = 0.3
"""Seconds a server has to leave by itself once its stdin was closed."""
TERMINATE = 0.2
"""Seconds between SIGTERM and SIGKILL."""
REAP = 0.2
"""Seconds for the kernel to report the end."""
LAST_WORDS = 1.0
"""Seconds for a server whose output has ended to end itself, so that its exit code can be told."""
POLL = 0.005

TAIL = 5
"""Lines of stderr that are told when a server fails."""
LINE = 300
"""Characters of each."""
LOGGED = 256 * 1024
"""Characters of a server's stderr that are logged."""


class ServerProcess:
    """Made by `start`. `stop` must be called, whatever happened."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes]) -> None:
        self._name = name
        self._popen = popen
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._stdin, self._stdout, self._stderr = popen.stdin, popen.stdout, popen.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._junk = ""
        self._said_all = False
        self._exit: int | None = None
        """The exit code of a server that left before it was told to."""
        self._stopping = False
        self._gone = False
        self.too_long = 0
        """The limit in bytes that a line of the server went beyond; 0: none did."""

    @classmethod
    def start(cls, spec: ServerSpec, environ: Mapping[str, str], cwd: Path) -> ServerProcess:
        """Raises McpError, in words, where there is nothing to start."""
        try:
            popen = subprocess.Popen(
                [spec.command, *spec.args],
                cwd=cwd,
                env={**environ, **spec.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise _not_started(spec, cwd, error) from error
        return cls(spec.name, popen)

    @property
    def pid(self) -> int:
        return self._popen.pid

    # --- talking ----------------------------------------------------------------------------------------------

    async def lines(self, limit: int) -> AsyncGenerator[bytes]:
        """The lines of its stdout until that ends. A line of more than `limit` bytes ends them, too."""
        buffer = bytearray()
        while chunk := await _read(self._stdout.fileno()):
            start = len(buffer)
            buffer += chunk
            while (end := buffer.find(b"\n", start)) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                start = 0
                if line.strip():
                    yield line
            if len(buffer) > limit:
                self.too_long = limit
                return

    async def send(self, data: bytes) -> None:
        """Raises OSError when the server does not read any more."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._stdin.fileno(), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._stdin.fileno())

    async def watch_stderr(self) -> None:
        """Logs what it writes there, and keeps the end of it."""
        left = LOGGED
        buffer = b""
        while chunk := await _read(self._stderr.fileno()):
            *lines, buffer = (buffer + chunk).split(b"\n")
            if len(buffer) > READ_SIZE:
                lines, buffer = [*lines, buffer], b""
            for line in lines:
                left = self._heard(line, left)
        self._heard(buffer, left)
        self._said_all = True

    def _heard(self, line: bytes, left: int) -> int:
        text = one_line(line.decode("utf-8", "replace"), LINE)
        if not text:
            return left
        self._tail.append(text)
        if left > 0:
            log.info("%s: %s", self._name, text)
            if left <= len(text):
                log.info("%s: more of its stderr is not logged", self._name)
        return left - len(text)

    def heard_junk(self, line: bytes) -> None:
        """A line of stdout that is no message."""
        if not self._junk:
            log.warning("%s printed what is no MCP message", self._name)
        self._junk = one_line(line.decode("utf-8", "replace"), 100)
        log.info("%s: %s", self._name, self._junk)

    # --- the end ----------------------------------------------------------------------------------------------

    async def left(self) -> None:
        """Waits a little for the exit code and the last words of a server whose output ended."""
        await self._wait(lambda: self._ended() and self._said_all, LAST_WORDS)
        if not self._stopping and self._exit is None:
            self._exit = self._popen.poll()

    async def stop(self) -> None:
        """Ends it and what it started, within 0.7 seconds. Call it shielded, with nobody sending any more."""
        if not self._stopping:
            self._exit = self._popen.poll() if self._exit is None else self._exit
        self._stopping = True
        self._stdin.close()
        await self._wait(self._ended, LEAVE)
        if self._alive():
            self._signal(signal.SIGTERM)
            if not await self._wait(lambda: not self._alive(), TERMINATE):
                self._signal(signal.SIGKILL)
        if not await self._wait(self._ended, REAP):
            log.warning("the process %d of the MCP server %s could not be killed", self.pid, self._name)
        self._gone = True

    def close(self) -> None:
        """Closes the pipes, with nobody reading any more."""
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def kill(self) -> None:
        """Kills it and what it started, now."""
        if not self._gone:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # All of them are gone, or only zombies are left.

    def _ended(self) -> bool:
        return self._popen.poll() is not None

    def _alive(self) -> bool:
        """Whether anything of its group lives."""
        self._popen.poll()
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def _wait(self, happened: Callable[[], bool], seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            while not happened():  # noqa: ASYNC110 - the kernel has no event for the end of a process group
                await anyio.sleep(POLL)
        return happened()

    # --- words ------------------------------------------------------------------------------------------------

    def end_words(self) -> str:
        """How it ended, with its last lines of stderr."""
        if self.too_long:
            return f"it sent a message of more than {self.too_long} bytes"
        code = self._exit
        if code is None:
            words = "it closed its output"
        elif code < 0:
            words = f"its process was killed by {_signal_name(-code)}"
        else:
            words = f"its process exited with code {code}"
        return words + self.said()

    def said(self) -> str:
        """Its last lines, to be put behind a clause; empty where it said nothing."""
        if self._tail:
            return f"; its last words: {' / '.join(self._tail)}"
        if self._junk:
            return f"; it printed what is no MCP message: {self._junk}"
        return ""


async def _read(fd: int) -> bytes:
    while True:
        await anyio.wait_readable(fd)
        try:
            return os.read(fd, READ_SIZE)
        except BlockingIOError:
            continue
        except OSError:
            return b""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _not_started(spec: ServerSpec, cwd: Path, error: OSError | ValueError) -> McpError:
    if not cwd.is_dir():
        return McpError("not_found", f"its working directory {cwd} does not exist")
    if isinstance(error, FileNotFoundError):
        return McpError("not_found", f"the program `{spec.command}` was not found")
    if isinstance(error, PermissionError):
        return McpError("policy_blocked", f"the program `{spec.command}` may not be executed")
    words = error.strerror if isinstance(error, OSError) else str(error)
    return McpError("invalid_input", f"the program `{spec.command}` could not be started: {words}")
