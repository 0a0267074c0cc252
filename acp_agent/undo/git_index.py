"""How many tracked files differ from git's index, without git, which would run what a repository's configuration names.

Format: gitformat-index(5), versions 2 to 4.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import Struct

from acp_agent.disk import HERE
from acp_agent.safety.folders.paths import read_regular

if TYPE_CHECKING:
    from acp_agent.disk import Disk

MOST_BYTES = 400_000
"""Of an index that is read: some thousand files."""
MOST_HASHED = 50
"""Files whose time alone differs, so that their content is compared."""
LONGEST_HASHED = 1_000_000
MOST_READ = 50_000_000
"""Of an index that is read for more than the number of changes."""
MOST_TAKEN = 100_000_000
"""Bytes of an index of which undo takes contents, also with each name whole: all may share a very long beginning."""
MOST_SEEN = 2_000
"""Entries of an index that are compared with the files of a folder."""
AT_ONCE = 5_000
"""Entries that are read without a pause."""

HEADER = struct.Struct(">4sII")
EXTENSION = struct.Struct(">4sI")
LONGEST_NUMBER = 5
"""Bytes of how much of a name is unlike the one before."""
SPARSE = b"sdir"
"""The extension that says that some entries are folders, of which no file is there."""
ENTRY = struct.Struct(">10I20sH")
LINK, FILE = 0o120000, 0o100000
ASSUMED_VALID, EXTENDED = 0x8000, 0x4000
SKIPPED = 0x4000 | 0x2000
"""`skip-worktree` and `intent-to-add`, of the extended flags."""
HASH_BYTES = 20
NO_PART = frozenset((b"", b".", b"..", b".git"))
"""No component of a path in an index is this."""
POINTER = re.compile(r"gitdir: (.+?)\s*")
WORKTREE = re.compile(r"^\s*worktree\s*=\s*(.+?)\s*$", re.MULTILINE)
POINTER_BYTES = 4096
ALTERNATES = "objects/info/alternates"
"""In a repository: where git looks for objects besides."""

Read = TypeVar("Read")


class Entry(Struct, frozen=True):
    path: bytes
    mode: int
    seconds: int
    nanoseconds: int
    changed_ns: int
    """Of the inode, in nanoseconds."""
    size: int
    """Modulo 2**32."""
    blob: bytes
    inode: int
    """Modulo 2**32."""


def changed_files(git: Path, folder: Path) -> int | None:
    """How many files of the work tree `folder` differ from the index in `git`; `None` where that is not found out
    quickly: no index, a large one, another format. Untracked files and what is staged do not count."""
    try:
        if (data := read_regular(git / "index", MOST_BYTES)) is None:
            return None
        tracked = list(entries(data))
    except (OSError, ValueError, struct.error):
        return None
    hashed = changed = 0
    root = os.path.realpath(os.fsencode(folder))
    for above in {os.path.dirname(entry.path) for entry in tracked}:
        if os.path.realpath(place := os.path.join(root, above).rstrip(b"/")) != place:
            return None  # A link: what it leads to is nobody's business.
    for entry in tracked:
        try:
            found = os.lstat(root + b"/" + entry.path)
        except OSError:
            changed += 1
            continue
        if stat.S_IFMT(found.st_mode) != stat.S_IFMT(entry.mode) or found.st_size & 0xFFFFFFFF != entry.size:
            changed += 1
            continue
        seconds, nanoseconds = divmod(found.st_mtime_ns, 1_000_000_000)
        if seconds == entry.seconds and entry.nanoseconds in (0, nanoseconds):
            continue
        hashed += 1
        if hashed > MOST_HASHED or found.st_size > LONGEST_HASHED:
            return None
        changed += not _has_blob(root + b"/" + entry.path, found, entry.blob)
    return changed


def entries(data: bytes) -> Iterator[Entry]:
    """Files and links. Raises ValueError, struct.error."""
    data = finished(whole_names(data))
    at = HEADER.size
    for _ in range(HEADER.unpack_from(data)[2]):
        fields = ENTRY.unpack_from(data, at)
        flags, name = fields[11], at + ENTRY.size
        more = 0
        if flags & EXTENDED:
            (more,) = struct.unpack_from(">H", data, name)
            name += 2
        path = data[name : data.index(b"\0", name)]
        at += (name - at + len(path) + 8) & ~7
        if not NO_PART.isdisjoint(path.split(b"/")):
            raise ValueError("a path that git refuses")
        mode = fields[6]
        if stat.S_IFMT(mode) in (LINK, FILE) and not flags & ASSUMED_VALID and not more & SKIPPED:
            changed, (seconds, part, _, inode) = fields[0] * 10**9 + fields[1], fields[2:6]
            yield Entry(path, mode, seconds, part, changed, fields[9], fields[10], inode)
    need_all(data, at)


def whole_names(data: bytes) -> Generator[None, None, bytes]:
    """The index, in pieces; one of version 4 as of 3, which has each name whole. Raises ValueError, struct.error."""
    mark, version, count = HEADER.unpack_from(data)
    end, checksum = memoryview(data)[:-HASH_BYTES], data[-HASH_BYTES:]
    if mark != b"DIRC" or version not in (2, 3, 4) or checksum not in (hashlib.sha1(end).digest(), bytes(HASH_BYTES)):
        raise ValueError("another format")
    if version < 4:
        return data
    made, path, at = bytearray(HEADER.pack(mark, 3, count)), b"", HEADER.size
    for number in range(count):
        if number % AT_ONCE == 0:
            yield
        name = at + ENTRY.size + (2 if ENTRY.unpack_from(data, at)[11] & EXTENDED else 0)
        unlike, begin = _number(data, name)
        if unlike > len(path):
            raise ValueError("another format")
        stop = data.index(b"\0", begin)
        path = path[: len(path) - unlike] + data[begin:stop]
        made += data[at:name] + path + bytes(8 - (name - at + len(path)) % 8)
        if len(made) > MOST_TAKEN:
            raise ValueError("too long with each name whole")
        at = stop + 1
    made += data[at:]
    return bytes(made)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """As offsets in packs are written (gitformat-pack), and where it ends."""
    found = -1
    for number, byte in enumerate(data[at : at + LONGEST_NUMBER], at + 1):
        found = (found + 1 << 7) | byte & 0x7F
        if byte < 0x80:
            return found, number
    raise ValueError("another format")


def need_all(data: bytes, at: int) -> None:
    """Raises ValueError, struct.error if what stands behind the entries, at `at`, says that others are elsewhere."""
    while at < len(data) - HASH_BYTES:
        name, size = EXTENSION.unpack_from(data, at)
        if not name[:1].isupper() and name != SPARSE:
            raise ValueError("another format")
        at += EXTENSION.size + size


def finished(reading: Generator[None, None, Read]) -> Read:
    """What is read in pieces, at once."""
    while True:
        try:
            next(reading)
        except StopIteration as done:
            return cast("Read", done.value)


def has_seen(data: bytes, top: Path) -> bool:
    """Whether an index was made of files in `top`: one of the first has the inode and the time of change that it notes,
    which nobody can set. (Who has another name for a file may have put that there.)"""
    try:
        return any(_is_seen(entry, os.fsencode(top)) for entry in islice(entries(data), MOST_SEEN))
    except (ValueError, struct.error):
        return False


def unwritten(git: Path, top: Path, writable: Iterable[Path]) -> list[str]:
    """What git has noted of other places in `top` than these without seeing it there: after a switch or a merge, what
    it could not write."""
    own = tuple(os.fsencode(path.relative_to(top)) + b"/" for path in writable if top in path.parents)
    try:
        found = entries(read_regular(git / "index", MOST_READ) or b"")
        unseen = {each.path for each in found if not (each.inode or each.changed_ns or each.path.startswith(own))}
    except (OSError, ValueError, struct.error):
        return []
    return sorted(map(os.fsdecode, unseen))


def _is_seen(entry: Entry, top: bytes) -> bool:
    try:
        found = os.lstat(os.path.join(top, entry.path))
    except OSError:
        return False
    same = found.st_ino & 0xFFFFFFFF == entry.inode and found.st_ctime_ns // 10**9 == entry.changed_ns // 10**9
    return same and found.st_nlink == 1


def unknown(git: Path, top: Path, files: Iterable[Path]) -> list[Path]:
    """Of these files in `top`, those of which git has no such content, by the index; all if that cannot be read."""
    try:
        known = {entry.path: entry for entry in entries(read_regular(git / "index", MOST_READ) or b"")}
    except (OSError, ValueError, struct.error):
        known = {}
    return [file for file in files if not _is_known(file, known.get(os.fsencode(file.relative_to(top))))]


def _is_known(file: Path, entry: Entry | None) -> bool:
    try:
        return entry is not None and _has_blob(os.fsencode(file), os.lstat(file), entry.blob)
    except OSError:
        return False


def _has_blob(path: bytes, found: os.stat_result, blob: bytes) -> bool:
    if found.st_size > LONGEST_HASHED:
        return False
    try:
        if stat.S_ISLNK(found.st_mode):
            content = os.readlink(path)
        else:
            with open(path, "rb") as file:
                content = file.read(LONGEST_HASHED + 1)
    except OSError:
        return False
    return name_of(content) == blob


def name_of(content: bytes) -> bytes:
    """The name of the blob with this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).digest()


def git_of(folder: Path, disk: Disk = HERE) -> Path | None:
    """The repository whose work tree has `folder` as its top, if it has one.

    A `.git` that leads out of `folder` counts only where the repository says that this is its work tree: a command may
    have made it, to have another one of the user read.
    """
    git = folder / ".git"
    try:
        if disk.kind(git) == "dir":
            return None if disk.is_link(git) else git
        if disk.kind(git) != "file" or (named := POINTER.fullmatch(disk.text(git, POINTER_BYTES))) is None:
            return None
        found = disk.real_path(folder / named[1])
        if disk.real_path(folder) in found.parents or _names_back(found, folder, disk):
            return found
    except (OSError, ValueError):
        pass
    return None


def _names_back(git: Path, folder: Path, disk: Disk) -> bool:
    """Whether a worktree's or a submodule's repository names `folder` as its work tree."""
    if disk.kind(git / "gitdir") == "file":
        back = git / disk.text(git / "gitdir", POINTER_BYTES).strip()
        return disk.real_path(back.parent) == disk.real_path(folder)
    tree = WORKTREE.search(disk.text(git / "config", MOST_BYTES))
    return tree is not None and disk.real_path(git / tree[1]) == disk.real_path(folder)
