"""Where what is hidden has got to: where Landlock alone confines commands, they can move or link what they cannot read.

What is hidden is held open (for its path only: nothing is read), so that its number on the disk is not given to another
file. On Linux; elsewhere, and beyond a bound, it is not followed.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

MOST = 256
O_PATH = getattr(os, "O_PATH", 0)

Number = tuple[int, int]
"""Device and inode."""


class HeldFiles:
    """Of one session."""

    def __init__(self) -> None:
        self._held: dict[Number, int] = {}

    def hold(self, paths: Iterable[Path]) -> None:
        """Of a folder also what is in it, which could be linked from elsewhere."""
        for path in paths:
            self._hold(path)
            for place, _, names in os.walk(path):
                for name in names:
                    if len(self._held) >= MOST:
                        return
                    self._hold(Path(place, name))

    def _hold(self, path: Path) -> None:
        if not O_PATH or len(self._held) >= MOST:
            return
        with suppress(OSError):
            descriptor = os.open(path, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            found = os.fstat(descriptor)
            if stat.S_ISLNK(found.st_mode) or (number := (found.st_dev, found.st_ino)) in self._held:
                os.close(descriptor)
                return
            self._held[number] = descriptor
            if len(self._held) == MOST:
                log.warning("more than %d hidden files: others that commands move are not followed", MOST)

    def now(self, folders: Iterable[Path]) -> list[Path]:
        """All names that what was hidden has now; where there are further links to it, those in `folders`."""
        found: dict[Path, None] = {}
        linked = set[Number]()
        for number, descriptor in list(self._held.items()):
            status = os.fstat(descriptor)
            if not status.st_nlink:
                os.close(self._held.pop(number))
                continue
            with suppress(OSError):
                path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
                found[path] = None
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                linked.add(number)
        for folder in folders if linked else ():
            for place, _, _ in os.walk(folder):
                with suppress(OSError), os.scandir(place) as entries:
                    device = os.stat(place).st_dev
                    found |= {Path(entry.path): None for entry in entries if (device, entry.inode()) in linked}
        return list(found)

    def close(self) -> None:
        while self._held:
            os.close(self._held.popitem()[1])
