"""A child process: started, connected through its pipes, and reliably ended.

MCP servers, language servers and other agents are children. It leads its own session, so that one signal reaches it and
everything it started. It is ended by closing its stdin, then SIGTERM to the group, then SIGKILL, with a short wait
after each. No step depends on its cooperation.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import anyio
import anyio.lowlevel
from msgspec import Struct

from acp_agent.limits.descriptors import restoring

log = logging.getLogger(__name__)

READ_SIZE = 64 * 1024
LEAVE = 0.3
"""Seconds a child has to exit by itself after its stdin was closed."""
TERMINATE = 0.2
"""Seconds between SIGTERM and SIGKILL."""
REAP = 0.2
"""Seconds for the kernel to report the end."""
LAST_WORDS = 5.0
"""Seconds for a child whose output has ended to exit, so that its exit code can be reported."""
POLL = 0.005

STDERR_BYTES = 64 * 1024
"""How much of the end of its stderr is kept."""
STDERR_READS = 16
"""How many reads of its stderr before other tasks get a turn: it may write faster than we read."""
TAIL = 5
"""Lines of it that are reported when it fails."""
LINE = 300
"""Characters of each."""
LOGGED = 256 * 1024
"""Bytes of its stderr that are logged."""

CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]+")


def one_line(text: str, limit: int) -> str:
    """Returns at most `limit` characters of the text, without control characters."""
    line = " ".join(CONTROL.sub(" ", text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def signal_group(leader: int, number: int) -> bool:
    """Sends a signal to a process group (0 only checks). Returns whether any of the group is alive."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):  # All of them are gone, or only zombies are left.
        return False
    return True


def readable(stream: IO[bytes] | int, seconds: float) -> bool:
    """Waits until it can be read, or has ended; `select` knows no high descriptors."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def exit_descriptor(popen: subprocess.Popen[bytes]) -> int:
    """A descriptor that becomes readable when the process has ended. The process must not have been reaped."""
    try:
        return os.pidfd_open(popen.pid)
    except (AttributeError, OSError):
        reader, writer = os.pipe()

        def watch() -> None:
            popen.wait()
            os.close(writer)

        threading.Thread(target=watch, daemon=True).start()
        return reader


class User(Struct, frozen=True):
    """Another user, whom a process runs as."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: Path

    @property
    def popen(self) -> dict[str, Any]:
        """Arguments of `Popen`."""
        return {"user": self.uid, "group": self.gid, "extra_groups": self.groups}

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name}


class Child:
    """Created by `start`. `close` must always be called, `end` before it if possible."""

    leave = LEAVE
    terminate = TERMINATE
    """0: SIGKILL at once."""
    log_level = logging.DEBUG
    """The level at which its stderr is logged."""
    said_line: Callable[[str], None] | None = None
    """Gets each line of its stderr."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes]) -> None:
        """`name`: its name in the log."""
        self._name = name
        self._popen = popen
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._stdin, self._stdout, self._stderr = popen.stdin, popen.stdout, popen.stderr
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        self._said = bytearray()
        self._said_all = False
        self._unlogged = b""
        self._may_log = LOGGED
        self._exit: int | None = None
        """The exit code, if it exited before it was told to."""
        self._ending = False
        self._gone = False

    @classmethod
    def start(
        cls,
        name: str,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        user: User | None = None,
    ) -> Self:
        """`env`: its complete environment. `user`: whom it runs as, if not our own. Raises OSError or ValueError if it
        cannot be started."""
        popen = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            pass_fds=pass_fds,
            **(user.popen if user is not None else {}),
            **restoring(),
        )
        return cls(name, popen)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """`None` while it runs; negative when a signal ended it."""
        return self._popen.poll()

    # --- talking ----------------------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """Reads its output; empty at the end of its output."""
        while True:
            await anyio.lowlevel.checkpoint()
            try:
                return os.read(self._stdout.fileno(), READ_SIZE)
            except BlockingIOError:
                await anyio.wait_readable(self._stdout.fileno())
            except OSError:
                return b""

    async def send(self, data: bytes) -> None:
        """Raises OSError if it no longer reads."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._stdin.fileno(), rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._stdin.fileno())

    async def watch_stderr(self) -> None:
        """Reads its stderr until the end, so that it never stalls on a full pipe. Logs it and keeps the end of it."""
        while not self._said_all:
            await anyio.wait_readable(self._stderr.fileno())
            self._take_stderr()

    @property
    def stderr(self) -> str:
        """The end of its stderr so far."""
        self._take_stderr()
        return self._said.decode("utf-8", "replace")

    def heard(self, line: bytes) -> None:
        """Keeps a line of its stdout that is not a message, for the report of its end."""
        self._hear(line + b"\n")

    def _take_stderr(self) -> None:
        for _ in range(STDERR_READS):
            if self._said_all or self._stderr.closed:
                return
            try:
                data = os.read(self._stderr.fileno(), READ_SIZE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self._said_all = not data
            self._hear(data)

    def _hear(self, data: bytes) -> None:
        self._said += data
        del self._said[:-STDERR_BYTES]
        told = self._may_log > 0 and log.isEnabledFor(self.log_level)
        if not told and self.said_line is None:
            return
        *lines, self._unlogged = (self._unlogged + data).split(b"\n")
        if len(self._unlogged) > READ_SIZE or self._said_all:
            lines, self._unlogged = [*lines, self._unlogged], b""
        for line in lines:
            text = one_line(line.decode("utf-8", "replace"), LINE)
            if text and self.said_line is not None:
                self.said_line(text)
            if text and told and self._may_log > 0:
                self._may_log -= len(text)
                log.log(self.log_level, "%s: %s", self._name, text)
                if self._may_log <= 0:
                    log.log(self.log_level, "%s: more of its stderr is not logged", self._name)

    # --- the end ----------------------------------------------------------------------------------------------

    async def wait(self) -> int:
        """Waits for the exit code. Any number of tasks may wait."""
        while (code := self._popen.poll()) is None:
            descriptor = exit_descriptor(self._popen)
            try:
                await anyio.wait_readable(descriptor)
            finally:
                os.close(descriptor)
        return code

    async def left(self) -> None:
        """Waits briefly for the exit code and the last stderr of a child whose output ended."""
        await _until(lambda: self._ended() and self._said_all, LAST_WORDS)
        if not self._ending and self._exit is None:
            self._exit = self._popen.poll()

    def close_stdin(self) -> None:
        """Closes its stdin; nobody may be sending. Idempotent."""
        self._stdin.close()

    async def end(self) -> None:
        """Ends it and what it started, within little more than `leave` plus `terminate`. Call it shielded, with nobody
        sending."""
        if not self._ending and self._exit is None:
            self._exit = self._popen.poll()
        self._ending = True
        self.close_stdin()
        with anyio.move_on_after(self.leave):
            await self.wait()
        if self._alive():
            if self.terminate:
                signal_group(self.pid, signal.SIGTERM)
            if not self.terminate or not await _until(lambda: not self._alive(), self.terminate):
                signal_group(self.pid, signal.SIGKILL)
        if not await _until(self._ended, REAP):
            log.warning("the process %d of %s could not be killed", self.pid, self._name)
        self._gone = True

    def kill(self) -> None:
        """Kills it and what it started, now."""
        if not self._gone:
            signal_group(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kills what is left and closes the pipes; nobody may be reading. The kept output stays."""
        if not self._gone:
            self.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(REAP)
        self._take_stderr()
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()

    def _ended(self) -> bool:
        return self._popen.poll() is not None

    def _alive(self) -> bool:
        """Whether any of its group is alive."""
        self._popen.poll()
        return signal_group(self.pid, 0)

    # --- words ------------------------------------------------------------------------------------------------

    def end_words(self) -> str:
        """How it ended, with its last output."""
        code = self._exit
        if code is None:
            words = "it closed its output"
        elif code < 0:
            words = f"its process was killed by {signal_name(-code)}"
        else:
            words = f"its process exited with code {code}"
        return words + self.said()

    def said(self) -> str:
        """Its last lines, to append to a sentence; empty if it printed nothing."""
        lines = (one_line(line, LINE) for line in self._said.decode("utf-8", "replace").split("\n"))
        tail = [line for line in lines if line][-TAIL:]
        return f"; its last output: {' / '.join(tail)}" if tail else ""


async def _until(happened: Callable[[], bool], seconds: float) -> bool:
    with anyio.move_on_after(seconds):
        while not happened():  # noqa: ASYNC110 - the kernel has no event for the end of a process group
            await anyio.sleep(POLL)
    return happened()
