"""A terminal of our own: both ends of a pty, and what a program in it is started with."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import termios
from typing import Any

import anyio

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import TerminalSize

TAKE_OVER = 'exec 0<>"$0" 1>&0 2>&0 && exec "$@"'
"""A session's leader that opens a terminal gets it as its own: then `^C` is a signal, and /dev/tty is there."""
ANSWERS = 4096
"""Bytes of answers to a program's questions about its terminal that may wait to be read by it."""
READ_WITHIN = 5.0
"""Seconds within which a program must read what is typed, once no more fits into its terminal."""
UNQUIET = ("GIT_TERMINAL_PROMPT", "GIT_EDITOR", "PAGER", "MANPAGER", "GIT_PAGER")
"""Variables that keep programs from asking, where nobody can answer."""


def unquieted(kind: str) -> str:
    """A line for a shell that has the state of one without a terminal. `kind`: for TERM."""
    return f"unset {' '.join(UNQUIET)}; export TERM={kind}"


class Pty:
    """`ours` and `theirs`: both ends. `name`: of that of the program."""

    def __init__(self, ours: int, theirs: int, name: str) -> None:
        self.ours = ours
        self.theirs = theirs
        self.name = name
        self._open = {ours, theirs}

    def argv(self, bash: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Starts `argv` with it as its terminal. `-p`: without $BASH_ENV, which only the sandbox may read."""
        return bash, "-p", "-c", TAKE_OVER, self.name, *argv

    def given(self) -> None:
        """The program has it."""
        self._shut(self.theirs)

    def _shut(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)

    def group(self, leader: int) -> int:
        """The process group in front, of a session with that leader. Raises OSError."""
        return os.tcgetpgrp(self.ours)

    @property
    def modes(self) -> list[Any]:
        """As of `termios.tcgetattr`. Raises termios.error."""
        return termios.tcgetattr(self.ours)

    def answer(self, data: bytes) -> None:
        """To a program that asks its terminal something; never blocks, and what it does not read is lost."""
        with contextlib.suppress(OSError):
            os.write(self.ours, data[:ANSWERS])

    async def type(self, data: bytes) -> None:
        """Raises ExecutorError."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.ours, rest) :]
            except BlockingIOError:
                with anyio.move_on_after(READ_WITHIN) as scope:
                    await anyio.wait_writable(self.ours)
                if scope.cancelled_caught:
                    raise ExecutorError(f"the program does not read: {len(rest)} bytes were not typed") from None
            except OSError as error:
                raise ExecutorError(f"nothing could be typed: {error.strerror or error}") from error

    async def captured(self, *flags: str) -> str | None:
        """What tmux shows of it, if it is in tmux; `flags`: of its `capture-pane`. Raises ExecutorError."""
        return None

    def finish(self) -> bool:
        """Its program has ended; whether the last of its output is still on its way, up to the end of `ours`."""
        return False

    def closed(self) -> None:
        """`ours` was closed by whoever read it."""
        self._open.discard(self.ours)
        self.drop()

    def drop(self) -> None:
        """Nobody needs it any more. Idempotent."""
        for descriptor in tuple(self._open):
            self._shut(descriptor)


def open_pty(size: TerminalSize, owner: int | None = None) -> Pty:
    """`owner`: the user it is for, if not this one. Raises ExecutorError."""
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        raise ExecutorError(f"there is no terminal for the command: {error.strerror or error}") from error
    try:
        os.set_inheritable(theirs, False)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
        if owner is not None:
            os.fchown(theirs, owner, -1)
        return Pty(ours, theirs, os.ttyname(theirs))
    except OSError as error:
        os.close(ours)
        os.close(theirs)
        raise ExecutorError(f"there is no terminal for the command: {error.strerror or error}") from error
