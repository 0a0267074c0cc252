"""Place holders: empty folders where a protected path does not exist yet, so that a command cannot make it.

A folder, because version control does not see empty ones. Its mode tells it from a folder of the person's, so that
what a killed agent left is taken over and removed by the next one. Several commands, and several agents, may need the
same one: it goes with the last of them, which is found out by a shared lock on it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
from pathlib import Path

from acp_agent.errors import ExecutorError

__all__ = ["hold", "is_place_holder", "release"]

MODE = 0o1555
"""Read-only and sticky: nobody makes that by accident."""
TRIES = 20

_guard = threading.Lock()
_held: dict[Path, tuple[int, int]] = {}
"""Path -> how many commands of this process need it, and the descriptor that holds the lock."""


def is_place_holder(found: os.stat_result) -> bool:
    return (
        stat.S_ISDIR(found.st_mode)
        and stat.S_IMODE(found.st_mode) == MODE
        and found.st_uid == os.geteuid()
        and found.st_nlink <= 2
    )


def hold(path: Path) -> bool:
    """Makes the place holder or joins those who need it. False where none is needed: something else stands there by
    now, or nothing can be made there, which is so for the command, too. Each True asks for one `release`."""
    with _guard:
        if path in _held:
            count, fd = _held[path]
            _held[path] = (count + 1, fd)
            return True
        for _ in range(TRIES):
            opened = _open(path)
            if opened is None:
                return False
            if opened >= 0:
                _held[path] = (1, opened)
                return True
    raise ExecutorError(f"{path} is being made and removed all the time, so it cannot be protected")


def release(path: Path) -> None:
    with _guard:
        count, fd = _held[path]
        if count > 1:
            _held[path] = (count - 1, fd)
            return
        del _held[path]
        try:
            with contextlib.suppress(BlockingIOError):  # another agent needs it still
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path, fd)
        finally:
            os.close(fd)


def _open(path: Path) -> int | None:
    """A descriptor that holds the lock, -1 where it vanished meanwhile, `None` where there is nothing to hold."""
    try:
        path.mkdir(mode=0o700)
        path.chmod(MODE)
    except FileExistsError:
        pass
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
            return None
        raise ExecutorError(f"{path} cannot be protected: {error.strerror}") from error
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    except OSError:
        return None
    try:
        if not is_place_holder(os.fstat(fd)):
            os.close(fd)
            return None
        fcntl.flock(fd, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(fd), path.lstat()):
            return fd
    except OSError:
        pass
    os.close(fd)
    return -1


def _remove(path: Path, fd: int) -> None:
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(fd), path.lstat()):
            try:
                path.rmdir()
            except OSError:
                os.fchmod(fd, 0o755)  # Somebody outside has put something in: it is theirs now.
