"""Which folder is meant: the one that was there when it was opened, whatever has its name later.

Needs the standard library alone: it is also sent to other hosts.
"""

from __future__ import annotations

import os
import stat
import weakref
from pathlib import Path

Identity = tuple[int, int]
"""Device and inode."""

O_PATH = getattr(os, "O_PATH", 0)


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
        """Whether its name still leads to it and to nothing else."""
        try:
            found = os.lstat(self.path)
            return stat.S_ISDIR(found.st_mode) and (found.st_dev, found.st_ino) == self.identity and not self._behind
        except OSError:
            return False

    @property
    def _behind(self) -> bool:
        """Whether a link is on the way to it by now."""
        return os.path.realpath(self.path) != str(self.path)
