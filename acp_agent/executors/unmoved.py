"""Whether the way to a file may have led elsewhere while somebody else (the editor) opened it by name.

A command that runs meanwhile can swap a folder for a link and back. Whoever renames changes the time of change
(`ctime`) of the folder in which that happens, and nobody can set that time. It advances in ticks: a folder that was
changed within the present one could be changed again unnoticed, so it is not `settled`. Blocking.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from acp_agent.executors.beneath import Swapped
from acp_agent.executors.fingerprint import file_clock

MISSING = (0, 0, 0)


class Way(Struct, frozen=True):
    steps: tuple[tuple[int, int, int], ...]
    """Device, inode and time of change of the file's folder and those above it, up to the session's."""
    settled: bool

    def stands(self, later: Way) -> bool:
        """Whether nothing was renamed, created or removed in these folders since."""
        return self.settled and self.steps == later.steps

    def stands_above(self, later: Way) -> bool:
        """The same, but for the file's own folder."""
        return self.settled and self.steps[0][:2] == later.steps[0][:2] and self.steps[1:] == later.steps[1:]


def way_to(path: Path, tops: Iterable[Path]) -> Way:
    """`tops`: the session's folders, resolved; what is above them is not in the commands' reach. Raises Swapped where a
    link is."""
    now = file_clock()
    inside = [top for top in tops if top in path.parents]
    top = min(inside, key=lambda folder: len(folder.parts), default=path.parent)
    steps = []
    for folder in path.parents:
        try:
            found = folder.lstat()
        except (FileNotFoundError, NotADirectoryError):
            steps.append(MISSING)
        else:
            if stat.S_ISLNK(found.st_mode):
                raise Swapped(path)
            steps.append((found.st_dev, found.st_ino, found.st_ctime_ns))
        if folder == top:
            break
    return Way(tuple(steps), all(changed < now for _, _, changed in steps))
