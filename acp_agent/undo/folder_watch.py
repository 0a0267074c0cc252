"""Which folders changed since they were last looked at, by inotify (Linux). It costs nothing while nothing changes.

Elsewhere, on network file systems, or where the system lets us watch too few folders, there is none, and everything is
looked at.
"""

from __future__ import annotations

import os
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from acp_agent.executors.beneath import file_system
from acp_agent.lazy import load

EVENT = struct.Struct("iIII")
MODIFY, ATTRIB, CLOSE_WRITE, MOVED, CREATE, DELETE = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200
ONLYDIR, DONT_FOLLOW, OVERFLOW, IGNORED = 0x01000000, 0x02000000, 0x4000, 0x8000
WATCHED = MODIFY | ATTRIB | CLOSE_WRITE | MOVED | CREATE | DELETE | ONLYDIR | DONT_FOLLOW
READ_SIZE = 1 << 20
SHARE = 4
"""The part of the user's watches that we take: one in so many; editors need them as well."""
MOST_WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")
SILENT = frozenset({0x6969, 0x517B, 0xFF534D42, 0xFE534D42, 0x65735546, 0x01021997, 0x564C, 0x73757245, 0x5346414F})
"""nfs, smb, cifs, smb2, fuse, 9p, ncp, coda, afs: others change these, and no event tells."""


class Watch:
    """Close it. `tells` is false once it cannot be relied on."""

    taken: ClassVar[int] = 0
    """Watches of all sessions of this process."""

    def __init__(self) -> None:
        self.tells = False
        self.lost: set[str] = set()
        """Folders that are not watched any more, since they were removed."""
        self._fd = -1
        self._paths: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        if sys.platform.startswith("linux"):
            self._fd = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            self.tells = self._fd >= 0
            self._most = _most()

    def add(self, folder: str) -> None:
        """From now on, `changed` names this folder when an entry of it changes."""
        if not self.tells:
            return
        if Watch.taken >= self._most or (not self._numbers and _is_silent(folder)):
            self.tells = False
            return
        number = _libc().inotify_add_watch(self._fd, os.fsencode(folder), WATCHED)
        if number < 0:
            self.tells = os.path.lexists(folder) is False  # It is gone: its parent tells that.
            return
        if (other := self._paths.get(number)) is not None:
            self._numbers.pop(other, None)
        else:
            Watch.taken += 1
        self._paths[number], self._numbers[folder] = folder, number

    def drop(self, folder: str) -> None:
        """The folder is no longer of interest."""
        if (number := self._numbers.pop(folder, None)) is not None and self._paths.get(number) == folder:
            del self._paths[number]
            Watch.taken -= 1
            _libc().inotify_rm_watch(self._fd, number)

    def changed(self) -> set[str] | None:
        """The folders that changed since the last call; `None`: any may have."""
        if not self.tells:
            return None
        found: set[str] = set()
        while True:
            try:
                data = os.read(self._fd, READ_SIZE)
            except BlockingIOError:
                return found
            except OSError:
                self.tells = False
                return None
            at = 0
            while at < len(data):
                number, mask, _, length = EVENT.unpack_from(data, at)
                at += EVENT.size + length
                if mask & OVERFLOW:
                    self._drain()
                    return None
                if (folder := self._paths.get(number)) is None:
                    continue
                found.add(folder)
                if mask & IGNORED:  # It was removed; if one is there again, that is another one.
                    del self._paths[number]
                    Watch.taken -= 1
                    if self._numbers.get(folder) == number:
                        del self._numbers[folder]
                        self.lost.add(folder)

    def _drain(self) -> None:
        try:
            while os.read(self._fd, READ_SIZE):
                pass
        except OSError:
            pass

    def close(self) -> None:
        self.tells = False
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            Watch.taken -= len(self._paths)
            self._paths.clear()


@cache
def _libc() -> Any:
    return load("ctypes:CDLL")(None, use_errno=True)


def _most() -> int:
    try:
        return int(MOST_WATCHES.read_text()) // SHARE
    except (OSError, ValueError):
        return 0


def _is_silent(folder: str) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return file_system(descriptor) in SILENT
    finally:
        os.close(descriptor)
