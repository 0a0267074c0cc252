"""Files on this machine, through folder handles (see `beneath`): exactly the checked path is read and written.

Plain blocking calls, to be run in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from heapq import nsmallest
from itertools import count, groupby, islice
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from acp_agent.errors import ExecutorError
from acp_agent.executors import encodings
from acp_agent.executors.base import EntryKind, FileStat, FileVersion, digest_of
from acp_agent.executors.beneath import (
    Swapped,
    folder,
    keep_attributes,
    kernels_own,
    named,
    need_regular,
    regular,
    what_it_is,
)
from acp_agent.executors.tree_walk import identity, look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

IRREPLACEABLE = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS, errno.EXDEV})
"""Errors for a file that can be written but not replaced. Not a full disk: writing in place would lose the file."""


BLOCK = 1 << 20
"""Bytes read at a time of a file whose lines are counted."""
UNREAD = "unread"
"""In place of the kind of what cannot be looked at."""
SHARED = "It had other names (hard links), which keep the old content: it is a file of its own now."


def kind_of(mode: int) -> EntryKind:
    """The kind of a directory entry from lstat's mode."""
    if stat.S_ISLNK(mode):
        return "symlink"
    if stat.S_ISDIR(mode):
        return "dir"
    return "file" if stat.S_ISREG(mode) else "other"


def read(path: Path, limit: int = -1) -> bytes:
    """At most `limit` bytes of a regular file; -1: all."""
    try:
        with folder(path.parent) as parent, regular(parent, path) as fd, open(fd, "rb", closefd=False) as file:
            return file.read(limit)
    except (FileNotFoundError, NotADirectoryError) as error:  # below a file, nothing is there
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error


def part(path: Path, first: int, count: int, most: int, skip: int, seconds: float) -> bytes:
    """At most `most` bytes of `count` lines from number `first` on, without the first `skip` bytes. A number below 0
    counts from the end. Before them, the number of the first line, the size of the file, and a line feed. Raises
    ExecutorError for a line that does not exist, or is not reached in that time."""
    with folder(path.parent) as parent, regular(parent, path) as fd, open(fd, "rb", 0, closefd=False) as file:
        size, until = os.fstat(fd).st_size, time.monotonic() + seconds
        first, begin = (
            _from_start(file, first, size, until, path) if first > 0 else _from_end(file, first, size, until, path)
        )
        file.seek(begin + skip)
        data = io.BufferedReader(file).read(most)
    ends = [found.end() for found in islice(re.finditer(b"\n", data), count)]
    return f"{first} {size}\n".encode() + (data[: ends[-1]] if len(ends) == count else data)


def _from_start(file: io.FileIO, first: int, size: int, until: float, path: Path) -> tuple[int, int]:
    seen, last = 0, b""
    while first > 1 and (block := file.read(BLOCK)):
        if time.monotonic() > until:
            raise ExecutorError(f"{path}: line {first} is beyond line {seen + 1}, up to which there was time to read")
        if (more := block.count(b"\n")) >= first - 1 - seen:
            at = 0
            for _ in range(first - 1 - seen):
                at = block.index(b"\n", at) + 1
            if (begin := file.tell() - len(block) + at) < size:
                return first, begin
        seen, last = seen + more, block[-1:]
    if first > 1 or not size:
        lines = seen + (last not in (b"", b"\n"))
        raise ExecutorError(f"{path} has {lines} lines; line {first} does not exist")
    return first, 0


def _from_end(file: io.FileIO, first: int, size: int, until: float, path: Path) -> tuple[int, int]:
    left, end = -first, size
    while end > 0:
        if time.monotonic() > until:
            raise ExecutorError(f"{path} has too long a part behind the line {first} from its end")
        begin = max(0, end - BLOCK)
        file.seek(begin)
        block = file.read(end - begin)
        at = len(block) - (end == size and block.endswith(b"\n"))
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            left -= 1
            if not left:
                return first, begin + at + 1
        end = begin
    return 1, 0


def read_version(path: Path) -> FileVersion:
    return version_of(read(path))


def version_of(data: bytes) -> FileVersion:
    """Raises UnicodeDecodeError for a binary file."""
    text, encoding = (found := encodings.decoded(data)).text, found.encoding
    remark = "" if encoding == encodings.UTF8 else f"It is in {encoding.name}, and changes are written so."
    return FileVersion(text, digest_of(data), encoding, remark)


def lines(path: Path, numbers: Collection[int]) -> dict[int, str]:
    """Returns the lines with these numbers (from 1) that exist. A byte order mark is dropped."""
    with folder(path.parent) as parent, regular(parent, path) as fd, open(fd, "rb", BLOCK, closefd=False) as file:
        return lines_in(file, numbers)


def lines_in(file: BinaryIO, numbers: Collection[int]) -> dict[int, str]:
    """The same of an open file."""
    found: dict[int, str] = {}
    last = max(numbers, default=0)
    head = file.read(2)
    file.seek(0)
    wide = io.TextIOWrapper(file, "utf-16", "replace", newline="\n") if head in encodings.UTF_16 else None
    lines: Iterable[Any] = file if wide is None else wide
    for number, line in enumerate(lines, 1):
        if number in numbers:
            text = line.decode("utf-8", encodings.OR_SINGLE_BYTE) if wide is None else line
            found[number] = (text.removeprefix(encodings.BYTE_ORDER) if number == 1 else text).removesuffix("\n")
        if number >= last:
            break
    if wide is not None:
        wide.detach()
    return found


def lines_of(wanted: Mapping[Path, Collection[int]]) -> dict[Path, dict[int, str]]:
    """The same of several files; none of one that cannot be read."""
    found = {}
    for path, numbers in wanted.items():
        try:
            found[path] = lines(path, numbers)
        except (OSError, ExecutorError):
            found[path] = {}
    return found


def kinds(paths: Collection[Path]) -> dict[Path, str]:
    """Of those that exist and can be reached without a link; `UNREAD` for one in a folder that may not be entered."""
    found: dict[Path, str] = {}
    for above, some in groupby(paths, attrgetter("parent")):
        with contextlib.suppress(OSError, ExecutorError):
            found |= _kinds_in(above, list(some))
    return found


def _kinds_in(above: Path, inside: Collection[Path]) -> dict[Path, str]:
    found: dict[Path, str] = {}
    try:
        with folder(above) as handle:
            for path in inside:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    found[path] = kind_of(os.stat(path.name or ".", dir_fd=handle, follow_symlinks=False).st_mode)
    except PermissionError:
        return dict.fromkeys(inside, UNREAD)
    return found


def need_plain(path: Path) -> None:
    """Raises an error if it exists and is not a regular file, or is reached through a link."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), folder(path.parent) as parent:
        need_regular(parent, path)


def look_at(path: Path) -> FileStat | None:
    """By lstat; `None` where there is nothing."""
    try:
        with folder(path.parent) as parent:
            found = os.stat(path.name or ".", dir_fd=parent, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileStat(kind_of(found.st_mode), found.st_size)


def entries(path: Path, most: int | None = None) -> tuple[list[tuple[str, EntryKind]], int]:
    """Names and kinds of the folder's first entries by name, and how many more there are."""
    with folder(path) as handle:
        descriptor = named(handle)
        try:
            with os.scandir(descriptor) as scan:
                name, number = attrgetter("name"), count()
                all_of_them = map(itemgetter(0), zip(scan, number, strict=False))  # The number is taken only with one.
                some = sorted(all_of_them, key=name) if most is None else nsmallest(most, all_of_them, key=name)
                return [(entry.name, _kind(entry)) for entry in some], next(number) - len(some)
        finally:
            os.close(descriptor)


def _kind(entry: os.DirEntry[str]) -> EntryKind:
    """As `kind_of`, from what the folder says of it where that is enough."""
    if entry.is_symlink():
        return "symlink"
    if entry.is_dir(follow_symlinks=False):
        return "dir"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def write(path: Path, data: bytes) -> None:
    """Replaces the file atomically if possible, else writes in place; creates parents. Other names of the file (hard
    links: a package manager's store, a file outside) keep the old content."""
    with folder(path.parent, make=True) as parent:
        old = look(parent, path.name or ".")
        if old is None:
            _replace(parent, path.name, data, None)
            return
        _need_writable(parent, path, old)
        if not _replace(parent, path.name, data, old):
            if old.st_nlink > 1:
                raise ExecutorError(
                    f"{path} has other names (hard links), whose content would change with it, and it cannot be "
                    "replaced, so nothing was written"
                )
            _overwrite(parent, path, data, old)


def has_other_names(path: Path) -> bool:
    """Whether it is a file with hard links."""
    try:
        with folder(path.parent) as parent:
            found = look(parent, path.name)
    except (OSError, ExecutorError):
        return False
    return found is not None and stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def write_text(path: Path, text: str, old: encodings.Encoding) -> tuple[str, str]:
    """Writes in the encoding `old`. Returns the text as it is now, and what there is to say about it."""
    data, now = encodings.encoded(text, old)
    shared = has_other_names(path)
    write(path, data)
    return written(data, old, now, shared=shared)


def written(data: bytes, old: encodings.Encoding, now: encodings.Encoding, *, shared: bool) -> tuple[str, str]:
    """What `write_text` returns. `old`, `now`: the encoding of the file before, and of `data`; `shared`: whether it had
    other names."""
    lacks = f"It is in UTF-8 now: {old.name}, which it was in, lacks a character of the new text." if now != old else ""
    note = " ".join(filter(None, (SHARED if shared else "", lacks)))
    return data[len(now.mark) :].decode(now.codec).removeprefix(encodings.BYTE_ORDER), note


def _need_writable(parent: int, path: Path, old: os.stat_result) -> None:
    if stat.S_ISLNK(old.st_mode):
        raise Swapped(path)
    if not stat.S_ISREG(old.st_mode):
        what = what_it_is(old.st_mode)
        more = "" if stat.S_ISDIR(old.st_mode) else ", not a regular file"
        raise OSError(errno.EINVAL, f"it is {what}{more}, so nothing was written")
    if kernels_own(parent):
        raise ExecutorError(f"{path} belongs to the kernel, not to a project, so nothing was written")
    may = os.access(path.name, os.W_OK, dir_fd=parent)
    try:  # That was about the process, this is about the user that the thread acts as.
        os.close(os.open(path.name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent))
    except OSError as error:
        may = may and error.errno not in IRREPLACEABLE
    if not may:
        raise PermissionError(errno.EACCES, "it is read-only, so it was not changed")


def _replace(parent: int, name: str, data: bytes, old: os.stat_result | None) -> bool:
    """Writes a temporary file and renames it, so that half a file is never visible; keeps mode and, if permitted,
    owner and extended attributes.

    False if an `old` file can only be written in place: it is a mount point, or its folder is read-only.
    """
    beside = f".{name[:40]}.{uuid.uuid4().hex[:12]}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # A new file gets its mode from the umask; a replacement stays private until it has its mode.
        descriptor = os.open(beside, flags, 0o666 if old is None else 0o600, dir_fd=parent)
    except OSError as error:
        if old is not None and error.errno in IRREPLACEABLE:
            return False
        raise
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                keep_attributes(parent, name, old, descriptor)
        try:
            os.replace(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError as error:
            if old is None or error.errno not in IRREPLACEABLE:
                raise
            os.unlink(beside, dir_fd=parent)
            return False
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=parent)
        raise
    return True


def _overwrite(parent: int, path: Path, data: bytes, old: os.stat_result) -> None:
    with regular(parent, path, os.O_WRONLY) as descriptor:
        if identity(os.fstat(descriptor)) != identity(old):
            raise ExecutorError(f"{path} was replaced while it was being opened, so nothing was written")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
            file.truncate()
