"""Notices what commands create or change of the files that other programs load (`config.trusted_files`), wherever in
the session's folders.

A folder is listed again only if its time of change (`ctime`, which nobody can set) differs: looking again costs a
call of `stat` for each folder. Blocking, and safe to use from several threads.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from acp_agent.config.trusted_files import who_loads
from acp_agent.safety.folders.paths import read_regular
from acp_agent.safety.folders.survey import MAX_LOOKED_AT, SKIPPED

MAX_INSIDE = 200
"""Entries of such a folder (`.vscode`) whose content is compared."""
MAX_BYTES = 262_144
"""Of a larger file only size and times are compared."""
MOST_NAMED = 5

Stamp = tuple[int, ...]
What = Literal["new", "changed"]


class Watch:
    """Of one session."""

    def __init__(
        self,
        roots: Iterable[Path],
        names: Iterable[str],
        home: Path | None,
        is_place_holder: Callable[[os.stat_result], bool],
    ) -> None:
        """`roots`: resolved. `names`: as in `tools.sandbox.protect`, also with `*`."""
        self._roots = [str(root) for root in roots]
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
        self._folders: dict[str, Stamp] = {}
        self._known: dict[Path, str] = {}
        self._behind: set[Path] = set()
        """Watched names behind links to folders (`.cargo -> elsewhere`), which are not listed."""
        self._digests: dict[str, tuple[Stamp, str]] = {}
        self._running = 0
        self._pending: dict[Path, What] = {}
        """New or changed while a command ran, and not told yet."""

    def look(self) -> None:
        """Notes what there is. What is new or has changed since the last look is told when a command ends, if one runs;
        else it is not the commands'."""
        with self._guard:
            news = self._look()
            self._pending = {**news, **self._pending} if self._running else {}

    def began(self) -> None:
        with self._guard:
            self._running += 1

    def ended(self) -> dict[Path, What]:
        """A command has ended: what is new or has changed meanwhile and was not told before."""
        with self._guard:
            self._running -= 1
            told, self._pending = {**self._look(), **self._pending}, {}
            return told

    def _look(self) -> dict[Path, What]:
        first = not self._folders
        found = self._walk(self._roots if first else list(self._folders))
        news: dict[Path, What] = {}
        for path, old in list(self._known.items()):
            now = self._digest(path)
            if not now:
                del self._known[path]
            elif now != old:
                self._known[path] = now
                news[path] = "changed"
        for path in (*found, *self._behind):
            if path not in self._known and (now := self._digest(path)):
                self._known[path] = now
                news[path] = "new"
        return news

    # --- the walk ----------------------------------------------------------------------------------------------

    def _walk(self, todo: list[str]) -> list[Path]:
        """Lists folders that have changed, and what is new below them."""
        found = []
        left = MAX_LOOKED_AT
        while todo:
            folder = todo.pop()
            try:
                here = os.lstat(folder)
                stamp = here.st_dev, here.st_ino, here.st_ctime_ns
                if not stat.S_ISDIR(here.st_mode):
                    raise NotADirectoryError
                if self._folders.get(folder) == stamp:
                    continue
                with os.scandir(folder) as entries:
                    listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            except OSError:
                self._folders.pop(folder, None)
                continue
            self._folders[folder] = stamp
            left -= len(listed)
            if left < 0:
                break
            base = Path(folder)
            for name, is_dir in listed:
                if self._is_watched(base, name):
                    found.append(base / name)
                elif not is_dir and name.casefold() in self._above and os.path.isdir(base / name):
                    self._behind.update(self._through(base, name))
                elif is_dir and name not in SKIPPED and (inner := os.path.join(folder, name)) not in self._folders:
                    todo.append(inner)
        return found

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
