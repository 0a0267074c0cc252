"""What folders contain, packed: a look keeps it of hundreds of thousands of files."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator

from msgspec import Struct

from acp_agent.undo.base import Entry
from acp_agent.undo.git_blobs import Blob

Key = tuple[int, int, int, int, int]
"""Mode, size, times of content and inode (ns), inode. Of a folder without what changes with its entries."""
InGit = tuple[bool, bytes]
"""Whether a file's bytes hashed to the name of git's blob, and that name; empty if it is only known to git's index."""

NO_BLOB: InGit = (False, b"")

ROW = struct.Struct("=IqqqQB20s")
NOT, TRACKED, UNSURE, SURE = range(4)
OPEN = 16
"""Folders that are kept unpacked, as they are asked for again and again."""


Changed = list[tuple[str, Key | None, Key | None]]
"""Paths, with what was there and what is."""


class Listing(Struct):
    """One folder."""

    entries: dict[str, Key]
    in_git: dict[str, InGit]
    """What git's index knew when it was first seen: files, and folders with such files."""

    @property
    def others(self) -> int:
        """Entries of which git's index knows nothing."""
        return len(self.entries) - len(self.in_git)


class Listings:
    """By folder. What `get` gives is `put` again when it was changed."""

    def __init__(self) -> None:
        self._packed: dict[str, tuple[bytes, bytes]] = {}
        self._open: dict[str, Listing] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self.entries = self.others = 0
        """How many there are in all, and those of which git's index knows nothing."""

    def __contains__(self, folder: object) -> bool:
        return folder in self._packed

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def get(self, folder: str) -> Listing | None:
        if folder not in self._packed:
            return None
        if (found := self._open.get(folder)) is None:
            found = _unpacked(*self._packed[folder])
            self._keep(folder, found)
        return found

    def put(self, folder: str, listing: Listing) -> None:
        self._packed.setdefault(folder, (b"", b""))
        self._open.pop(folder, None)
        self._keep(folder, listing)
        self._count(folder, len(listing.entries), listing.others)

    def pop(self, folder: str) -> Listing | None:
        found = self.get(folder)
        self._open.pop(folder, None)
        self._packed.pop(folder, None)
        self._count(folder, 0, 0)
        self._counted.pop(folder)
        return found

    def _count(self, folder: str, entries: int, others: int) -> None:
        before = self._counted.get(folder, (0, 0))
        self.entries += entries - before[0]
        self.others += others - before[1]
        self._counted[folder] = entries, others

    def _keep(self, folder: str, listing: Listing) -> None:
        self._open[folder] = listing
        if len(self._open) > OPEN:
            oldest = next(iter(self._open))
            self._packed[oldest] = _packed(self._open.pop(oldest))


def _packed(listing: Listing) -> tuple[bytes, bytes]:
    rows, in_git = [], listing.in_git
    for name, key in listing.entries.items():
        if (known := in_git.get(name)) is None:
            rows.append(ROW.pack(*key, NOT, b""))
        else:
            sure, blob = known
            rows.append(ROW.pack(*key, SURE if sure else UNSURE if blob else TRACKED, blob))
    return os.fsencode("/".join(listing.entries)), b"".join(rows)


def _unpacked(names: bytes, rows: bytes) -> Listing:
    entries: dict[str, Key] = {}
    in_git: dict[str, InGit] = {}
    for name, row in zip(os.fsdecode(names).split("/"), ROW.iter_unpack(rows), strict=False):
        entries[name] = row[:5]
        if row[5] != NOT:
            in_git[name] = (row[5] == SURE, row[6] if row[5] != TRACKED else b"")
    return Listing(entries, in_git)


def is_as(key: Key, blob: Blob) -> bool:
    """Whether a file is as git's index says, if that tells the truth."""
    return blob[:3] == (key[1] & 0xFFFFFFFF, key[2], key[3])


def key_of(seen: os.stat_result) -> Key:
    if stat.S_ISDIR(seen.st_mode):
        return seen.st_mode, 0, 0, 0, seen.st_ino
    return seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino


def key_of_entry(entry: Entry) -> Key:
    """Of a file that is not there as such any more."""
    inode, size, mtime = map(int, entry.mark.split(":"))
    return stat.S_IFREG | entry.mode, size, mtime, 0, inode


def mark_of_key(key: Key) -> str:
    """As `pictures.mark_of`."""
    return f"{key[4]}:{key[1]}:{key[2]}"


def key_at(path: str) -> Key | None:
    try:
        return key_of(os.lstat(path))
    except OSError:
        return None
