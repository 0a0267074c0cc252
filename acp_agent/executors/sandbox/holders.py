"""Placeholders: empty folders where a protected path does not exist yet, so that a command cannot create it.

Folders, because version control ignores empty ones. The mode distinguishes them from the user's folders, so that the
next agent takes over and removes what a killed one left. Several commands and agents may need the same one: each holds
a shared lock on its parent folder, and it is removed with the last of them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field

from acp_agent.errors import ExecutorError
from acp_agent.executors import beneath

MODE = 0o1555
"""Read-only and sticky: unlikely by accident."""

IMPOSSIBLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT)
"""Nothing can be made there, which is so for the command, too."""


class _Parent(Struct):
    """A folder with place holders in it, and how many commands of this process need them."""

    fd: int
    commands: int = 0
    names: set[str] = field(default_factory=set)


_guard = threading.Lock()
_parents: dict[Path, _Parent] = {}


def is_place_holder(found: os.stat_result) -> bool:
    return (
        stat.S_ISDIR(found.st_mode)
        and stat.S_IMODE(found.st_mode) == MODE
        and found.st_uid == os.geteuid()
        and found.st_nlink <= 2
    )


def is_held(path: Path) -> bool:
    """Whether a placeholder is at `path` now."""
    try:
        return is_place_holder(path.lstat())
    except OSError:
        return False


def hold(paths: Iterable[Path]) -> list[Path]:
    """Creates or shares placeholders; returns the paths that now have one. The others need none: something else exists
    there, or nothing can be created there. `release` everything returned, once."""
    held: list[Path] = []
    with _guard:
        for folder, names in _by_folder(paths).items():
            parent = _parents.get(folder) or _open(folder)
            if parent is None:
                continue
            _parents[folder] = parent
            parent.commands += 1
            try:
                mine = [name for name in names if name in parent.names or _make(parent.fd, name)]
            except OSError as error:
                _leave(folder)
                for done, rest in _by_folder(held).items():
                    assert rest
                    _leave(done)
                raise ExecutorError(f"{folder / str(error.filename)} cannot be protected: {error.strerror}") from error
            parent.names.update(mine)
            held += [folder / name for name in mine]
            if not mine:
                _leave(folder)
    return held


def release(paths: Iterable[Path]) -> None:
    """Releases, for one command, what `hold` gave."""
    with _guard:
        for folder in _by_folder(paths):
            _leave(folder)


def _by_folder(paths: Iterable[Path]) -> dict[Path, list[str]]:
    folders: dict[Path, list[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path.name)
    return folders


def _open(folder: Path) -> _Parent | None:
    try:
        with beneath.folder(folder) as handle:
            fd = beneath.named(handle)
    except (OSError, ExecutorError):
        return None
    with contextlib.suppress(OSError):  # No locks on this file system, or another process holds one: go on without.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return _Parent(fd)


def _make(above: int, name: str) -> bool:
    try:
        os.mkdir(name, MODE, dir_fd=above)
        if stat.S_IMODE(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode) != MODE:  # The umask took of it.
            made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            os.fchmod(made, MODE)
            os.close(made)
        return True
    except FileExistsError:
        with contextlib.suppress(FileNotFoundError):
            return is_place_holder(os.stat(name, dir_fd=above, follow_symlinks=False))
        return _make(above, name)
    except OSError as error:
        if error.errno in IMPOSSIBLE:
            return False
        raise


def _leave(folder: Path) -> None:
    parent = _parents[folder]
    parent.commands -= 1
    if parent.commands:
        return
    del _parents[folder]
    try:
        # Of several agents the last one gets the lock for itself.
        fcntl.flock(parent.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        parent.names.clear()
    except OSError:
        pass
    for name in parent.names:
        try:
            os.rmdir(name, dir_fd=parent.fd)
        except FileNotFoundError:
            pass
        except OSError:
            # Somebody outside has put something in: it is theirs now.
            with contextlib.suppress(OSError):
                os.chmod(name, 0o755, dir_fd=parent.fd)
    os.close(parent.fd)
