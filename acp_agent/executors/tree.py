"""Making, removing, moving and copying files and folders, by folder handles.

A path given here is resolved, its last name excepted: a link of that name is meant itself. It is reached from the top,
name by name, and no step follows a link; the work below goes from handle to handle in the same way. So a folder that
somebody swaps for a link while the work goes on ends the work, and never leads it elsewhere.

Everything is looked at before anything is changed: more than `max_entries` entries, a folder that is too deep, a device
among files to copy are refused while all is as it was. A copy is made beside its destination and put there as a whole,
so a copy that fails or is stopped leaves nothing behind. Owners are kept where we may; extended attributes are not.

Plain blocking calls, to be run in a thread. `check` is called between two entries; what it raises stops the work.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Tally

__all__ = ["copy", "make_directory", "move", "remove"]

Check = Callable[[], None]

MAX_DEPTH = 100
"""Folders in folders; each level holds a descriptor or two."""

CHUNK = 1024 * 1024

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
STEP = getattr(os, "O_PATH", os.O_RDONLY) | FOLDER
NO_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP})
"""What opening a file or a link as a folder is answered with."""

NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


def make_directory(path: Path) -> int:
    """Makes the folder and its parents; the number of folders made."""
    with _reach(path, make=True) as handle:
        return handle.made


def remove(path: Path, max_entries: int, check: Check) -> Tally:
    work = _Work(max_entries, check)
    with _reach(path.parent) as parent, work.words():
        work.survey(parent.fd, path.name, str(path))
        removed = work.fresh()
        with removed.words("deleted before that"):
            removed.remove(parent.fd, path.name, str(path))
    return removed.tally()


def move(source: Path, destination: Path, overwrite: bool, max_entries: int, check: Check) -> Tally:
    return _transfer(source, destination, overwrite, max_entries, check, moves=True)


def copy(source: Path, destination: Path, overwrite: bool, max_entries: int, check: Check) -> Tally:
    return _transfer(source, destination, overwrite, max_entries, check, moves=False)


def _transfer(source: Path, destination: Path, overwrite: bool, max_entries: int, check: Check, moves: bool) -> Tally:
    if source == destination:
        raise ExecutorError(f"{source} is both source and destination")
    if destination in source.parents:
        raise ExecutorError(f"{destination} holds {source}, so it cannot be replaced by it")
    work = _Work(max_entries, check)
    with _reach(source.parent) as here, work.words():
        found = work.survey(here.fd, source.name, str(source), plain=not moves)
        if source in destination.parents:
            raise ExecutorError(f"{destination} is inside of {source}")
        with _reach(destination.parent, make=True) as there:
            if _id(found) in there.above:
                raise ExecutorError(f"{destination} is inside of {source}")
            step = _Step(work, here.fd, source, there.fd, destination, stat.S_ISDIR(found.st_mode))
            step.check_free(found, overwrite, moves)
            if moves:
                step.move(found, overwrite)
            else:
                step.copy(overwrite)
    return work.tally()


# --- handles --------------------------------------------------------------------------------------------------


class _Handle:
    """An open folder: its descriptor, what it and the folders above it are, how many of them were made now."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.above: set[tuple[int, int]] = set()
        self.made = 0


@contextmanager
def _reach(path: Path, *, make: bool = False) -> Iterator[_Handle]:
    """The folder, reached from the top without following any link. `make`: with what is missing of it."""
    handle = _Handle(os.open(path.anchor, STEP))
    try:
        for number, name in enumerate(path.parts[1:], 2):
            try:
                below = os.open(name, STEP, dir_fd=handle.fd)
            except FileNotFoundError:
                if not make:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
                with contextlib.suppress(FileExistsError):  # somebody else has just made it
                    os.mkdir(name, dir_fd=handle.fd)
                    handle.made += 1
                below = _enter(handle.fd, name, str(Path(*path.parts[:number])), STEP)
            except OSError as error:
                raise _no_folder(error, str(Path(*path.parts[:number]))) from error
            os.close(handle.fd)
            handle.fd = below
            handle.above.add(_id(os.fstat(below)))
        yield handle
    finally:
        os.close(handle.fd)


def _enter(parent: int, name: str, shown: str, flags: int = os.O_RDONLY | FOLDER) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        raise _no_folder(error, shown) from error


def _no_folder(error: OSError, shown: str) -> OSError | ExecutorError:
    if error.errno in NO_FOLDER:
        return ExecutorError(f"{shown} is no folder, or became something else meanwhile")
    return OSError(error.errno, error.strerror, shown)


def _look(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _names(parent: int) -> list[str]:
    fd = os.open(".", os.O_RDONLY | FOLDER, dir_fd=parent)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _id(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _beside(name: str) -> str:
    return f".{name[:40]}.{uuid.uuid4().hex[:12]}"


# --- the walk -------------------------------------------------------------------------------------------------


class _Work:
    """One walk over a tree, and what it has counted."""

    def __init__(self, max_entries: int, check: Check) -> None:
        self._most = max_entries
        self._check = check
        self._at = ""
        self.files = self.folders = self.links = self.bytes = 0
        self.copied: dict[tuple[int, int], tuple[int, int]] = {}
        """What was copied, as it was then: the time of its last change and its size."""
        self.left = ""
        """Something that was not removed since it is not what was copied."""

    def fresh(self) -> _Work:
        """Another one with the same bounds that has counted nothing."""
        return _Work(self._most, self._check)

    def tally(self) -> Tally:
        return Tally(self.files, self.folders, self.links, self.bytes)

    @contextmanager
    def words(self, done: str = "") -> Iterator[None]:
        """Errors of the system name the entry and what had been done."""
        try:
            yield
        except FileNotFoundError:
            if done:
                raise ExecutorError(f"{self._at} vanished meanwhile{self._so_far(done)}") from None
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._at) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise ExecutorError(f"{self._at or error.filename}: {reason}{self._so_far(done)}") from error
        except ExecutorError as error:
            if not done:
                raise
            raise ExecutorError(f"{error}{self._so_far(done)}") from error

    def _so_far(self, done: str) -> str:
        return f" ({done}: {self.tally()})" if done else ""

    def _count(self, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            self.folders += 1
        elif stat.S_ISLNK(found.st_mode):
            self.links += 1
        else:
            self.files += 1
            self.bytes += found.st_size if stat.S_ISREG(found.st_mode) else 0
        if self.files + self.folders + self.links > self._most:
            raise ExecutorError(f"there are more than {self._most} entries, more than are handled at once")

    def _next(self, shown: str, depth: int) -> None:
        self._check()
        self._at = shown
        if depth > MAX_DEPTH:
            raise ExecutorError(f"{shown} is more than {MAX_DEPTH} folders deep")

    def survey(
        self, parent: int, name: str, shown: str, depth: int = 0, *, plain: bool = False, device: int | None = None
    ) -> os.stat_result:
        """Counts all there is. Raises for what cannot be handled: with `plain` what is no file, folder or link, else a
        file system that is mounted below."""
        self._next(shown, depth)
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if plain:
            _need_plain(found, shown)
        self._count(found)
        if stat.S_ISDIR(found.st_mode):
            if not plain and device not in (None, found.st_dev):
                raise ExecutorError(f"another file system is mounted at {shown}")
            fd = _enter(parent, name, shown)
            try:
                for child in os.listdir(fd):
                    self.survey(fd, child, f"{shown}/{child}", depth + 1, plain=plain, device=found.st_dev)
            finally:
                os.close(fd)
        return found

    def remove(self, parent: int, name: str, shown: str, depth: int = 0, *, copied: bool = False) -> None:
        """`copied`: only what was copied and has not changed since."""
        self._next(shown, depth)
        found = _look(parent, name)
        if found is None:
            if depth == 0:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown)
            return  # somebody else was faster
        if stat.S_ISDIR(found.st_mode):
            fd = _enter(parent, name, shown)
            try:
                for child in os.listdir(fd):
                    self.remove(fd, child, f"{shown}/{child}", depth + 1, copied=copied)
            finally:
                os.close(fd)
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                if not copied or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                self.left = self.left or shown
                return
        elif copied and self.copied.get(_id(found)) != (found.st_mtime_ns, found.st_size):
            self.left = shown
            return
        else:
            os.unlink(name, dir_fd=parent)
        self._count(found)

    def copy(self, parent: int, name: str, into: int, as_name: str, shown: str, depth: int = 0) -> None:
        self._next(shown, depth)
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        _need_plain(found, shown)
        self._count(found)
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=parent), as_name, dir_fd=into)
            with contextlib.suppress(OSError, NotImplementedError):
                times = (found.st_atime_ns, found.st_mtime_ns)
                os.utime(as_name, ns=times, dir_fd=into, follow_symlinks=False)
        elif stat.S_ISDIR(found.st_mode):
            old = _enter(parent, name, shown)
            try:
                os.mkdir(as_name, 0o700, dir_fd=into)
                new = _enter(into, as_name, shown)
                try:
                    for child in os.listdir(old):
                        self.copy(old, child, new, child, f"{shown}/{child}", depth + 1)
                    self._at = shown
                    _like(new, os.fstat(old))
                finally:
                    os.close(new)
            finally:
                os.close(old)
        else:
            found = self._copy_file(parent, name, into, as_name, shown)
        self.copied[_id(found)] = (found.st_mtime_ns, found.st_size)

    def _copy_file(self, parent: int, name: str, into: int, as_name: str, shown: str) -> os.stat_result:
        # Without O_NONBLOCK, a pipe that took the file's place would be waited for.
        old = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        try:
            found = os.fstat(old)
            if not stat.S_ISREG(found.st_mode):
                raise ExecutorError(f"{shown} became something else meanwhile")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(as_name, flags, 0o600, dir_fd=into), "wb", buffering=0) as new:
                while data := os.read(old, CHUNK):
                    self._check()
                    rest = memoryview(data)
                    while rest:
                        rest = rest[new.write(rest) :]
                _like(new.fileno(), found)
        finally:
            os.close(old)
        return found

    def discard(self, parent: int, name: str) -> None:
        """Removes a copy that is not finished, as far as that goes."""
        if (found := _look(parent, name)) is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent)
            return
        fd = os.open(name, os.O_RDONLY | FOLDER, dir_fd=parent)
        try:
            os.fchmod(fd, 0o700)
            for child in os.listdir(fd):
                self.discard(fd, child)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=parent)


def _need_plain(found: os.stat_result, shown: str) -> None:
    mode = found.st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
        return
    what = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    raise ExecutorError(f"{shown} is {what}, which cannot be copied")


def _like(fd: int, found: os.stat_result) -> None:
    """Owner (if we may), mode and times as `found` has them; the bits that lend rights only to the same owner."""
    with contextlib.suppress(PermissionError):
        os.fchown(fd, found.st_uid, found.st_gid)
    now = os.fstat(fd)
    same = (now.st_uid, now.st_gid) == (found.st_uid, found.st_gid)
    os.fchmod(fd, stat.S_IMODE(found.st_mode) if same else found.st_mode & 0o1777)
    os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))


# --- from one place to another --------------------------------------------------------------------------------


class _Step:
    """From a name in an open folder to a name in another."""

    def __init__(self, work: _Work, here: int, source: Path, there: int, destination: Path, folder: bool) -> None:
        self._work = work
        self._here = here
        self._source = source
        self._there = there
        self._destination = destination
        self._folder = folder
        self._same_name = False
        """The destination is the source itself in another spelling, on a disk that does not tell them apart."""

    def check_free(self, found: os.stat_result, overwrite: bool, moves: bool) -> None:
        """Raises where the destination must stay as it is."""
        taken = _look(self._there, self._destination.name)
        if taken is None:
            return
        if _id(taken) == _id(found) and _id(os.fstat(self._here)) == _id(os.fstat(self._there)):
            self._same_name = self._destination.name not in _names(self._there)
            if self._same_name:
                if moves:
                    return
                raise ExecutorError(f"{self._destination} is {self._source} itself")
        if not overwrite:
            raise self._exists()
        if stat.S_ISDIR(taken.st_mode) != self._folder:
            what, other = ("a file", "a folder") if self._folder else ("a folder", "a file")
            raise ExecutorError(f"{self._destination} is {what}, which is not replaced by {other}")
        self._work.fresh().survey(self._there, self._destination.name, str(self._destination))

    def _exists(self) -> ExecutorError:
        return ExecutorError(f"{self._destination} exists already")

    def move(self, found: os.stat_result, overwrite: bool) -> None:
        here, name = self._here, self._source.name
        if self._same_name:
            os.rename(name, self._destination.name, src_dir_fd=here, dst_dir_fd=self._there)
            return
        taken = _look(self._there, self._destination.name)
        if overwrite and taken is not None and _id(taken) == _id(found):
            os.unlink(name, dir_fd=here)  # two names of one file: renaming one to the other would do nothing
            return
        try:
            self._put(here, name, overwrite)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._move_far(overwrite)

    def _move_far(self, overwrite: bool) -> None:
        """To another file system: a copy, and then what was copied is removed."""
        copied = self.copy(overwrite)
        gone = _Work(sys.maxsize, lambda: None)
        gone.copied = copied
        with gone.words(f"all is copied to {self._destination}; deleted of {self._source}"):
            gone.remove(self._here, self._source.name, str(self._source), copied=True)
        if gone.left:
            raise ExecutorError(
                f"{gone.left} changed while {self._source} was copied to {self._destination}; the copy is complete, "
                "and what changed was left where it was"
            )

    def copy(self, overwrite: bool) -> dict[tuple[int, int], tuple[int, int]]:
        work, name = self._work, self._source.name
        fresh = work.fresh()
        beside = _beside(self._destination.name)
        try:
            with fresh.words():
                fresh.copy(self._here, name, self._there, beside, str(self._source))
            self._put(self._there, beside, overwrite)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.discard(self._there, beside)
            raise
        work.files, work.folders, work.links, work.bytes = fresh.files, fresh.folders, fresh.links, fresh.bytes
        return fresh.copied

    def _put(self, here: int, name: str, overwrite: bool) -> None:
        """Renames to the destination; what is there is replaced only where `overwrite` says so, whoever made it."""
        there, to_name = self._there, self._destination.name
        if self._folder:
            self._put_folder(here, name, overwrite)
        elif overwrite:
            os.rename(name, to_name, src_dir_fd=here, dst_dir_fd=there)
        else:
            try:
                os.link(name, to_name, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
            except FileExistsError:
                raise self._exists() from None
            except OSError as error:
                if error.errno not in NO_HARD_LINKS:
                    raise
                if _look(there, to_name) is not None:
                    raise self._exists() from None
                os.rename(name, to_name, src_dir_fd=here, dst_dir_fd=there)
                return
            try:
                os.unlink(name, dir_fd=here)
            except OSError:
                os.unlink(to_name, dir_fd=there)
                raise

    def _put_folder(self, here: int, name: str, overwrite: bool) -> None:
        there, to_name = self._there, self._destination.name
        if _look(there, to_name) is None:
            os.rename(name, to_name, src_dir_fd=here, dst_dir_fd=there)
            return
        if not overwrite:
            raise self._exists()
        aside = _beside(to_name)
        os.rename(to_name, aside, src_dir_fd=there, dst_dir_fd=there)
        try:
            os.rename(name, to_name, src_dir_fd=here, dst_dir_fd=there)
        except BaseException:
            os.rename(aside, to_name, src_dir_fd=there, dst_dir_fd=there)
            raise
        old = _Work(sys.maxsize, lambda: None)
        with old.words(f"{self._destination} is replaced; what it held before is in {aside}; deleted of that"):
            old.remove(there, aside, str(self._destination.with_name(aside)))
