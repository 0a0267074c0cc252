"""Which folder is meant: the one that was there when it was opened, whatever has its name later.

Needs the standard library alone: it is also sent to other hosts.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from acp_agent.errors import ExecutorError

Identity = tuple[int, int]
"""Device and inode."""

O_PATH = getattr(os, "O_PATH", 0)


def replaced(path: Path) -> str:
    return (
        f"{path} is not the folder any more in which the session was opened: it was replaced, perhaps to lead commands "
        "to another one; nothing was run. Put it back, or open a session anew"
    )


class Folder:
    """A folder of a session: its path with all links followed, and its identity.

    Where the platform allows, it is held: so nothing else gets its inode while this object lives.
    """

    def __init__(self, path: Path) -> None:
        """`path`: resolved. A folder that is not there, or a link by now, has no identity."""
        self.path = path
        self.identity: Identity | None = None
        try:
            handle = os.open(path, (O_PATH or os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        found = os.fstat(handle)
        self.identity = (found.st_dev, found.st_ino)
        if O_PATH:
            weakref.finalize(self, os.close, handle)
        else:
            os.close(handle)

    @property
    def is_there(self) -> bool:
        """Whether its name still leads to it, without a link."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity and os.path.realpath(self.path) == str(self.path)

    def need(self) -> None:
        """Raises ExecutorError if something else is in its place."""
        if not self.is_there and os.path.lexists(self.path):
            raise ExecutorError(replaced(self.path))
