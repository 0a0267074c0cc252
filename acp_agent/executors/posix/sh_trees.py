"""Making, removing, moving and copying on a host without Python: what `tree` does here, asked of a shell over there.

Its rules hold: everything is looked at before anything is changed, folders are renamed first and looked at again, a
copy is made beside its destination, what was put somewhere is judged there again. Folders are held by the shell
(`at`, and `/proc/self/fd/3` for the other one), so none that is swapped for a link leads elsewhere. What is then done
to a tree is one program's work (`rm -rf`, `cp -pPR`): what gets into it in that moment is not judged one by one.
"""

from __future__ import annotations

import contextlib
import stat
import sys
from pathlib import Path
from typing import Any

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Judged, Tally
from acp_agent.executors.posix.sh_files import Seen, ShFiles
from acp_agent.executors.posix.sh_program import words
from acp_agent.executors.tree import beside, carrying, looks
from acp_agent.executors.tree_walk import Check, Look, NoFolder, Walk

OTHER = "/proc/self/fd/3"
"""The folder that `from_there` has opened besides."""
NO_LINKS = ("not permitted", "not supported", "Function not implemented", "Too many links")


class ShTrees:
    def __init__(self, files: ShFiles) -> None:
        self._files = files

    def make_directory(self, path: Path) -> int:
        return int(self._asked(path, f"into {words(path)}; echo $m"))

    def remove(self, path: Path, max_entries: int, check: Check, judged: Judged | None = None) -> Tally:
        work = Walk(max_entries, check, look=looks(judged, ("delete", path, path)))
        found, there = self._survey(work, path), path
        if stat.S_ISDIR(found.st_mode):
            there = path.with_name(beside(path.name))
            work = work.fresh()
            self._aside(work, path, there)
        try:
            self._asked(path, f"at {words(path.parent)}; rm -rf ./{words(there.name)}")
        except BaseException:
            if there != path:
                self._back(there, path)
            raise
        return work.tally()

    def move(
        self, source: Path, destination: Path, overwrite: bool, max_entries: int, check: Check, **more: Any
    ) -> Tally:
        work = carrying("delete", source, destination, max_entries, check, **more)
        return self._transfer(source, destination, overwrite, work, more.get("judged"), moves=True)

    def copy(
        self, source: Path, destination: Path, overwrite: bool, max_entries: int, check: Check, **more: Any
    ) -> Tally:
        work = carrying("read", source, destination, max_entries, check, **more)
        return self._transfer(source, destination, overwrite, work, more.get("judged"), moves=False)

    # --- steps ----------------------------------------------------------------------------------------------------

    def _asked(self, path: Path, body: str) -> bytes:
        try:
            return self._files.asked(path, body, once=True)
        except NotADirectoryError as error:
            said = getattr(error.__cause__, "said", "") or str(path)
            raise NoFolder(said, link=False) from error

    def _survey(self, work: Walk, path: Path, shown: Path | None = None, *, plain: bool = False) -> Seen:
        """Raises FileNotFoundError where nothing is."""
        top: Seen | None = None
        with work.words():
            for name, seen in self._files.tree(path):
                top = seen if top is None else top
                depth = name.count("/") + 1 if name else 0
                work.take(str((shown or path) / name), seen, depth, plain=plain, device=top.st_dev)
            if top is None:
                raise FileNotFoundError(2, "No such file or directory", str(path))
        return top

    def _aside(self, work: Walk, path: Path, aside: Path) -> None:
        """Renames a folder, so that nothing more appears in it by its name, and looks at it again."""
        self._rename(path, aside)
        try:
            self._survey(work, aside, path)
        except BaseException:
            self._back(aside, path)
            raise

    def _rename(self, path: Path, to: Path) -> None:
        self._from_there(path, to, f"mv -f $T {OTHER}/{words(path.name)} ./{words(to.name)}")

    def _back(self, path: Path, to: Path) -> None:
        with contextlib.suppress(OSError, ExecutorError):
            if self._files.look(to) is None:
                self._rename(path, to)

    def _from_there(self, path: Path, to: Path, body: str) -> None:
        """`body` is run in the folder of `to`, with that of `path` as `OTHER`."""
        self._asked(to, f"at {words(path.parent)}; exec 3<.; at {words(to.parent)}; {body}")

    def _discard(self, path: Path) -> None:
        with contextlib.suppress(OSError, ExecutorError):
            name = f"./{words(path.name)}"
            self._asked(path, f"at {words(path.parent)}; chmod -R u+rwx {name}; rm -rf {name}")

    # --- from one place to another --------------------------------------------------------------------------------

    def _transfer(
        self, source: Path, destination: Path, overwrite: bool, work: Walk, judged: Judged | None, moves: bool
    ) -> Tally:
        if source == destination:
            raise ExecutorError(f"{source} is both source and destination")
        if destination in source.parents:
            raise ExecutorError(f"{destination} contains {source}, so it cannot be replaced with it")
        found = self._survey(work, source, plain=not moves)
        if source in destination.parents:
            raise ExecutorError(f"{destination} is inside {source}")
        made = self.make_directory(destination.parent)
        try:
            parent = self._files.look(destination.parent)
            if parent is None or parent.identity == found.identity:
                raise ExecutorError(f"{destination} is inside {source}")
            taken = self._files.look(destination)
            replaced = looks(judged, ("delete", destination, destination))
            step = _Step(self, work, source, destination, found, replaced)
            same_name = taken is not None and step.is_same(taken)
            if taken is not None and not (same_name and moves):
                step.check_free(taken, overwrite, same_name)
            if not moves or found.st_dev != parent.st_dev:
                return step.copy(taken, overwrite, moves)
            if taken is not None and taken.identity == found.identity and not same_name:
                self._asked(source, f"at {words(source.parent)}; rm -f ./{words(source.name)}")
            elif same_name:
                self._rename(source, destination)
            else:
                step.put(source, taken, overwrite)
        except BaseException:
            for folder in (destination.parent, *destination.parent.parents)[:made]:
                with contextlib.suppress(OSError, ExecutorError):
                    self._asked(folder, f"at {words(folder.parent)}; rmdir ./{words(folder.name)}")
            raise
        return work.tally()


class _Step:
    """`replaced`: told about each entry that is replaced."""

    def __init__(
        self, trees: ShTrees, work: Walk, source: Path, destination: Path, found: Seen, replaced: Look | None
    ) -> None:
        self._trees, self._work = trees, work
        self._source, self._destination = source, destination
        self._found = found
        self._replaced = replaced
        self._folder = stat.S_ISDIR(found.st_mode)

    def is_same(self, taken: Seen) -> bool:
        """Whether the destination is the source in another spelling, on a case-insensitive disk."""
        source, destination = self._source, self._destination
        if taken.identity != self._found.identity or source.parent != destination.parent:
            return False
        return destination.name not in {name for name, _ in self._trees._files.entries(destination.parent)[0]}

    def check_free(self, taken: Seen, overwrite: bool, same_name: bool) -> None:
        """Raises where the destination must stay as it is."""
        if same_name:
            raise ExecutorError(f"{self._destination} is {self._source} itself")
        if not overwrite:
            raise self._exists()
        if stat.S_ISDIR(taken.st_mode) != self._folder:
            what, other = ("a file", "a folder") if self._folder else ("a folder", "a file")
            raise ExecutorError(f"{self._destination} is {what}, which is not replaced with {other}")
        if self._folder:
            self._trees._survey(self._work.at(self._replaced), self._destination)

    def _exists(self) -> ExecutorError:
        return ExecutorError(f"{self._destination} exists already")

    def copy(self, taken: Seen | None, overwrite: bool, moves: bool) -> Tally:
        """`moves`: to another file system: what was copied is then removed, unless it has changed."""
        trees, source = self._trees, self._source
        fresh = self._destination.with_name(beside(self._destination.name))
        work = self._work.fresh()
        before = dict(trees._files.tree(source)) if moves else {}
        try:
            trees._from_there(source, fresh, f"cp -pPR {OTHER}/{words(source.name)} ./{words(fresh.name)}")
            trees._survey(work, fresh, source, plain=True)
            self.put(fresh, taken, overwrite)
        except BaseException:
            trees._discard(fresh)
            raise
        if moves:
            left = next((name for name, seen in trees._files.tree(source) if before.get(name) != seen), None)
            if left is not None:
                raise ExecutorError(
                    f"{source / left} changed while {source} was copied to {self._destination}; the copy is complete, "
                    f"and {source} was not deleted"
                )
            trees._asked(source, f"at {words(source.parent)}; rm -rf ./{words(source.name)}")
        return work.tally()

    def put(self, path: Path, taken: Seen | None, overwrite: bool) -> None:
        """Renames to the destination. What was put there is judged again in its new place; if it must not be there, it
        goes back."""
        trees, destination, aside = self._trees, self._destination, None
        if not self._folder and not overwrite:
            self._link(path)
        elif self._folder and taken is not None:
            aside = destination.with_name(beside(destination.name))
            self._put_aside(aside)
            try:
                trees._rename(path, destination)
            except BaseException:
                trees._back(aside, destination)
                raise
        else:
            trees._rename(path, destination)
        try:
            found = trees._survey(self._work.fresh(), destination, self._source)
            if stat.S_ISDIR(found.st_mode) != self._folder:
                raise ExecutorError(f"{self._source} was replaced in the meantime")
        except BaseException:
            trees._back(destination, path)
            if aside is not None:
                trees._back(aside, destination)
            raise
        if aside is not None:
            old = Walk(sys.maxsize, lambda: None)
            with old.words(f"{destination} was replaced; its old contents are in {aside}; deleted from there"):
                trees._asked(aside, f"at {words(aside.parent)}; rm -rf ./{words(aside.name)}")

    def _put_aside(self, aside: Path) -> None:
        self._trees._aside(self._work.at(self._replaced), self._destination, aside)

    def _link(self, path: Path) -> None:
        """Never over what is there."""
        trees, old, new = self._trees, f"{OTHER}/{words(path.name)}", f"./{words(self._destination.name)}"
        free = f"[ ! -e {new} ] && [ ! -L {new} ] || exit 43"
        tests = " || ".join(f"[ -z \"${{t##*'{reason}'*}}\" ]" for reason in NO_LINKS)
        body = (
            f"{free}; t=$(ln {old} {new} 2>&1) && {{ rm -f {old}; exit; }}; "
            f'{free}; if {tests}; then mv -f $T {old} {new}; else echo "$t" >&2; exit 1; fi'
        )
        try:
            trees._from_there(path, self._destination, body)
        except IsADirectoryError:
            raise self._exists() from None
