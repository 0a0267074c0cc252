"""Makes the steps of an undo. It is in the log, with all its changes, before the first of them; so a process that is
killed in between leaves an undo that `recover` finishes, from the log and what is on the disk.

A file whose present content is not kept is set aside, under a name that follows from its path, until the last step is
done. Folders that cannot be written to are opened, if their mode is in the log, and get their modes last.

Blocking; what the open editor must do itself comes before, by `loop/undo`.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from acp_agent.errors import AgentError, ExecutorError
from acp_agent.executors.beneath import Swapped
from acp_agent.store.operation_store import OperationStore
from acp_agent.undo.base import NOTHING, Entry
from acp_agent.undo.contents import Contents
from acp_agent.undo.operation_log import changes_of, settle
from acp_agent.undo.pictures import (
    OPEN,
    Camera,
    aside,
    clear,
    half,
    missing_folders,
    named,
    put,
    put_in_place,
    rename,
    set_mode,
)
from acp_agent.undo.undo_plan import Step

T = TypeVar("T")

LOCKS = "restoring"
MANY = 500
"""Steps from which on small files are written in place: a file system takes long to free what is replaced."""
SMALL = 64 * 1024
"""Bytes of such a file."""
DENIED = (errno.EACCES, errno.EPERM, errno.EBUSY)


def make(steps: Sequence[Step], camera: Camera, tell: Callable[[int], None] = lambda done: None) -> list[str]:
    """Makes all steps, or none: if one fails, those before it are taken back. Returns what was not done, in words.
    `tell`: called before each step with how many are done; what it raises stops all.

    Raises ContentError, ExecutorError, OSError.
    """
    undo, seen = _Undo(steps, camera), dict[Path, Entry]()
    for step in steps:
        seen[step.path] = undo.look(step)
        _need(seen[step.path].same(step.now), step)
    done, left = list[Step](), dict[Path, str]()
    try:
        for step in steps:
            undo.set_aside(step)
        for step in steps:
            tell(len(done))
            if step.now.kind != "dir":  # A folder may be open now, and only an empty one is removed.
                now = NOTHING if step.path in undo.asides else step.now
                _need(undo.look(step, seen[step.path]).same(now), step)
            done.append(step)
            if words := undo.make(step):
                left[step.path] = words
    except (AgentError, OSError):
        undo.back(done)
        raise
    return [*left.values(), *undo.finish(left)]


def _need(same: bool, step: Step) -> None:
    if not same:
        raise ExecutorError(f"{step.path} changed in the last moment, so nothing was restored")


class _Undo:
    """Steps on their way."""

    def __init__(self, steps: Sequence[Step], camera: Camera) -> None:
        self.steps = steps
        self._camera = camera
        gone = {step.path for step in steps if step.now.kind == "dir" and step.then.kind != "dir"}
        self._wanted = {step.then.mark for step in steps if not step.then.kept} - {""}
        self._links = {step.path for step in steps if step.now.kind == "link"}
        waits = [step for step in steps if not step.now.kept or step.now.mark in self._wanted]
        self.asides = {step.path: (aside(step.path, gone), step.now) for step in waits}
        self._moved: dict[Path, tuple[Path, Entry]] = {}
        """Files that were moved back, and where they had been set aside."""
        self._folders = [step for step in steps if "dir" in (step.now.kind, step.then.kind)]
        self._folders.sort(key=lambda step: -len(step.path.parts))
        self._made: list[Path] = []
        """Missing folders above what was made."""

    def look(self, step: Step, known: Entry = NOTHING) -> Entry:
        try:
            return self._opening(step.path, lambda: self._camera.take(step.path, keep=False, known=known))
        except Swapped:
            if self._links.isdisjoint(step.path.parents):
                raise
            return NOTHING  # Below a link that becomes a folder.

    # --- forth ------------------------------------------------------------------------------------------------

    def set_aside(self, step: Step) -> None:
        if step.path in self.asides:
            place = self.asides[step.path][0]
            self._opening(step.path, lambda: rename(step.path, place, step.now.mode))

    def make(self, step: Step) -> str:
        """Returns what was not done, in words."""
        path, then = step.path, step.then
        if then.kind != "none":
            self._made += missing_folders(path)
        waiting = [each for each in self.asides.values() if then.mark in self._wanted and each[1].mark == then.mark]
        if source := next((each for each in waiting if os.path.lexists(each[0])), None):
            left = self._opening(path, lambda: rename(source[0], path, then.mode, replacing=True))
            if not left:
                self._moved[path] = source
            return left
        if then.kind == step.now.kind == "dir":
            if then.mode != step.now.mode:
                set_mode(path, then.mode | OPEN)
            return ""
        small = all(each.content and each.size <= SMALL for each in (step.now, then))  # `half` knows one begun.
        if small and len(self.steps) >= MANY and put_in_place(path, then, self._camera.contents):
            return ""
        return self._put(path, then)

    def _put(self, path: Path, entry: Entry) -> str:
        if entry.kind == "dir":
            entry = replace(entry, mode=entry.mode | OPEN)
        try:
            return self._opening(path, lambda: put(path, entry, self._camera.contents))
        except OSError as error:
            if error.errno not in DENIED or not put_in_place(path, entry, self._camera.contents):
                raise
            return ""

    def _opening(self, path: Path, work: Callable[[], T]) -> T:
        """Does it once more with the folders above opened, if that was missing."""
        with named(path):
            try:
                return work()
            except PermissionError:
                opened = [self._open(step.path) for step in reversed(self._folders) if step.path in path.parents]
                if not any(opened):
                    raise
                return work()

    def _open(self, folder: Path) -> bool:
        with suppress(PermissionError):
            return set_mode(folder, OPEN, more=True)
        return False

    def finish(self, undone: Collection[Path]) -> list[str]:
        """Removes what was set aside and gives folders their modes. What `undone` steps need goes back to where it was.
        Returns what could not be done, in words."""
        words = []
        needed = {step.then.mark for step in self.steps if step.path in undone} - {""}
        for path, (place, entry) in self.asides.items():
            if not self._is_aside(path):
                continue
            try:
                if path in undone or entry.mark in needed:
                    self._bring_home(path)
                else:
                    self._put(place, NOTHING)
            except (AgentError, OSError) as error:
                words.append(f"what was {path} is kept as {place}: {error}")
        return words + self._set_modes(back=False)

    def _set_modes(self, *, back: bool) -> list[str]:
        """Of the folders that are there, the deepest first."""
        words = []
        for step in self._folders:
            wanted, other = (step.now, step.then) if back else (step.then, step.now)
            try:
                set_mode(step.path, wanted.mode if wanted.kind == "dir" else other.mode)
            except (AgentError, OSError) as error:
                words.append(f"{step.path} has other permissions than before: {error}")
        return words

    # --- back -------------------------------------------------------------------------------------------------

    def back(self, done: Sequence[Step]) -> None:
        """Files that are not kept first; once more at the end for those whose folder was missing."""
        for path, (place, entry) in self._moved.items():
            with suppress(AgentError, OSError):
                rename(path, place, entry.mode)
        self._asides_back()
        for step in reversed(done):
            if step.path not in self.asides:
                with suppress(AgentError, OSError):
                    self._put(step.path, step.now)
        self._asides_back()
        for folder in reversed(self._made):
            with suppress(AgentError, OSError):
                self._put(folder, NOTHING)
        self._set_modes(back=True)

    def _asides_back(self) -> None:
        for path in self.asides:
            if self._is_aside(path):
                with suppress(AgentError, OSError):
                    self._bring_home(path, replacing=True)

    def _bring_home(self, path: Path, *, replacing: bool = False) -> None:
        place, entry = self.asides[path]
        self._opening(path, lambda: rename(place, path, entry.mode, replacing=replacing))

    # --- after a kill -----------------------------------------------------------------------------------------

    def is_begun(self, step: Step, current: Entry) -> bool:
        """Whether a killed process can have left the path so, in the midst of its step."""
        kinds = step.now.kind, step.then.kind
        if current.kind == "none":
            moved = step.path in self.asides and step.now.mark in self._wanted
            return moved or self._is_aside(step.path) or ("dir" in kinds and "none" not in kinds)
        if current.kind == "dir":
            return "dir" in kinds and current.mode in (OPEN, step.now.mode | OPEN, step.then.mode | OPEN)
        return current.kind == "file" and half(step.path, step.now, step.then, self._camera.contents)

    def _is_aside(self, path: Path) -> bool:
        return path in self.asides and os.path.lexists(self.asides[path][0])


@contextmanager
def beginning(folder: Path) -> Iterator[None]:
    """While this is held, an undo that is in the log as running, and is not `held`, is one of a process that ended: who
    begins one writes it into the log and holds it in here, and who looks for such does so in here. Waits."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def held(folder: Path, operation: int) -> Iterator[bool]:
    """While this is held, no other process finishes that undo; false if another one holds it."""
    path = folder / f"{LOCKS}-{operation}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def recover(store: OperationStore, contents: Contents) -> list[str]:
    """Finishes the undos of processes that were killed. Returns what could not be, in words."""
    words, folder = [], contents.folder.parent
    for operation in store.running():
        with ExitStack() as holding:
            with beginning(folder):
                ours = holding.enter_context(held(folder, operation.id))
            if not ours or (now := store.get(operation.id)) is None or now.state != "running":
                continue
            changes = changes_of(store, [operation.id])
            words += _go_on([Step(change.path, change.before, change.after or NOTHING) for change in changes], contents)
            settle(store, operation.id)
    return words


def _go_on(steps: Sequence[Step], contents: Contents) -> list[str]:
    """Makes the steps that are not made yet, as far as nobody else has changed anything."""
    longest = max((entry.size for step in steps for entry in (step.now, step.then) if entry.content), default=0)
    undo = _Undo(steps, Camera(contents, longest))
    undone: dict[Path, str] = {}
    untouched, made = set[Path](), set[Path]()

    def each(chosen: Sequence[Step], work: Callable[[Step], str | None]) -> list[Step]:
        """Those with which it worked."""
        for step in chosen:
            try:
                if words := work(step):
                    undone[step.path] = words
            except (AgentError, OSError) as error:
                undone[step.path] = f"{step.path} was not restored: {error}"
        return [step for step in chosen if step.path not in undone]

    def look(step: Step) -> str | None:
        with suppress(Swapped):  # Below a link there is nothing of ours.
            clear(step.path)
        if (current := undo.look(step)).same(step.then):
            made.add(step.path)
        elif current.same(step.now):
            untouched.add(step.path)
        elif not undo.is_begun(step, current):
            return f"{step.path} was changed meanwhile and left alone"
        return None

    left = [step for step in each(steps, look) if step.path not in made]
    left = each(left, lambda step: undo.set_aside(step) if step.path in untouched else None)
    each(left, undo.make)
    return [*undone.values(), *undo.finish(undone)]
