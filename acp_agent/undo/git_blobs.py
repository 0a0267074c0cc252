"""What git keeps of files that are as git's index has them: their contents need no copy of ours.

Only reads: the index here, the blobs by `git cat-file`. Commands can write both, so what they say counts only where a
file's own bytes have said the same: they hash to the blob's name, and so does what git gives back.
"""

from __future__ import annotations

import os
import stat
import struct
import subprocess
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from acp_agent.lazy import load
from acp_agent.own_programs import run_git
from acp_agent.safety.folders.paths import read_regular
from acp_agent.undo.git_index import (
    ALTERNATES,
    ASSUMED_VALID,
    AT_ONCE,
    ENTRY,
    EXTENDED,
    FILE,
    HEADER,
    LINK,
    MOST_TAKEN,
    NO_PART,
    SKIPPED,
    finished,
    name_of,
    need_all,
    whole_names,
)

PATIENCE = 60.0
"""Seconds to wait for git."""
LONG_NAME = 0xFFF
KEPT_BYTES = 4_000_000
"""Of an index that stays in memory when all files were seen; a larger one is read again if it is needed."""

Blob = tuple[int, int, int, bytes]
"""Size (modulo 2**32) and times (ns; of content and inode) of the file for which git has this blob, and its name."""


class Tracked(Struct):
    """The files of one repository that are as its index says, unless their size or time differs."""

    folder: str
    """The top of its work tree."""
    git: Path
    """The repository."""
    index: tuple[int, int]
    """Size and time of the index."""
    data: bytes
    places: dict[bytes, Any]
    """Where the entries of each folder are in the data, by its path below the top; folders above such ones, too."""
    last: tuple[str, dict[str, Blob]] = ("", {})
    """What was last asked for."""

    def blobs(self, folder: str) -> dict[str, Blob]:
        """By name: what the index says of the files in this folder."""
        if self.last[0] == folder or not self.data:
            return self.last[1] if self.last[0] == folder else {}
        found: dict[str, Blob] = {}
        for at in self.places.get(self._below(folder), ()):
            fields = ENTRY.unpack_from(self.data, at)
            begin = at + ENTRY.size + (2 if fields[11] & EXTENDED else 0)
            name = self.data[begin : self.data.index(b"\0", begin)].rpartition(b"/")[2]
            times = fields[2] * 10**9 + fields[3], fields[0] * 10**9 + fields[1]
            found[os.fsdecode(name)] = (fields[9], *times, fields[10])
        self.last = (folder, found)
        return found

    def has(self, folder: str) -> bool:
        """Whether files in or below this folder are tracked."""
        return self._below(folder) in self.places

    def _below(self, folder: str) -> bytes:
        return os.fsencode(folder[len(self.folder) :].lstrip("/"))

    def release(self) -> None:
        """All files were seen."""
        if len(self.data) > KEPT_BYTES:
            self.data, self.last = b"", ("", {})


def state_of_index(git: Path) -> tuple[int, int]:
    """Tells whether the index is another one; zeros if there is none."""
    try:
        found = os.stat(git / "index")
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def tracked(folder: str, git: Path) -> Tracked:
    """What the index of `git` says of the files below `folder`; nothing if it cannot be read, or if git would look for
    contents in another repository, too. None of it is believed before the files' bytes were compared."""
    return finished(read_index(folder, git))


def read_index(folder: str, git: Path) -> Generator[None, None, Tracked]:
    """The same in pieces, since there may be many files: what it returns at its end."""
    state = state_of_index(git)
    data, places = b"", dict[bytes, Any]()
    try:
        read = None if os.path.lexists(git / ALTERNATES) else read_regular(git / "index", MOST_TAKEN)
        data = read or b""
        if data:
            data = yield from whole_names(data)
            yield from _place(places, data, state[1])
    except (OSError, ValueError, struct.error, IndexError):
        data, places = b"", {}
    for above in list(places):
        while above and (above := above.rpartition(b"/")[0]) not in places:
            places[above] = ()
    return Tracked(folder, git, state, data, places)


def _place(found: dict[bytes, Any], data: bytes, written: int) -> Iterator[None]:
    """By folder, where its files' entries are; of files that are younger than the index nothing: they may have changed
    in the same moment. Raises ValueError, struct.error, IndexError."""
    at, unpack, size, make = HEADER.size, ENTRY.unpack_from, ENTRY.size, load("array:array")
    for number in range(HEADER.unpack_from(data)[2]):
        if number % AT_ONCE == 0:
            yield
        fields = unpack(data, at)
        flags, begin, more = fields[11], at + size, 0
        if flags & EXTENDED:
            more, begin = int.from_bytes(data[begin : begin + 2], "big"), begin + 2
        length = flags & LONG_NAME
        end = begin + length if length < LONG_NAME else data.index(b"\0", begin)
        above, _, name = data[begin:end].rpartition(b"/")
        if data[end] or name in NO_PART:
            raise ValueError("a path that git refuses")
        if (here := found.get(above)) is None:
            if above and not NO_PART.isdisjoint(above.split(b"/")):
                raise ValueError("a path that git refuses")
            here = found[above] = make("I")
        is_file = stat.S_IFMT(fields[6]) in (LINK, FILE) and not flags & ASSUMED_VALID and not more & SKIPPED
        if is_file and fields[2] * 10**9 + fields[3] < written:
            here.append(at)
        at += (end - at + 8) & ~7
    need_all(data, at)


def read_blobs(git: Path, blobs: Iterable[bytes], folders: Sequence[Path]) -> dict[bytes, bytes]:
    """The contents of these blobs, as far as they are there and hash to their names. `folders`: those in which no
    program is looked for."""
    wanted = list(dict.fromkeys(blobs))
    out = _cat_file(git, wanted, "--batch", folders)
    found: dict[bytes, bytes] = {}
    at = 0
    for name in wanted:
        end = out.find(b"\n", at)
        if end < 0:
            break
        size = _size(out[at:end])
        at = end + 1
        if size is not None:
            if name_of(content := out[at : at + size]) == name:
                found[name] = content
            at += size + 1
    return found


def read_sizes(git: Path, blobs: Iterable[bytes], folders: Sequence[Path]) -> dict[bytes, int]:
    """The sizes of these blobs in bytes, as far as they are there. Where git changes line endings (`core.autocrlf`,
    `core.eol`, the attribute `text`), a file that it changed has another size than its blob."""
    wanted = list(dict.fromkeys(blobs))
    sizes = map(_size, _cat_file(git, wanted, "--batch-check", folders).split(b"\n"))
    return {name: size for name, size in zip(wanted, sizes, strict=False) if size is not None}


def _cat_file(git: Path, blobs: Sequence[bytes], how: str, folders: Sequence[Path]) -> bytes:
    if not blobs:
        return b""
    names = "".join(f"{name.hex()}\n" for name in blobs).encode()
    try:
        done = run_git(
            [f"--git-dir={git}", "cat-file", "--buffer", how], timeout=PATIENCE, outside=folders, stdin=names
        )
    except (OSError, subprocess.SubprocessError):
        return b""
    return done.stdout


def _size(head: bytes) -> int | None:
    """From a line of `git cat-file`; `None` if it is not that of a blob."""
    parts = head.split()
    return int(parts[2]) if len(parts) == 3 and parts[1] == b"blob" else None
