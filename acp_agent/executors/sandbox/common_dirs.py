"""Keeps a repository from being redirected to another one's configuration while a command runs.

A file `commondir` in a repository's folder names the folder whose configuration applies. If there is none, one that
names the folder itself is created: git works as before, and the file can be mounted read-only. It is removed with the
last command that needs it; one left by a crash is harmless and removed with the next.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger(__name__)

NAME = "commondir"
ITSELF = b".\n"

_held: Counter[Path] = Counter()
"""Of all sessions of this process."""


def hold(folders: Iterable[Path]) -> list[Path]:
    """The files that have to be protected, one for each repository's folder that had none; to be released."""
    held = []
    for folder in folders:
        path = folder / NAME
        if not _held[path] and not _make(path) and not _is_ours(path):
            continue
        _held[path] += 1
        held.append(path)
    return held


def release(held: Iterable[Path]) -> None:
    for path in held:
        _held[path] -= 1
        if _held[path] <= 0:
            del _held[path]
            if _is_ours(path):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    log.warning("%s cannot be removed: %s", path, error)


def _make(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
    except OSError:
        return False
    os.write(descriptor, ITSELF)
    os.close(descriptor)
    return True


def _is_ours(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, 16) == ITSELF
    except OSError:
        return False
    finally:
        os.close(descriptor)
