"""A short value that changes when something below a path changes, for results that are remembered.

Looks at the disk (names, kinds, sizes, times of modification; links are not followed). Bounded: where there is too much
to look at, there is no fingerprint, and nothing is remembered.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

MAX_ENTRIES = 2000
"""Looking at so many entries takes about as long as most searches."""

SKIPPED = frozenset((".git",))
"""Searches do not look into it either."""


def tree_fingerprint(path: Path, limit: int = MAX_ENTRIES) -> str | None:
    """Of a file, or of a folder with all that is below it; `None` beyond `limit` entries or where it cannot be read."""
    state = hashlib.sha256()
    seen = 0
    folders = [str(path)]
    try:
        found = os.lstat(path)
        state.update(f"{found.st_mode} {found.st_size} {found.st_mtime_ns} {found.st_ino}".encode())
        if not os.path.isdir(path) or os.path.islink(path):
            return state.hexdigest()
        while folders:
            folder = folders.pop()
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    seen += 1
                    if seen > limit:
                        return None
                    found = entry.stat(follow_symlinks=False)
                    line = f"{entry.path}\0{found.st_mode} {found.st_size} {found.st_mtime_ns} {found.st_ino}\n"
                    state.update(line.encode("utf-8", "surrogateescape"))
                    if entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
                        folders.append(entry.path)
    except OSError:
        return None
    return state.hexdigest()
