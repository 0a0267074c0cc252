"""What the deciders need to know of the disk on which a session's paths are: this machine's, or another's.

Needs the standard library alone: it is also sent to other hosts.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path

from acp_agent.errors import ExecutorError
from acp_agent.lazy import load

GLOB = "glob:iglob"
MAX_NAME = 255
"""Bytes of a name, in most file systems."""
READ = "acp_agent.executors.files:read"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal, Protocol

    Kind = Literal["file", "dir", "other"]

    class Disk(Protocol):
        """All of them raise OSError where the disk cannot tell, and of another machine ExecutorError if it cannot be
        asked, which is no answer."""

        words: str
        """The machine: `host build-7`; empty for this one."""
        where: str
        """As in "runs ...": `on host build-7`."""
        identity: str
        """Tells the machine from others of the same `words`."""

        @property
        def here(self) -> bool:
            """Whether it is this machine's."""
            ...

        def real_path(self, path: Path) -> Path:
            """`path` with all links in its existing part followed; the rest is appended unchanged.

            Raises OSError for a link loop and for names that are too long.
            """
            ...

        def kind(self, path: Path) -> Kind | None:
            """Of what a path leads to; `None` where nothing is."""
            ...

        def stands(self, path: Path) -> bool:
            """Whether something has that name, if only a link that leads nowhere."""
            ...

        def is_link(self, path: Path) -> bool: ...

        def matches(self, pattern: str, folder: Path, most: int) -> list[str]:
            """What a glob matches, relative to `folder`; at most so many."""
            ...

        def text(self, path: Path, limit: int) -> str:
            """Of a file, UTF-8 or not; raises ValueError for more than `limit` bytes."""
            ...

        def head(self, path: Path, most: int) -> bytes:
            """The first `most` bytes of a file; no link on the way to it is followed."""
            ...

        def names(self, folder: Path, most: int) -> list[tuple[str, bool]]:
            """Of a folder's entries, at most so many, and whether each is a folder."""
            ...

        def holds(self, path: Path, wanted: bytes, limit: int) -> bool:
            """Whether it is in a file; raises ValueError for more than `limit` bytes."""
            ...

        def below(self, path: Path, most: int) -> list[tuple[str, int]] | None:
            """Each entry of a tree, relative to it and beginning with itself (empty), and its kind as in a mode,
            folders before what they contain; links are not followed. `None`: there are more than `most`."""
            ...


class LocalDisk:
    words, where, identity = "", "on this machine", ""
    here = True

    def real_path(self, path: Path) -> Path:
        try:
            os.stat(path)
        except OSError as error:
            # A link loop would stay in the result as if it were a folder. (All of a path may be long.)
            long = error.errno == errno.ENAMETOOLONG and max(map(len, map(os.fsencode, path.parts))) > MAX_NAME
            if long or error.errno == errno.ELOOP:
                raise
        try:
            return Path(os.path.realpath(path))
        except RecursionError as error:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error

    def kind(self, path: Path) -> Kind | None:
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            return None
        return "dir" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"

    def stands(self, path: Path) -> bool:
        return os.path.lexists(path)

    def is_link(self, path: Path) -> bool:
        return os.path.islink(path)

    def matches(self, pattern: str, folder: Path, most: int) -> list[str]:
        return list(islice(load(GLOB)(pattern, root_dir=folder, include_hidden=True), most))

    def text(self, path: Path, limit: int) -> str:
        return _read(path, limit).decode("utf-8", "surrogateescape")

    def head(self, path: Path, most: int) -> bytes:
        found: bytes = load(READ)(path, most)
        return found

    def names(self, folder: Path, most: int) -> list[tuple[str, bool]]:
        with os.scandir(folder) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, most)]

    def holds(self, path: Path, wanted: bytes, limit: int) -> bool:
        return wanted in _read(path, limit)

    def below(self, path: Path, most: int) -> list[tuple[str, int]] | None:
        try:
            mode = path.lstat().st_mode
        except OSError:
            return []
        found = [("", mode)]
        folders = [""] if stat.S_ISDIR(mode) else []
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(path / folder) as entries:
                    inner = [(entry.name, _mode(entry)) for entry in entries]
            except OSError:  # `Files` cannot read it either, and refuse.
                continue
            if len(found) + len(inner) > most + 1:
                return None
            for name, mode in inner:
                relative = f"{folder}/{name}" if folder else name
                found.append((relative, mode))
                if stat.S_ISDIR(mode):
                    folders.append(relative)
        return found


def _mode(entry: os.DirEntry[str]) -> int:
    """The kind of an entry, from the folder's listing where that has it."""
    if entry.is_symlink():
        return stat.S_IFLNK
    return stat.S_IFDIR if entry.is_dir(follow_symlinks=False) else stat.S_IFREG


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError("too large")
    return data


HERE = LocalDisk()


# --- which folder is meant ---------------------------------------------------------------------------------------

Identity = tuple[int, int]
"""Device and inode."""
Entered = Callable[[Path], AbstractContextManager[Path]]
"""As `Roots.entered`."""

O_PATH = getattr(os, "O_PATH", 0)
STEP = (O_PATH or os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def replaced(path: Path) -> str:
    return (
        f"{path} is not the folder any more in which the session was opened: it was replaced, perhaps to lead commands "
        "to another one; nothing was run. Put it back, or open a session anew"
    )


class Folder:
    """A folder of a session: its path with all links followed, and its identity.

    Where the platform allows, it is held: so nothing else gets its inode while this object lives.
    """

    def __init__(self, path: Path) -> None:
        """`path`: resolved. A folder that is not there, or a link by now, has no identity."""
        self.path = path
        self.identity: Identity | None = None
        self.handle: int | None = None
        try:
            handle = os.open(path, STEP)
        except OSError:
            return
        found = os.fstat(handle)
        self.identity = (found.st_dev, found.st_ino)
        if O_PATH:
            self.handle = handle
            weakref.finalize(self, os.close, handle)
        else:
            os.close(handle)

    @property
    def is_there(self) -> bool:
        """Whether its name still leads to it, without a link."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity and os.path.realpath(self.path) == str(self.path)

    def need(self) -> None:
        """Raises ExecutorError if something else is in its place."""
        if not self.is_there and os.path.lexists(self.path):
            raise ExecutorError(replaced(self.path))

    @contextmanager
    def entered(self, inner: Path) -> Iterator[Path]:
        """Where a process is started that is to run in the folder `inner` in this one: there, whatever is put in its
        place meanwhile. Raises ExecutorError if something else is in this one's, or a link is on the way."""
        self.need()
        if self.handle is None:
            yield self.path / inner
            return
        step = os.dup(self.handle)
        try:
            for name in inner.parts:
                above, step = step, _step(step, name, self.path / inner)
                os.close(above)
            yield Path(f"/proc/self/fd/{step}")
        finally:
            os.close(step)


def _step(above: int, name: str, whole: Path) -> int:
    try:
        return os.open(name, STEP, dir_fd=above)
    except OSError as error:
        raise ExecutorError(f"the working directory {whole} cannot be entered: {error.strerror}") from error
