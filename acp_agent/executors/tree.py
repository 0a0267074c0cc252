"""Creates, removes, moves and copies files and folders through folder handles.

Paths are resolved except for the last name: a link of that name is meant itself. They are reached from the root, name
by name, and no step follows a link; the work below goes from handle to handle in the same way. So a folder swapped for
a link in the meantime stops the operation and never leads it elsewhere.

Everything is looked at before anything is changed: more than `max_entries` entries, a folder that is too deep, a device
among files to copy are refused while all is as it was. A copy is made besides its destination and put there as a whole,
so a copy that fails or is stopped leaves nothing behind. Owners are kept where we may; extended attributes are not.

Plain blocking calls, to be run in a thread. `check` is called between two entries; what it raises stops the work.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import uuid
from pathlib import Path
from typing import Any

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Doing, Judged, Tally
from acp_agent.executors.tree_walk import Check, Look, Walk, identity, look, names, reach

NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


def make_directory(path: Path) -> int:
    """Makes the folder and its parents; the number of folders made."""
    with reach(path, make=True) as handle:
        return handle.made


def remove(path: Path, max_entries: int, check: Check, judged: Judged | None = None) -> Tally:
    """`judged`: asked about each entry before it is touched. The same for `move` and `copy`."""
    work = Walk(max_entries, check, look=looks(judged, ("delete", path, path)))
    with reach(path.parent) as parent, work.words():
        found = work.survey(parent.fd, path.name, str(path))
        removed = work.fresh()
        name = path.name
        if judged is not None and stat.S_ISDIR(found.st_mode):
            name = _aside(work.fresh(), parent.fd, path)
        try:
            with removed.words("deleted before that"):
                removed.remove(parent.fd, name, str(path))
        except BaseException:
            if name != path.name:
                _back(parent.fd, name, parent.fd, path.name)
            raise
    return removed.tally()


def _aside(work: Walk, parent: int, path: Path) -> str:
    """Renames the folder, so that nothing more appears in it by its name, and surveys it again; the new name."""
    aside = beside(path.name)
    os.rename(path.name, aside, src_dir_fd=parent, dst_dir_fd=parent)
    try:
        work.survey(parent, aside, str(path))
    except BaseException:
        _back(parent, aside, parent, path.name)
        raise
    return aside


def _back(here: int, name: str, there: int, to_name: str) -> None:
    """Renames back what is left, unless something has taken its place or nothing is left."""
    with contextlib.suppress(OSError):
        if look(there, to_name) is None:
            os.rename(name, to_name, src_dir_fd=here, dst_dir_fd=there)


def move(source: Path, destination: Path, overwrite: bool, max_entries: int, check: Check, **more: Any) -> Tally:
    """`more`: `hides`, paths that must not be read: nothing is moved if it is or contains one; `judged`. The same for
    `copy`."""
    work = carrying("delete", source, destination, max_entries, check, **more)
    return _transfer(source, destination, overwrite, work, more.get("judged"), moves=True)


def copy(source: Path, destination: Path, overwrite: bool, max_entries: int, check: Check, **more: Any) -> Tally:
    work = carrying("read", source, destination, max_entries, check, **more)
    return _transfer(source, destination, overwrite, work, more.get("judged"), moves=False)


def carrying(doing: Doing, source: Path, destination: Path, most: int, check: Check, **more: Any) -> Walk:
    """What walks through a source of which `doing` is done."""
    look = looks(more.get("judged"), (doing, source, source), ("write", source, destination))
    return Walk(most, check, more.get("hides"), look)


def looks(judged: Judged | None, *places: tuple[Doing, Path, Path]) -> Look | None:
    """What a walk tells about each entry: what happens to it, below which folder it is shown, and where it happens."""
    if judged is None:
        return None

    def look(shown: str, mode: int) -> None:
        for doing, base, place in places:
            judged(doing, place / shown[len(str(base)) :].lstrip("/"), mode)

    return look


def _transfer(
    source: Path, destination: Path, overwrite: bool, work: Walk, judged: Judged | None, moves: bool
) -> Tally:
    if source == destination:
        raise ExecutorError(f"{source} is both source and destination")
    if destination in source.parents:
        raise ExecutorError(f"{destination} contains {source}, so it cannot be replaced with it")
    with reach(source.parent) as here, work.words():
        found = work.survey(here.fd, source.name, str(source), plain=not moves)
        if source in destination.parents:
            raise ExecutorError(f"{destination} is inside {source}")
        with reach(destination.parent, make=True) as there:
            if identity(found) in there.above:
                raise ExecutorError(f"{destination} is inside {source}")
            replaced = looks(judged, ("delete", destination, destination))
            step = _Step(work, here.fd, source, there.fd, destination, stat.S_ISDIR(found.st_mode), replaced)
            step.check_free(found, overwrite, moves)
            if moves:
                step.move(found, overwrite)
            else:
                step.copy(overwrite)
    return work.tally()


# --- from one place to another --------------------------------------------------------------------------------


class _Step:
    """From a name in an open folder to a name in another."""

    def __init__(
        self, work: Walk, here: int, source: Path, there: int, destination: Path, folder: bool, replaced: Look | None
    ) -> None:
        """`replaced`: told about each entry that is replaced."""
        self._replaced = replaced
        self._work = work
        self._here = here
        self._source = source
        self._there = there
        self._destination = destination
        self._folder = folder
        self._same_name = False
        """The destination is the source in another spelling, on a case-insensitive disk."""

    def check_free(self, found: os.stat_result, overwrite: bool, moves: bool) -> None:
        """Raises where the destination must stay as it is."""
        taken = look(self._there, self._destination.name)
        if taken is None:
            return
        if identity(taken) == identity(found) and identity(os.fstat(self._here)) == identity(os.fstat(self._there)):
            self._same_name = self._destination.name not in names(self._there)
            if self._same_name:
                if moves:
                    return
                raise ExecutorError(f"{self._destination} is {self._source} itself")
        if not overwrite:
            raise self._exists()
        if stat.S_ISDIR(taken.st_mode) != self._folder:
            what, other = ("a file", "a folder") if self._folder else ("a folder", "a file")
            raise ExecutorError(f"{self._destination} is {what}, which is not replaced with {other}")
        if self._folder:
            self._survey_replaced(self._destination.name)

    def _survey_replaced(self, name: str) -> None:
        self._work.at(self._replaced).survey(self._there, name, str(self._destination))

    def _exists(self) -> ExecutorError:
        return ExecutorError(f"{self._destination} exists already")

    def move(self, found: os.stat_result, overwrite: bool) -> None:
        here, name = self._here, self._source.name
        if self._same_name:
            os.rename(name, self._destination.name, src_dir_fd=here, dst_dir_fd=self._there)
            return
        taken = look(self._there, self._destination.name)
        if overwrite and taken is not None and identity(taken) == identity(found):
            os.unlink(name, dir_fd=here)  # two names of one file: renaming one to the other would do nothing
            return
        try:
            self._put(here, name, overwrite)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._move_far(overwrite)

    def _move_far(self, overwrite: bool) -> None:
        """To another file system: a copy, and then what was copied is removed."""
        copied = self.copy(overwrite)
        gone = Walk(sys.maxsize, lambda: None)
        gone.copied = copied
        with gone.words(f"everything was copied to {self._destination}; deleted from {self._source}"):
            gone.remove(self._here, self._source.name, str(self._source), copied=True)
        if gone.left:
            raise ExecutorError(
                f"{gone.left} changed while {self._source} was copied to {self._destination}; the copy is complete, "
                "and what changed was not deleted"
            )

    def copy(self, overwrite: bool) -> dict[tuple[int, int], tuple[int, int]]:
        work, name = self._work, self._source.name
        fresh = work.fresh()
        fresh_name = beside(self._destination.name)
        try:
            with fresh.words():
                fresh.copy(self._here, name, self._there, fresh_name, str(self._source))
            self._put(self._there, fresh_name, overwrite)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.discard(self._there, fresh_name)
            raise
        work.files, work.folders, work.links, work.bytes = fresh.files, fresh.folders, fresh.links, fresh.bytes
        return fresh.copied

    def _put(self, here: int, name: str, overwrite: bool) -> None:
        """Renames to the destination; replaces what exists only with `overwrite`. What was put there is judged again in
        its new place; if it must not be there, it goes back."""
        there, to_name = self._there, self._destination.name
        if self._folder:
            self._put_folder(here, name, overwrite)
            return
        self._need_file(here, name)
        self._put_file(here, name, overwrite)
        try:
            self._need_file(there, to_name)
        except BaseException:
            _back(there, to_name, here, name)
            raise

    def _need_file(self, parent: int, name: str) -> None:
        found = self._work.fresh().survey(parent, name, str(self._source))
        if stat.S_ISDIR(found.st_mode):
            raise ExecutorError(f"{self._source} was replaced in the meantime")

    def _put_file(self, here: int, name: str, overwrite: bool) -> None:
        there, to_name = self._there, self._destination.name
        if overwrite:
            os.rename(name, to_name, src_dir_fd=here, dst_dir_fd=there)
        else:
            try:
                os.link(name, to_name, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
            except FileExistsError:
                raise self._exists() from None
            except OSError as error:
                if error.errno not in NO_HARD_LINKS:
                    raise
                if look(there, to_name) is not None:
                    raise self._exists() from None
                os.rename(name, to_name, src_dir_fd=here, dst_dir_fd=there)
                return
            try:
                os.unlink(name, dir_fd=here)
            except OSError:
                os.unlink(to_name, dir_fd=there)
                raise

    def _put_folder(self, here: int, name: str, overwrite: bool) -> None:
        there, to_name = self._there, self._destination.name
        if look(there, to_name) is None:
            self._rename_folder(here, name)
            return
        if not overwrite:
            raise self._exists()
        aside = beside(to_name)
        os.rename(to_name, aside, src_dir_fd=there, dst_dir_fd=there)
        try:
            self._survey_replaced(aside)
            self._rename_folder(here, name)
        except BaseException:
            os.rename(aside, to_name, src_dir_fd=there, dst_dir_fd=there)
            raise
        old = Walk(sys.maxsize, lambda: None)
        with old.words(f"{self._destination} was replaced; its old contents are in {aside}; deleted from there"):
            old.remove(there, aside, str(self._destination.with_name(aside)))

    def _rename_folder(self, here: int, name: str) -> None:
        """What has appeared in the folder since it was surveyed is judged in its new place. If it must not be there,
        the folder goes back."""
        there, to_name = self._there, self._destination.name
        os.rename(name, to_name, src_dir_fd=here, dst_dir_fd=there)
        try:
            self._work.fresh().survey(there, to_name, str(self._source))
        except BaseException:
            _back(there, to_name, here, name)
            raise


def beside(name: str) -> str:
    return f".{name[:40]}.{uuid.uuid4().hex[:12]}"
