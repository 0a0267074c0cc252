"""Which folders changed since they were last looked at, by inotify (Linux). It costs nothing while nothing changes.

One `FolderWatch` for each session; who looks at folders asks it by a `Watch` of its own, which says what changed since
that one asked. Elsewhere, on network file systems, or where the system lets us watch too few folders, there is none,
and everything is looked at. In doubt (a queue that ran over) any folder may have changed, never none.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Container
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


class FolderWatch:
    """Of one session. Ends with the last of its users. Safe to use from several threads."""

    taken: ClassVar[int] = 0
    """Watches of all sessions of this process."""

    def __init__(self) -> None:
        self.tells = False
        """False once it cannot be relied on."""
        self._fd = -1
        self._guard = threading.RLock()
        self._users: list[Watch] = []
        self._paths: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._of: dict[int, set[Watch]] = {}
        """By number: who asks about it."""

    def enter(self, user: Watch) -> None:
        with self._guard:
            if not self._users and sys.platform.startswith("linux"):
                self._fd = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
                self.tells = self._fd >= 0
                self._most = _most()
            self._users.append(user)

    def add(self, user: Watch, folder: str) -> None:
        with self._guard:
            if not self.tells:
                return
            if not self._numbers and _is_silent(folder):
                self.tells = False
                return
            if FolderWatch.taken >= self._most and folder not in self._numbers:
                self.tells = False
                return
            number = _libc().inotify_add_watch(self._fd, os.fsencode(folder), WATCHED)
            if number < 0:
                self.tells = os.path.lexists(folder) is False
                user.lost.add(folder)  # It is gone: its parent tells that. One may be there again, with its inode.
                return
            if (other := self._paths.get(number)) is None:
                FolderWatch.taken += 1
                self._of[number] = set()
            elif other != folder:
                self._read()  # What happened until now is of the path that the folder had.
                if self._numbers.get(other) == number:
                    del self._numbers[other]
                for each in self._of[number]:  # It may be there again until they look.
                    each.lost.add(other)
            self._paths[number], self._numbers[folder] = folder, number
            self._of[number].add(user)

    def drop(self, user: Watch, folder: str) -> None:
        with self._guard:
            if (number := self._numbers.get(folder)) is None or self._paths.get(number) != folder:
                return
            self._leave(user, number)

    def _leave(self, user: Watch, number: int) -> None:
        self._of[number].discard(user)
        if not self._of[number]:
            self._forget(number)
            _libc().inotify_rm_watch(self._fd, number)

    def _forget(self, number: int) -> set[Watch]:
        """Who asked about it."""
        folder = self._paths.pop(number)
        FolderWatch.taken -= 1
        if self._numbers.get(folder) == number:
            del self._numbers[folder]
        return self._of.pop(number)

    def changed(self, user: Watch) -> set[str] | None:
        with self._guard:
            self._read()
            if not self.tells:
                return None
            found, user.dirty = user.dirty, set()
            return found

    def _read(self) -> None:
        """Takes what the system has to tell, for all users."""
        while self.tells:
            try:
                data = os.read(self._fd, READ_SIZE)
            except BlockingIOError:
                return
            except OSError:
                self.tells = False
                return
            at = 0
            while at < len(data):
                number, mask, _, length = EVENT.unpack_from(data, at)
                at += EVENT.size + length
                self._take(number, mask)

    def _take(self, number: int, mask: int) -> None:
        if mask & OVERFLOW:
            for user in self._users:
                user.dirty = None
            return
        if (folder := self._paths.get(number)) is None:
            return
        for user in self._of[number]:
            if user.dirty is not None:
                user.dirty.add(folder)
        if mask & IGNORED:  # It was removed; if one is there again, that is another one.
            for user in self._forget(number):
                user.lost.add(folder)

    def close(self, user: Watch) -> None:
        with self._guard:
            if user not in self._users:
                return
            self._users.remove(user)
            for number in [number for number, users in self._of.items() if user in users]:
                self._leave(user, number)
            if not self._users:
                self.tells = False
                if self._fd >= 0:
                    os.close(self._fd)
                    self._fd = -1


class Watch:
    """What one who looks knows of. Close it."""

    def __init__(self, owner: FolderWatch | None = None) -> None:
        """Without an `owner`: its only user."""
        self.dirty: set[str] | None = set()
        """What changed since `changed` was called; `None`: any may have."""
        self.lost: set[str] = set()
        """Folders that are not watched any more, since they were removed or moved."""
        self._closed = False
        self._owner = owner or FolderWatch()
        self._owner.enter(self)

    @property
    def tells(self) -> bool:
        """False once it cannot be relied on."""
        return self._owner.tells and not self._closed

    def add(self, folder: str) -> None:
        """From now on, `changed` names this folder when an entry of it changes."""
        if not self._closed:
            self._owner.add(self, folder)

    def drop(self, folder: str) -> None:
        """The folder is no longer of interest."""
        self._owner.drop(self, folder)

    def changed(self) -> set[str] | None:
        """The folders that changed since the last call; `None`: any may have."""
        return None if self._closed else self._owner.changed(self)

    def take_lost(self, known: Container[str]) -> set[str]:
        """The folders that are not watched any more since they were removed or moved: one that is there has changed.
        Those that are `known` are added again."""
        lost = {self.lost.pop() for _ in range(len(self.lost))}  # Another thread may add to it.
        for folder in lost:
            if folder in known:
                self.add(folder)
        return lost

    def close(self) -> None:
        self._closed = True
        self._owner.close(self)


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
