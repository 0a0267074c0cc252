"""Keeps a repository from being redirected to another configuration while a command runs.

A file `commondir` in a repository's folder names the folder whose configuration applies; once the configuration says
`extensions.worktreeConfig` (`git sparse-checkout` sets it), a file `config.worktree` adds to it. If there is none, a
file is created that changes nothing (the folder itself; nothing): git works as before, and the file can be mounted
read-only. It is removed with the last command that needs it, of any agent (a mounted file that is removed is mounted no
longer); one left by a crash is harmless and removed with the next.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from acp_agent.errors import ExecutorError
from acp_agent.executors.beneath import folder

log = logging.getLogger(__name__)

HARMLESS = {"commondir": b".\n", "config.worktree": b""}

TRIES = 5

_held: Counter[Path] = Counter()
"""Of all sessions of this process."""
_locks: dict[Path, int] = {}
"""Their files, locked for reading: another agent does not remove what is locked so."""


def hold(repositories: Iterable[Path]) -> list[Path]:
    """The files that have to be protected, for each repository's folder that had none; to be released."""
    held = []
    for git in repositories:
        for name in HARMLESS:
            path = git / name
            if not _held[path] and not _shared(path):
                continue
            _held[path] += 1
            held.append(path)
    return held


def release(held: Iterable[Path]) -> None:
    for path in held:
        _held[path] -= 1
        if _held[path] <= 0:
            del _held[path]
            lock = _locks.pop(path)
            if _is_alone(lock) and _is_ours(path):
                try:
                    with folder(path.parent) as above:
                        os.unlink(path.name, dir_fd=above)
                except FileNotFoundError:
                    pass
                except (OSError, ExecutorError) as error:
                    log.warning("%s cannot be removed: %s", path, error)
            os.close(lock)


def _shared(path: Path) -> bool:
    """Makes or shares the file; not one that is just being removed."""
    for _ in range(TRIES):
        _make(path)
        if (lock := _open(path)) is None:
            return False
        with suppress(OSError):  # No locks on this file system, or a command holds one: go on without.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with suppress(OSError):
            if os.path.samestat(os.fstat(lock), os.lstat(path)) and _is_ours(path):
                _locks[path] = lock
                return True
        os.close(lock)
    return False


def _is_alone(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _make(path: Path) -> bool:
    """Nobody sees it without its text, where the file system can do that."""
    flags = os.O_WRONLY | os.O_CLOEXEC
    try:
        with folder(path.parent) as above:
            try:
                descriptor = os.open(".", flags | os.O_TMPFILE, 0o444, dir_fd=above)
            except (AttributeError, OSError):
                descriptor = os.open(path.name, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o444, dir_fd=above)
            try:
                os.write(descriptor, HARMLESS[path.name])
                if not os.fstat(descriptor).st_nlink:
                    os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=above)
            finally:
                os.close(descriptor)
    except (OSError, ExecutorError):
        return False
    return True


def _is_ours(path: Path) -> bool:
    return _read(path, 16) == HARMLESS[path.name]


def _read(path: Path, limit: int) -> bytes | None:
    if (descriptor := _open(path)) is None:
        return None
    try:
        return os.read(descriptor, limit)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _open(path: Path) -> int | None:
    try:
        with folder(path.parent) as above:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            return os.open(path.name, flags, dir_fd=above)
    except (OSError, ExecutorError):
        return None
