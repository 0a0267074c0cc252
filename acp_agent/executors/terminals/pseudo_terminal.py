"""A terminal of our own: both ends of a pty, and what a program in it is started with."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios

from msgspec import Struct

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import TerminalSize

TAKE_OVER = 'exec 0<>"$0" 1>&0 2>&0 && exec "$@"'
"""A session's leader that opens a terminal gets it as its own: then `^C` is a signal, and /dev/tty is there."""
UNQUIET = ("GIT_TERMINAL_PROMPT", "GIT_EDITOR", "PAGER", "MANPAGER", "GIT_PAGER")
"""Variables that keep programs from asking, where nobody can answer."""


class Pty(Struct, frozen=True):
    """Both ends, and the name of that of the program."""

    ours: int
    theirs: int
    name: str

    def argv(self, bash: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Starts `argv` with it as its terminal. `-p`: without $BASH_ENV, which only the sandbox may read."""
        return bash, "-p", "-c", TAKE_OVER, self.name, *argv


def open_pty(size: TerminalSize, owner: int | None) -> Pty:
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
