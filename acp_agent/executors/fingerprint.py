"""Whether something at or below a path has changed since a moment, for results that are remembered.

Looks at the disk; links are not followed. Before a call there is one look at the path itself (`look`). What is below a
folder is looked at only when the same call comes again (`unchanged`): each entry's time of change (ctime, which nobody
can set) must be older than the moment of the first look. What was removed or renamed shows in its folder's. Bounded:
a folder with too much below it counts as changed.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from msgspec import Struct

MAX_ENTRIES = 2000
"""Looking at so many entries takes about as long as most searches."""

SKIPPED = frozenset((".git",))
"""Searches do not look into it either."""

SECOND = 1_000_000_000
STEP = SECOND // 200
"""Nanoseconds by which the clock may differ without having been set."""


class Seen(Struct, frozen=True):
    """A path at a moment."""

    state: tuple[int, ...]
    """Of the path itself."""
    folder: bool
    moment: int
    """By the clock of the file system, in nanoseconds."""
    offset: int
    """Of that clock to one that nobody sets."""


def look(path: Path) -> Seen | None:
    """The path as it is now; `None` where it cannot be looked at. Reads nothing below it."""
    moment, offset = file_clock(), time.time_ns() - time.monotonic_ns()
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISDIR(found.st_mode):
        return Seen((found.st_dev, found.st_ino), True, moment, offset)
    state = (found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return Seen(state, False, moment, offset)


def unchanged(path: Path, seen: Seen, limit: int = MAX_ENTRIES) -> bool:
    """Whether all is as it was when `path` was seen. False where that cannot be told: beyond `limit` entries, where
    something cannot be read, and where the clock was set back meanwhile."""
    now = look(path)
    if now is None or now.folder != seen.folder or now.state != seen.state:
        return False
    return not seen.folder or (now.offset > seen.offset - STEP and _older(path, seen.moment, limit))


def file_clock() -> int:
    """The time that a file gets which is changed now, in nanoseconds; it may be a little earlier, never later."""
    if hasattr(time, "CLOCK_REALTIME_COARSE"):  # Linux takes the time of the last tick.
        return time.clock_gettime_ns(time.CLOCK_REALTIME_COARSE)
    return time.time_ns() - 2 * STEP


def _older(path: Path, moment: int, limit: int) -> bool:
    """Whether the folder and all below it was last changed before `moment`."""
    seen = 0
    folders = [str(path)]
    try:
        if _may_be_newer(os.lstat(path), moment):
            return False
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if seen > limit or _may_be_newer(entry.stat(follow_symlinks=False), moment):
                        return False
                    if entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
                        folders.append(entry.path)
    except OSError:
        return False
    return True


def _may_be_newer(found: os.stat_result, moment: int) -> bool:
    changed = max(found.st_ctime_ns, found.st_mtime_ns)
    if changed % SECOND == 0:  # Some file systems know no fractions, some even seconds only.
        changed += 2 * SECOND
    return changed >= moment
