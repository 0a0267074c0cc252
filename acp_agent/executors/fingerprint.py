"""Whether something at or below a path has changed since a point in time, for cached results.

Checks the disk; links are not followed. Before a call only the path itself is checked (`look`). A folder's contents are
checked only when the same call is repeated (`unchanged`): each entry's ctime, which cannot be set, must be older than
the first check. Removals and renames show in their folder's ctime. Bounded: a folder with too many entries counts as
changed.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from msgspec import Struct

MAX_ENTRIES = 2000
"""Checking this many entries takes about as long as most searches."""

SKIPPED = frozenset((".git",))
"""Searches skip it, too."""

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
    """From that clock to the monotonic one."""


def look(path: Path) -> Seen | None:
    """The current state of the path; `None` if it cannot be checked. Reads nothing below it."""
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
    """Whether nothing has changed since `path` was seen. False if that is unknown: beyond `limit` entries, if something
    cannot be read, or if the clock was set back."""
    now = look(path)
    if now is None or now.folder != seen.folder or now.state != seen.state:
        return False
    return not seen.folder or (now.offset > seen.offset - STEP and _older(path, seen.moment, limit))


def file_clock() -> int:
    """The time a file changed now would get, in nanoseconds; perhaps a little earlier, never later."""
    if hasattr(time, "CLOCK_REALTIME_COARSE"):  # Linux takes the time of the last tick.
        return time.clock_gettime_ns(time.CLOCK_REALTIME_COARSE)
    return time.time_ns() - 2 * STEP


def _older(path: Path, moment: int, limit: int) -> bool:
    """Whether the folder and everything in it was last changed before `moment`."""
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
    if changed % SECOND == 0:  # Some file systems store only whole seconds.
        changed += 2 * SECOND
    return changed >= moment
