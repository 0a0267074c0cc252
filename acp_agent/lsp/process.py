"""The process of a language server: started, spoken to by bytes, and ended for certain.

It leads a session of its own, so that one signal reaches it and all it started. The end is: close its stdin, wait a
little; SIGTERM to the group, wait a little; SIGKILL. No step depends on the server's good will.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Callable

import anyio
import anyio.lowlevel

from acp_agent.lsp.base import Launch, LspError

log = logging.getLogger(__name__)

READ_SIZE = 64 * 1024
LEAVE = 0.2
"""Seconds a server has to leave by itself once its stdin was closed."""
TERMINATE = 0.2
"""Seconds between SIGTERM and SIGKILL."""
REAP = 0.2
"""Seconds for the kernel to report the end."""
POLL = 0.005

TAIL = 5
"""Lines of stderr that are told when a server fails."""
LINE = 200
"""Characters of each."""

CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]+")


def one_line(text: str, limit: int) -> str:
    """The text without control characters, at most `limit` characters of it."""
    line = " ".join(CONTROL.sub(" ", text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class Process:
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
        self._said_all = False
        self._exit: int | None = None
        """The exit code of a server that left before it was told to."""
        self._stopping = False
        self._gone = False

    @classmethod
    def start(cls, name: str, launch: Launch) -> Process:
        """Raises LspError, in words, where there is nothing to start. `Launch.started` is called in any case."""
        try:
            popen = subprocess.Popen(
                list(launch.argv),
                cwd=launch.cwd,
                env=dict(launch.env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                pass_fds=launch.pass_fds,
            )
        except (OSError, ValueError) as error:
            raise LspError(f"the language server {name} could not be started: {error}") from error
        finally:
            launch.started()
        return cls(name, popen)

    @property
    def pid(self) -> int:
        return self._popen.pid

    # --- talking ----------------------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """What it has written; empty at the end of its output."""
        return await _read(self._stdout.fileno())

    async def send(self, data: bytes) -> None:
        """Raises OSError when the server does not read any more."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._stdin.fileno(), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._stdin.fileno())

    async def watch_stderr(self) -> None:
        """Keeps the end of what it writes there."""
        buffer = b""
        while chunk := await _read(self._stderr.fileno()):
            *lines, buffer = (buffer + chunk).split(b"\n")
            if len(buffer) > READ_SIZE:
                lines, buffer = [*lines, buffer], b""
            for line in lines[-TAIL:]:
                self.heard(line)
        self.heard(buffer)
        self._said_all = True

    def heard(self, line: bytes) -> None:
        """A line that is no message, for the words about its end."""
        if text := one_line(line[: 4 * LINE].decode("utf-8", "replace"), LINE):
            self._tail.append(text)
            log.debug("%s: %s", self._name, text)

    # --- the end ----------------------------------------------------------------------------------------------

    async def left(self) -> None:
        """Waits a little for the exit code and the last words of a server whose output ended."""
        await self._wait(lambda: self._ended() and self._said_all, REAP)
        if not self._stopping and self._exit is None:
            self._exit = self._popen.poll()

    async def stop(self) -> None:
        """Ends it and what it started, within 0.6 seconds. Call it shielded, with nobody sending any more."""
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
            log.warning("the process %d of the language server %s could not be killed", self.pid, self._name)
        self._gone = True

    def close(self) -> None:
        """Kills what is left, and closes the pipes, with nobody reading any more."""
        if not self._gone:
            self._signal(signal.SIGKILL)
            try:
                self._popen.wait(REAP)
            except subprocess.TimeoutExpired:
                log.warning("the process %d of the language server %s could not be killed", self.pid, self._name)
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

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
        """How it ended, with its last words."""
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
        return f"; its last words: {' / '.join(self._tail)}" if self._tail else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def _read(fd: int) -> bytes:
    while True:
        await anyio.lowlevel.checkpoint()
        try:
            return os.read(fd, READ_SIZE)
        except BlockingIOError:
            await anyio.wait_readable(fd)
        except OSError:
            return b""
