"""Notices what commands create or change of the files that other programs load (`config.trusted_files`), wherever in
the session's folders.

The first walk lists every folder; it goes on beside commands where it takes long, and what it finds later is told if
it has changed since the first of them began (`ctime`, which nobody can set). After it only folders are listed again
that have changed: the system names them (`Changes`), or, where it does not, a call of `stat` for each folder tells.
Blocking, and safe to use from several threads.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Protocol

from acp_agent.config.trusted_files import who_loads
from acp_agent.safety.folders.paths import read_regular
from acp_agent.safety.folders.survey import SKIPPED

MAX_INSIDE = 200
"""Entries of such a folder (`.vscode`) whose content is compared."""
MAX_BYTES = 262_144
"""Of a larger file only size and times are compared."""
MOST_NAMED = 5
YOUNG = 50_000_000
"""Nanoseconds in which something may change without another time of change: the kernel's clock ticks."""
SLICE = 0.02
"""Seconds of the first walk that one waits for who looks."""
BESIDE = 0.01
"""Seconds of looking beside others, who have as long for themselves after it."""

Stamp = tuple[int, ...]
What = Literal["new", "changed"]
Found = tuple[Path, bool]
"""A watched name, and whether it is new if it is not known."""


class Changes(Protocol):
    """Which folders changed, as `undo.folder_watch.Watch`."""

    def take_lost(self, known: Container[str]) -> set[str]: ...

    def add(self, folder: str) -> None: ...

    def drop(self, folder: str) -> None: ...

    def changed(self) -> set[str] | None: ...

    def close(self) -> None: ...


class Watch:
    """Of one session. Close it."""

    def __init__(
        self,
        roots: Iterable[Path],
        names: Iterable[str],
        home: Path | None,
        is_place_holder: Callable[[os.stat_result], bool],
        changes: Callable[[], Changes] | None = None,
    ) -> None:
        """`roots`: resolved. `names`: as in `tools.sandbox.protect`, also with `*`. `changes`: makes what tells which
        folders changed."""
        self._todo = [(str(root), False) for root in roots]
        """Folders that are not listed yet, and whether all in them is new."""
        self._make_changes = changes
        self._changes: Changes | None = None
        self._began = 0
        """When the first command began, in ns."""
        self._home = home
        self._is_place_holder = is_place_holder
        self._ends: dict[str, list[tuple[tuple[str, ...], bool]]] = {}
        """Last part of a name (or `*.x`) -> the parts before it, and whether it counts in the home folder only."""
        for name in names:
            *before, last = name.strip("/").casefold().split("/")
            if before[:1] != [".git"]:  # `survey` sees to repositories.
                row = who_loads(name)
                self._ends.setdefault(last, []).append((tuple(before), row is not None and row.home))
        self._above = {part for ends in self._ends.values() for before, _ in ends for part in before}
        self._guard = threading.Lock()
        self._folders: dict[str, tuple[Stamp, dict[str, int]]] = {}
        """With the folders in each, and their inodes."""
        self._known: dict[Path, str] = {}
        self._behind: set[Path] = set()
        """Watched names behind links to folders (`.cargo -> elsewhere`), which are not listed."""
        self._digests: dict[str, tuple[Stamp, str]] = {}
        self._running = 0
        self._pending: dict[Path, What] = {}
        """New or changed while a command ran, and not told yet."""
        self._late: dict[Path, What] = {}
        """The same, of what was listed later."""

    @property
    def walked(self) -> bool:
        """Whether every folder has been listed."""
        return not self._todo

    def look(self, seconds: float = SLICE) -> None:
        """Notes what there is, listing new folders for at most so many seconds. What is new or has changed since the
        last look is told when a command ends, if one runs; else it is not the commands'."""
        with self._guard:
            news = self._look(seconds, running=bool(self._running))
            self._pending = {**news, **self._pending} if self._running else {}

    def walk_on(self, seconds: float = BESIDE) -> None:
        """Lists for a while what is not listed yet."""
        with self._guard:
            self._late |= self._take(self._walk(seconds))

    def began(self) -> None:
        with self._guard:
            self._running += 1
            self._began = self._began or time.time_ns() - YOUNG

    def ended(self, seconds: float = SLICE) -> dict[Path, What]:
        """A command has ended: what is new or has changed meanwhile and was not told before."""
        with self._guard:
            self._running -= 1
            told = {**self._look(seconds, running=True), **self._pending, **self._late}
            self._pending, self._late = {}, {}
            return told

    def close(self) -> None:
        with self._guard:
            self._todo.clear()
            if self._changes is not None:
                self._changes.close()

    def _look(self, seconds: float, *, running: bool) -> dict[Path, What]:
        if self._changes is None and self._make_changes is not None:
            self._changes = self._make_changes()
        news: dict[Path, What] = {}
        for path, old in list(self._known.items()):
            now = self._digest(path)
            if not now:
                del self._known[path]
            elif now != old:
                self._known[path] = now
                news[path] = "changed"
        if self._todo:
            self._late |= self._take(self._walk(seconds))
        late = bool(self._todo)
        found = [*self._again(), *((path, not late or self._since_began(str(path))) for path in self._behind)]
        if running or not late:
            found += self._walk(seconds if running else math.inf)
        return news | self._take(found)

    def _take(self, found: Iterable[Found]) -> dict[Path, What]:
        """Notes these; those that are new."""
        news: dict[Path, What] = {}
        for path, is_new in found:
            if path not in self._known and (now := self._digest(path)):
                self._known[path] = now
                if is_new:
                    news[path] = "new"
        return news

    # --- the walk ----------------------------------------------------------------------------------------------

    def _again(self) -> list[Found]:
        """Lists known folders that have changed."""
        changed = None
        if self._changes is not None and (changed := self._changes.changed()) is not None:
            changed |= self._changes.take_lost(self._folders)
        queued = {folder for folder, _ in self._todo}
        found: list[Found] = []
        for folder in list(self._folders) if changed is None else changed:
            if folder in self._folders:
                found += self._list(folder, True, queued)
        return found

    def _walk(self, seconds: float) -> list[Found]:
        """Lists folders that are new, for so many seconds at least one, and what is below them."""
        found: list[Found] = []
        end = time.monotonic() + seconds
        while self._todo:
            folder, is_new = self._todo.pop()
            if folder not in self._folders:
                found += self._list(folder, is_new, ())
            if time.monotonic() > end:
                break
        return found

    def _list(self, folder: str, is_new: bool, queued: Collection[str]) -> list[Found]:
        """The watched names in a folder, if it has changed since it was listed; its folders are to be listed. `is_new`:
        what is not known in it is. `queued`: what is to be listed already."""
        found: list[Found] = []
        before, inside = self._folders.get(folder, (None, {}))
        try:
            if before is None and self._changes is not None:
                self._changes.add(folder)
            here = os.lstat(folder)
            stamp = here.st_dev, here.st_ino, here.st_ctime_ns
            if not stat.S_ISDIR(here.st_mode):
                raise NotADirectoryError
            if before == stamp:
                return found
            young = time.time_ns() - here.st_ctime_ns < YOUNG
            with os.scandir(folder) as entries:
                listed = [(each.name, each.is_dir(follow_symlinks=False) and each.inode()) for each in entries]
        except OSError:
            self._forget(folder)
            return found
        base, now = Path(folder), dict[str, int]()
        for name, inode in listed:
            inner = f"{folder.rstrip('/')}/{name}"
            if self._is_watched(base, name):
                found.append((base / name, is_new or self._since_began(inner)))
            elif not inode and name.casefold() in self._above and os.path.isdir(inner):
                self._behind.update(self._through(base, name))
            elif inode and name not in SKIPPED:
                now[inner] = inode
        for inner in [each for each, inode in inside.items() if now.get(each) != inode]:
            self._forget(inner)  # It is gone, or another one.
        entered = bool(self._began) and here.st_ctime_ns >= self._began  # Else no folder was moved into this one.
        self._todo += [
            (inner, is_new or (entered and self._since_began(inner)))
            for inner in now
            if inner not in self._folders and inner not in queued
        ]
        self._folders[folder] = (*stamp[:2], 0 if young else stamp[2]), now
        return found

    def _forget(self, folder: str) -> None:
        """This folder, and those below it."""
        below = [folder]
        for each in below:
            _, inside = self._folders.pop(each, (None, {}))
            below += inside
            if self._changes is not None:
                self._changes.drop(each)

    def _since_began(self, path: str) -> bool:
        """Whether it was made, moved or changed after a command had begun, and so may be its doing."""
        try:
            return bool(self._began) and os.lstat(path).st_ctime_ns >= self._began
        except OSError:
            return False

    def _is_watched(self, folder: Path, name: str) -> bool:
        last = name.casefold()
        for before, home_only in (*self._ends.get(last, ()), *self._ends.get(f"*.{last.rpartition('.')[2]}", ())):
            above = tuple(part.casefold() for part in folder.parts[len(folder.parts) - len(before) :])
            base = folder.parents[len(before) - 1] if before else folder
            if above == before and (not home_only or base == self._home):
                return True
        return False

    def _through(self, folder: Path, link: str) -> Iterator[Path]:
        """The watched names that a link to a folder leads to."""
        for last, ends in self._ends.items():
            for before, home_only in ends:
                for place in range(len(before)):
                    split = len(folder.parts) - place
                    same = tuple(map(str.casefold, (*folder.parts[split:], link))) == before[: place + 1]
                    if same and (not home_only or Path(*folder.parts[:split]) == self._home):
                        yield folder.joinpath(link, *before[place + 1 :], last)

    # --- what is in them ---------------------------------------------------------------------------------------

    def _digest(self, path: Path) -> str:
        """Of the content; empty if nothing is there, or only a place holder."""
        total = hashlib.blake2b(digest_size=16)
        todo, seen = [str(path)], 0
        while todo:
            here = todo.pop()
            try:
                found = os.lstat(here)
                if stat.S_ISLNK(found.st_mode):  # A program that loads it reads what it leads to.
                    total.update(f"{here}\0link {os.readlink(here)}\0".encode("utf-8", "surrogateescape"))
                    if not os.path.exists(here) or (here != str(path) and os.path.isdir(here)):
                        continue
                    found = os.stat(here)
                if stat.S_ISDIR(found.st_mode):
                    if self._is_place_holder(found):
                        return ""
                    inner = sorted(os.listdir(here))
                    seen += len(inner)
                    if seen > MAX_INSIDE:
                        total.update(f"{here}\0{found.st_ctime_ns}".encode("utf-8", "surrogateescape"))
                        continue
                    todo += [os.path.join(here, name) for name in inner]
                    words = "folder"
                else:
                    words = self._content(here, found)
            except OSError:
                if here == str(path):
                    return ""
                continue
            total.update(f"{here}\0{words}\0".encode("utf-8", "surrogateescape"))
        return total.hexdigest()

    def _content(self, path: str, found: os.stat_result) -> str:
        stamp = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            return str(stamp)
        if (known := self._digests.get(path)) is not None and known[0] == stamp:
            return known[1]
        content = hashlib.blake2b(
            read_regular(Path(os.path.realpath(path)), MAX_BYTES) or b"", digest_size=16
        ).hexdigest()
        self._digests[path] = stamp, content
        return content


def told(news: Mapping[Path, What], display: Callable[[Path], str], name_of: Callable[[Path], str | None]) -> str:
    """A sentence for user and model; empty without news. `name_of`: as `PathRules.protects`."""
    if not news:
        return ""
    said = []
    for path, what in news.items():
        row = who_loads(name_of(path) or path.name)
        said.append(f"`{display(path)}` ({what}" + (f", loaded by {row.who} {row.when})" if row is not None else ")"))
    more = f" and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
    return (
        f"Other programs load by themselves what this command may have made: {', '.join(said[:MOST_NAMED])}{more}. "
        "Tell the user to look at it."
    )
