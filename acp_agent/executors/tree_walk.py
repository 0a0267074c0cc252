"""The handles and the walk that `tree` works with: folders reached without following a link; entries counted, removed
and copied one by one; words for what goes wrong.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Tally

Check = Callable[[], None]
Hides = Callable[[Path], bool]
"""Whether a path must not be read."""
Look = Callable[[str, int], None]
"""Told about each entry, as shown and with its mode, before it is touched. Raises if it must not be."""

MAX_DEPTH = 100
"""Folders in folders; each level holds a descriptor or two."""

CHUNK = 1024 * 1024

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Found(Protocol):
        """What lstat tells."""

        @property
        def st_mode(self) -> int: ...

        @property
        def st_size(self) -> int: ...

        @property
        def st_dev(self) -> int: ...


FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
STEP = getattr(os, "O_PATH", os.O_RDONLY) | FOLDER
NO_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP})
"""Errors of opening a file or a link as a folder."""


class NoFolder(ExecutorError):
    """A step on the way to a folder is none. `link`: it is a link."""

    def __init__(self, shown: str, *, link: bool) -> None:
        super().__init__(f"{shown} is not a folder, or was replaced in the meantime")
        self.link = link


class Handle:
    """An open folder: its descriptor, the identities of it and the folders above, and how many of them were just
    created."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.above: set[tuple[int, int]] = set()
        self.made = 0


@contextmanager
def reach(path: Path, *, make: bool = False) -> Iterator[Handle]:
    """The folder, reached from the root without following any link. `make`: creates missing folders."""
    handle = Handle(os.open(path.anchor, STEP))
    try:
        for number, name in enumerate(path.parts[1:], 2):
            try:
                below = os.open(name, STEP, dir_fd=handle.fd)
            except FileNotFoundError:
                if not make:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
                with contextlib.suppress(FileExistsError):  # another process has just created it
                    os.mkdir(name, dir_fd=handle.fd)
                    handle.made += 1
                below = enter(handle.fd, name, str(Path(*path.parts[:number])), STEP)
            except OSError as error:
                raise _no_folder(error, handle.fd, name, str(Path(*path.parts[:number]))) from error
            os.close(handle.fd)
            handle.fd = below
            handle.above.add(identity(os.fstat(below)))
        yield handle
    except BaseException:
        unmake(path, handle.made)
        raise
    finally:
        os.close(handle.fd)


def unmake(path: Path, made: int) -> None:
    """Removes the last `made` folders of a path, as far as they are empty."""
    for folder in (path, *path.parents)[:made]:
        try:
            with reach(folder.parent) as parent:
                os.rmdir(folder.name, dir_fd=parent.fd)
        except (OSError, ExecutorError):
            return


def enter(parent: int, name: str, shown: str, flags: int = os.O_RDONLY | FOLDER) -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        raise _no_folder(error, parent, name, shown) from error


def _no_folder(error: OSError, parent: int, name: str, shown: str) -> OSError | ExecutorError:
    if error.errno in NO_FOLDER:
        # A folder that reappeared was something else a moment ago: a swap, not a file in the way.
        found = look(parent, name)
        return NoFolder(shown, link=found is not None and (stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode)))
    return OSError(error.errno, error.strerror, shown)


def look(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def names(parent: int) -> list[str]:
    fd = os.open(".", os.O_RDONLY | FOLDER, dir_fd=parent)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


# --- the walk -------------------------------------------------------------------------------------------------


class Walk:
    """One walk over a tree, and what it has counted."""

    def __init__(self, max_entries: int, check: Check, hides: Hides | None = None, look: Look | None = None) -> None:
        self._most = max_entries
        self._hides = hides
        self._look = look
        self._check = check
        self._at = ""
        self.files = self.folders = self.links = self.bytes = 0
        self.copied: dict[tuple[int, int], tuple[int, int]] = {}
        """The files that were copied, as they were then: the time of its last change and its size."""
        self.left = ""
        """Something that was not removed because it is not what was copied."""

    def fresh(self) -> Walk:
        """A fresh walk with the same bounds."""
        return Walk(self._most, self._check, self._hides, self._look)

    def at(self, look: Look | None) -> Walk:
        """A fresh walk over another tree with the same bounds, in which nothing is hidden."""
        return Walk(self._most, self._check, None, look)

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

    def _need_judged(self, shown: str, found: Found) -> None:
        if self._look is not None:
            self._look(shown, found.st_mode)

    def _count(self, found: Found) -> None:
        if stat.S_ISDIR(found.st_mode):
            self.folders += 1
        elif stat.S_ISLNK(found.st_mode):
            self.links += 1
        else:
            self.files += 1
            self.bytes += found.st_size if stat.S_ISREG(found.st_mode) else 0
        if self.files + self.folders + self.links > self._most:
            raise ExecutorError(f"there are more than {self._most} entries, too many to handle at once")

    def _next(self, shown: str, depth: int) -> None:
        self._check()
        self._at = shown
        if depth > MAX_DEPTH:
            raise ExecutorError(f"{shown} is more than {MAX_DEPTH} folders deep")

    def _need_shown(self, shown: str) -> None:
        if self._hides is not None and self._hides(Path(shown)):
            words = "(`tools.files.deny_read`, `tools.risk.forbidden_paths`), so it cannot be copied or moved"
            raise ExecutorError(f"{shown} is hidden {words}")

    def survey(
        self, parent: int, name: str, shown: str, depth: int = 0, *, plain: bool = False, device: int | None = None
    ) -> os.stat_result:
        """Counts everything. Raises for what cannot be handled: with `plain` anything but a file, folder or link,
        otherwise a file system mounted below; hidden paths in either case."""
        self._next(shown, depth)
        self._need_shown(shown)
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        self._take(shown, found, plain, device)
        if stat.S_ISDIR(found.st_mode):
            fd = enter(parent, name, shown)
            try:
                for child in os.listdir(fd):
                    self.survey(fd, child, f"{shown}/{child}", depth + 1, plain=plain, device=found.st_dev)
            finally:
                os.close(fd)
        return found

    def _take(self, shown: str, found: Found, plain: bool, device: int | None) -> None:
        if plain:
            _need_plain(found, shown)
        self._need_judged(shown, found)
        self._count(found)
        if stat.S_ISDIR(found.st_mode) and not plain and device not in (None, found.st_dev):
            raise ExecutorError(f"another file system is mounted at {shown}")

    def take(self, shown: str, found: Found, depth: int, *, plain: bool, device: int | None) -> None:
        """The same as `survey` of one entry that was looked at elsewhere. `device`: that of the folder above."""
        self._next(shown, depth)
        self._need_shown(shown)
        self._take(shown, found, plain, device)

    def remove(self, parent: int, name: str, shown: str, depth: int = 0, *, copied: bool = False) -> None:
        """`copied`: only what was copied and has not changed since."""
        self._next(shown, depth)
        found = look(parent, name)
        if found is None:
            if depth == 0:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown)
            return  # another process was faster
        self._need_judged(shown, found)
        if stat.S_ISDIR(found.st_mode):
            fd = enter(parent, name, shown)
            try:
                for child in os.listdir(fd):
                    self.remove(fd, child, f"{shown}/{child}", depth + 1, copied=copied)
            finally:
                os.close(fd)
            self._at = shown
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                if not copied or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                self.left = self.left or shown
                return
        elif copied and self.copied.get(identity(found)) != (found.st_mtime_ns, found.st_size):
            self.left = shown
            return
        else:
            os.unlink(name, dir_fd=parent)
        self._count(found)

    def copy(self, parent: int, name: str, into: int, as_name: str, shown: str, depth: int = 0) -> None:
        self._next(shown, depth)
        self._need_shown(shown)
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        _need_plain(found, shown)
        self._need_judged(shown, found)
        self._count(found)
        if stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=parent), as_name, dir_fd=into)
            with contextlib.suppress(OSError, NotImplementedError):
                times = (found.st_atime_ns, found.st_mtime_ns)
                os.utime(as_name, ns=times, dir_fd=into, follow_symlinks=False)
        elif stat.S_ISDIR(found.st_mode):
            old = enter(parent, name, shown)
            try:
                os.mkdir(as_name, 0o700, dir_fd=into)
                new = enter(into, as_name, shown)
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
        self.copied[identity(found)] = (found.st_mtime_ns, found.st_size)

    def _copy_file(self, parent: int, name: str, into: int, as_name: str, shown: str) -> os.stat_result:
        # Without O_NONBLOCK, a pipe that took the file's place would be waited for.
        old = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        try:
            found = os.fstat(old)
            if not stat.S_ISREG(found.st_mode):
                raise ExecutorError(f"{shown} was replaced in the meantime")
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
        """Removes an unfinished copy, as far as possible."""
        if (found := look(parent, name)) is None:
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


def _need_plain(found: Found, shown: str) -> None:
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
