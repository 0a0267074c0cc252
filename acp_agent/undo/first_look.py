"""The first look at a session's folders, in pieces: what is left of it, and what commands did meanwhile."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Iterable

from acp_agent.executors.sandbox.holders import MODE as HOLDER
from acp_agent.safety.folders.watch import YOUNG
from acp_agent.undo.listings import Changed

GIT = ".git"


class FirstLook:
    def __init__(self) -> None:
        self.first, self.later = deque[str](), deque[str]()
        """What it has not come to, and what of it is looked at last."""
        self.since = 0
        """When the first command may have begun, in ns, if that was before the end."""
        self.was_unfinished = False
        """Whether it was not done at the end of the last look."""
        self.waited = False
        """Whether somebody has waited for it."""
        self.late: list[str] = []
        """What was changed since and before it was looked at."""
        self._names: dict[str, frozenset[str]] = {}
        """What was in the session's folders before any command."""
        self._holders: set[str] = set()
        """Folders that were seen while a command may have run, and look as the sandbox's place holders."""

    def begin(self, tops: Iterable[str]) -> None:
        self.first.extend(tops)
        self._names = {top: _names(top) for top in self.first}

    @property
    def unfinished(self) -> bool:
        return bool(self.first or self.later)

    @property
    def left(self) -> list[str]:
        return [*self.first, *self.later]

    @property
    def next(self) -> str:
        return (self.first or self.later)[0]

    def take(self) -> str:
        return (self.first or self.later).popleft()

    def looked(self) -> None:
        """A look ends; a command may begin."""
        self.was_unfinished = self.unfinished
        if self.unfinished:
            self.since = self.since or time.time_ns() - YOUNG

    def seen(self, folder: str, found: Changed) -> None:
        """Notes what a command may have changed in a folder that was not looked at before, by times that nobody can
        set."""
        if not self.since:
            return
        self._holders.update(path for path, _, key in found if key is not None and key[0] == stat.S_IFDIR | HOLDER)
        inside = [path for path, _, key in found if key is not None and key[3] >= self.since]
        if (names := self._names.get(folder)) is not None:  # The sandbox itself makes something in these.
            now = {path.rpartition("/")[2] for path, _, _ in found if path not in self._holders}
            inside += [f"{folder}/{name}" for name in (names ^ now) - {GIT}]
        elif not inside and _since(folder, self.since):
            inside = [folder]
        self.late += inside

    def was_holder(self, path: str) -> bool:
        """Whether only a place holder has gone."""
        known = path in self._holders
        self._holders.discard(path)
        return known


def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _since(folder: str, since: int) -> bool:
    """Whether something in a folder has come or gone since then, or itself."""
    try:
        return os.lstat(folder).st_ctime_ns >= since
    except OSError:
        return True
