"""A command in a terminal of its own (a pty), that can be typed into and shows a screen."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import termios
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import anyio
from msgspec.structs import replace

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Foreground, OutputChunk, StreamName, Terminal, TerminalSize
from acp_agent.executors.local import LocalProcess, kill_marked
from acp_agent.executors.sandbox.base import Confined
from acp_agent.executors.terminals.pseudo_terminal import Pty
from acp_agent.executors.terminals.screen import Screen
from acp_agent.limits.descriptors import restoring

SHELLS = frozenset({"ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"})
VALUED = re.compile(r"[-+]\w*[oOC]|--(rcfile|init-file|init-command|features|profile|emulate)")
"""Their options that the next word belongs to."""
MANY_PROGRAMS = "busybox"
"""One that is as many by its first word."""
PASSED_ON = 2.0
"""Seconds for the last of its output to come, where others pass it on."""


class TerminalProcess(LocalProcess):
    """`stdout` and `combined` are what its screen shows, with the lines that have scrolled off."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        pty: Pty,
        mark: str,
        size: TerminalSize,
        grace: float,
        confined: Confined | None = None,
    ) -> None:
        self._screen = Screen(size.columns, size.rows, size.history, self._answer)
        self._pty = pty
        self.terminal: Terminal | None = self
        self.pending: str | None = ""
        self._news = anyio.Event()
        super().__init__(popen, mark, 0, grace, confined, {"stdout": pty.ours})

    def _answer(self, data: bytes) -> None:
        """As the emulator draws."""
        if not self._closed:
            self._pty.answer(data)

    def _read_some(self, fd: int) -> bytes:
        try:
            return super()._read_some(fd)
        except BlockingIOError:
            raise
        except OSError:  # Nothing has it open any more.
            return b""

    def _take(self, stream: StreamName, data: bytes) -> None:
        self._screen.add(data)
        if text := self._decoders[stream].decode(data, final=not data):
            self._ready.append(OutputChunk(stream, text))
        self._news.set()

    async def _last(self) -> None:
        if self._pty.finish():
            with anyio.move_on_after(PASSED_ON):
                while self._pty.ours in self._selector.get_map():
                    await anyio.wait_readable(self._pty.ours)
                    self._read(self._pty.ours, "stdout")

    async def close(self) -> None:
        closed = self._closed
        await super().close()
        if not closed:
            self._pty.closed()

    async def settled(self, quiet: float, most: float) -> None:
        """Somebody else must be reading its output."""
        with anyio.move_on_after(most):
            while not self._ended:
                self._news = anyio.Event()
                with anyio.move_on_after(quiet) as scope:
                    await self._news.wait()
                if scope.cancelled_caught:
                    return

    async def type(self, data: bytes) -> None:
        if self._ended or self._closed:
            raise ExecutorError("the program has ended, so nothing was typed")
        await self._pty.type(data)

    def foreground(self) -> Foreground:
        group = 0
        if not self._closed:
            with contextlib.suppress(OSError):
                group = max(0, self._pty.group(self._popen.pid))
        found = _foreground(group)
        return replace(found, behind=not found.prompts and self._shell_above(group))

    async def captured(self, *flags: str) -> str | None:
        return await self._pty.captured(*flags)

    def force(self) -> bool:
        found = self.foreground()
        if not found.group or found.group == self._popen.pid or not found.behind:
            return False
        _signal(found.group, signal.SIGKILL)
        return True

    def _shell_above(self, pid: int) -> bool:
        if pid < 2 or pid == self._popen.pid:
            return False
        above = _parent(pid) or self._popen.pid
        return _foreground(above).prompts or self._shell_above(above)

    @property
    def interrupts(self) -> bool:
        with contextlib.suppress(termios.error):
            modes = self._pty.modes
            return bool(modes[3] & termios.ISIG) and modes[6][termios.VINTR] == b"\x03"
        return False

    async def kill(self) -> None:
        if not self._ended:
            # Not only the shell's own group: an interactive shell gives each job one, and ignores SIGTERM.
            group = self.foreground().group
            for number in (signal.SIGHUP, signal.SIGCONT):
                for each in {group, self._popen.pid} - {0}:
                    _signal(each, number)
        await super().kill()
        self.remark = await kill_marked(self._mark) or self.remark

    def text(self) -> str:
        return self._screen.text()

    def rows(self, *, join: bool = False, keep_spaces: bool = False) -> tuple[list[str], int]:
        return self._screen.rows(join=join, keep_spaces=keep_spaces)

    @property
    def alternate(self) -> bool:
        return self._screen.alternate

    @property
    def application_keys(self) -> bool:
        return self._screen.application_keys

    @property
    def stdout(self) -> str:
        return self.text()

    @property
    def combined(self) -> str:
        return self.text()

    @property
    def truncated(self) -> bool:
        return bool(self.lost)

    @property
    def lost(self) -> str:
        lines, left_out = self._screen.lost_lines, self._screen.left_out
        words = [f"{lines} lines at the start"] if lines else []
        return " and ".join([*words, f"{left_out} bytes that came too fast"] if left_out else words)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _foreground(group: int) -> Foreground:
    if not group:
        return Foreground("", 0, False, None)
    folder: Path | None = None
    try:
        program = Path(os.readlink(f"/proc/{group}/exe")).name
        folder = Path(os.readlink(f"/proc/{group}/cwd"))
        with open(f"/proc/{group}/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read().rstrip(b"\0").split(b"\0")]
        if program == MANY_PROGRAMS:
            words = words[1:] if _base(words[0]) == program and words[1:] else words
            program = _base(words[0])
    except OSError:  # Not Linux, or another user's.
        words = _asked(group)
        program = _base(words[0]) if words else ""
    return Foreground(program, group, program in SHELLS and _takes_lines(words[1:]), folder)


def _parent(pid: int) -> int:
    """0 if it is unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])
    return 0


def _base(word: str) -> str:
    return word.rpartition("/")[2].removeprefix("-")


def _takes_lines(arguments: Sequence[str]) -> bool:
    """Whether a shell with these arguments reads commands from its terminal: it has no script and no `-c`."""
    for before, word in pairwise(("", *arguments)):
        option = word.startswith(("-", "+"))
        if (option and not word.startswith("--") and "c" in word) or not (option or VALUED.fullmatch(before)):
            return False
    return True


def _asked(pid: int) -> list[str]:
    """The words of its command line, as `ps` has them."""
    try:
        argv = ["/bin/ps", "-o", "args=", "-p", str(pid)]
        return os.fsdecode(
            subprocess.run(argv, capture_output=True, timeout=1, check=False, **restoring()).stdout
        ).split()
    except (OSError, subprocess.SubprocessError):
        return []
