"""Takes the picture of a path, and makes a path what a picture shows. No link is followed on the way.

Plain blocking calls, to be run in a thread.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from acp_agent.errors import ExecutorError
from acp_agent.executors.beneath import folder, keep_attributes, regular
from acp_agent.executors.tree_walk import Hides, look, names
from acp_agent.undo.base import NOTHING, Entry
from acp_agent.undo.contents import ContentError, Contents, common, name_of

ANY_CASE = sys.platform in ("darwin", "win32")
"""Whether a name usually finds an entry in another spelling."""
HIDDEN = "it is hidden by the configuration"
TOO_LONG = "it is larger than {} bytes"
OPEN = 0o700
"""The permissions we need of a folder to change something in it; those of a new one until everything in it is made."""


class Camera:
    """Takes pictures; contents of at most `limit` bytes are kept, of none that `hides` hides."""

    def __init__(self, contents: Contents, limit: int, hides: Hides | None = None) -> None:
        self.contents = contents
        self.limit = limit
        self._hides = hides

    def take(
        self, path: Path, *, like: str = "", keep: bool = True, known: Entry = NOTHING, data: bytes | None = None
    ) -> Entry:
        """What is at `path`. `like`: a kept content that it resembles. `keep`: whether its content is kept, not only
        its hash. `known`: an earlier picture; a file that has its mark is not read again. `data`: what a file holds, if
        that was read a moment ago. Raises ExecutorError, OSError."""
        try:
            with folder(path.parent) as parent:
                return self._take(parent, path, like, keep, known, data)
        except (FileNotFoundError, NotADirectoryError):
            return NOTHING

    def _take(self, parent: int, path: Path, like: str, keep: bool, known: Entry, data: bytes | None) -> Entry:
        found = look(parent, path.name or ".")
        if found is None or (ANY_CASE and path.name and path.name not in names(parent)):
            return NOTHING
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISDIR(found.st_mode):
            return Entry("dir", mode)
        if stat.S_ISLNK(found.st_mode):
            return Entry("link", target=os.fsdecode(os.readlink(path.name, dir_fd=parent)))
        if not stat.S_ISREG(found.st_mode):
            return Entry("other", mode, why="it is no file")
        if known.mark == mark_of(found):
            return replace(known, mode=mode)
        why = TOO_LONG.format(self.limit) if found.st_size > self.limit else self._why_hidden(path)
        if why:
            return Entry("file", mode, found.st_size, mark=mark_of(found), why=why)
        try:
            if data is None or len(data) != found.st_size:
                with regular(parent, path) as descriptor:
                    data = _all(descriptor, found)
            kept = self.contents.put(data, like) if keep else name_of(data)
        except (OSError, ContentError) as error:
            words = error.strerror if isinstance(error, OSError) else str(error)
            return Entry("file", mode, found.st_size, mark=mark_of(found), why=words or "it cannot be read")
        return Entry("file", mode, len(data), kept, mark=mark_of(found))

    def _why_hidden(self, path: Path) -> str:
        return HIDDEN if self._hides is not None and self._hides(path) else ""


def mark_of(found: os.stat_result) -> str:
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


def has_other_names(path: Path) -> bool:
    """Whether the file is a hard link; only for words, as it follows links on the way."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def missing_folders(path: Path) -> list[Path]:
    """The folders above `path` that do not exist, the topmost first."""
    missing = []
    for above in path.parents:
        if above.exists() or above.is_symlink():
            break
        missing.append(above)
    return missing[::-1]


def put(path: Path, entry: Entry, contents: Contents) -> str:
    """Makes `path` what `entry` shows. Returns what was not done, in words.

    Raises ContentError if the content is lost, ExecutorError or OSError (of `path`) if the path cannot be changed; then
    it is as it was.
    """
    if entry.kind == "other":
        return f"{path} was no file, folder or link and cannot be made again"
    if entry.kind == "file" and not entry.content:
        return f"{path} cannot be restored: {entry.why}"
    data = contents.get(entry.content) if entry.kind == "file" else b""
    with named(path), folder(path.parent, make=entry.kind != "none") as parent:
        found = look(parent, path.name)
        if entry.kind == "none":
            return "" if found is None else _remove(parent, path, found)
        if entry.kind == "dir":
            if found is None or not stat.S_ISDIR(found.st_mode):
                if found is not None:
                    os.unlink(path.name, dir_fd=parent)
                os.mkdir(path.name, OPEN, dir_fd=parent)
            os.chmod(path.name, entry.mode, dir_fd=parent)
            return ""
        if found is not None and stat.S_ISDIR(found.st_mode) and (left := _remove(parent, path, found)):
            return left
        _replace(parent, path, entry, data, found)
    return ""


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Errors name this path, not one beside it that is written first."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def put_in_place(path: Path, entry: Entry, contents: Contents) -> bool:
    """Makes a file what `entry` shows where no other can take its place: its folder cannot be written to, or something
    is mounted there. False if it cannot be written either; also if it has other names, which may be the user's.

    What is written is neither before nor after for a moment; `half` tells.
    """
    if not entry.content:
        return False
    data = contents.get(entry.content)
    try:
        with folder(path.parent) as parent, regular(parent, path, os.O_RDWR) as descriptor:
            found = os.fstat(descriptor)
            if found.st_nlink > 1:
                return False
            old = _all(descriptor, found)
            try:
                _fill(descriptor, data)
                if stat.S_IMODE(os.fstat(descriptor).st_mode) != entry.mode:  # Writing may take bits from it.
                    os.fchmod(descriptor, entry.mode)
            except OSError:
                _fill(descriptor, old)
                raise
    except (OSError, ExecutorError):
        return False
    return True


def _fill(descriptor: int, data: bytes) -> None:
    at = 0
    while at < len(data):
        at += os.pwrite(descriptor, data[at:], at)
    os.ftruncate(descriptor, len(data))


def _all(descriptor: int, found: os.stat_result) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(found.st_size + 1)


def half(path: Path, one: Entry, other: Entry, contents: Contents) -> bool:
    """Whether the file begins as `other` and goes on as `one`: the first was being written over the second."""
    if not (one.kind == other.kind == "file" and one.content and other.content):
        return False
    with folder(path.parent) as parent, regular(parent, path) as descriptor:
        data = _all(descriptor, os.fstat(descriptor))
    old, new = contents.get(one.content), contents.get(other.content)
    same = common(data, new)
    return data[same:] == old[same:] or data == new


def _remove(parent: int, path: Path, found: os.stat_result) -> str:
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(path.name, dir_fd=parent)
        return ""
    try:
        os.rmdir(path.name, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
            raise
        return f"{path} was not removed: it is not empty"
    return ""


def _replace(parent: int, path: Path, entry: Entry, data: bytes, found: os.stat_result | None) -> None:
    beside = _beside(path)
    with suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=parent)
    try:
        if entry.kind == "link":
            os.symlink(entry.target, beside, dir_fd=parent)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(beside, flags, 0o600, dir_fd=parent), "wb") as file:
                file.write(data)
                file.flush()
                if found is not None:
                    keep_attributes(parent, path.name, found, file.fileno())
                os.fchmod(file.fileno(), entry.mode)
        os.replace(beside, path.name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=parent)
        raise


def _beside(path: Path, what: str = "undo") -> str:
    """The name under which a file is written before it takes its place; always the same for a path."""
    return f".{path.name[:40]}.{what}-{name_of(os.fsencode(path))[:16]}"


def aside(path: Path, gone: Container[Path]) -> Path:
    """Where a file whose content is not kept waits until the undo is done: always the same; not in folders that the
    undo removes (`gone`)."""
    return next(above for above in path.parents if above not in gone) / _beside(path, "aside")


def clear(path: Path) -> None:
    """Removes what a process that was killed may have left beside `path`."""
    with suppress(FileNotFoundError, NotADirectoryError), folder(path.parent) as parent:
        os.unlink(_beside(path), dir_fd=parent)


def rename(source: Path, destination: Path, mode: int, *, replacing: bool = False) -> str:
    """Moves a file (not its content, which is not kept) and gives it that mode. Raises ExecutorError if something is
    there that is not to be replaced. Returns what was not done, in words."""
    with folder(source.parent) as here, folder(destination.parent, make=True) as there:
        found, moved = look(there, destination.name), look(here, source.name)
        if found is not None and not replacing:
            raise ExecutorError(f"{destination} exists")
        if found is not None and stat.S_ISDIR(found.st_mode) and (left := _remove(there, destination, found)):
            return left
        if moved is not None and stat.S_IMODE(moved.st_mode) != mode:
            os.chmod(source.name, mode, dir_fd=here)
        os.rename(source.name, destination.name, src_dir_fd=here, dst_dir_fd=there)
    return ""


def set_mode(path: Path, mode: int, *, more: bool = False) -> bool:
    """Gives a folder these permissions; `more`: in addition to those it has. False if it has them, or there is none."""
    with suppress(FileNotFoundError, NotADirectoryError), folder(path.parent) as parent:
        found = look(parent, path.name)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return False
        now = stat.S_IMODE(found.st_mode)
        wanted = now | mode if more else mode
        if now != wanted:
            os.chmod(path.name, wanted, dir_fd=parent)
            return True
    return False
