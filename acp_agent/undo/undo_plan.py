"""What taking operations back means for each path. Reads only the contents it merges."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.errors import ExecutorError
from acp_agent.undo.base import NOTHING, Change, Entry
from acp_agent.undo.contents import ContentError, Contents
from acp_agent.undo.merge import merge
from acp_agent.undo.pictures import has_other_names

CHANGED_SINCE = "it was changed since"
BETWEEN = "it was changed between two changes of the agent"
UNKNOWN = "the agent was killed while it changed it"
NO_FOLDER = "its folder is something else now"
NOT_AGAIN = "cannot be made again by /redo"
OTHER_NAMES = "a hard link: it may become a file of its own"
UNSAVED = "the editor has unsaved changes of it"


class Step(Struct, frozen=True):
    path: Path
    now: Entry
    then: Entry


class Conflict(Struct, frozen=True):
    """A path that is left alone."""

    path: Path
    why: str
    mergeable: bool = False
    """Whether the agent's changes can be taken back all the same, and the user's kept (`merge`)."""


class Plan(Struct, frozen=True):
    steps: tuple[Step, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    def remarks(self) -> dict[Path, str]:
        """What the user should know before files are changed."""
        moved = {step.then.mark for step in self.steps} - {""}
        found = {step.path: NOT_AGAIN for step in self.steps if not step.now.kept and step.now.mark not in moved}
        for step in self.steps:
            if step.now.kind == step.then.kind == "file" and has_other_names(step.path):
                found[step.path] = f"{found[step.path]}; {OTHER_NAMES}" if step.path in found else OTHER_NAMES
        return found


def by_path(changes: Iterable[Change]) -> dict[Path, list[Change]]:
    """In order."""
    found: dict[Path, list[Change]] = {}
    for change in changes:
        found.setdefault(change.path, []).append(change)
    return found


def make_plan(changes: Sequence[Change], now: Callable[[Path], Entry], contents: Contents, *, merging: bool) -> Plan:
    """Takes these changes back. `now`: what is at a path, with the editor's text as `unsaved` where that differs.
    `merging`: what was changed since is merged where that is clean."""
    steps: list[Step] = []
    conflicts: list[Conflict] = []
    links = {path for path, done in by_path(changes).items() if _becomes_folder(path, done, now)}
    for path, done in by_path(changes).items():
        try:
            current = now(path)
        except (OSError, ExecutorError) as error:
            if not _is_below_link(path, links):
                conflicts.append(Conflict(path, str(error)))
                continue
            current = NOTHING
        found = _back(path, current, done)
        if isinstance(found, Conflict):
            merged = _merged(current, done, contents)
            if merged is None or not merging:
                conflicts.append(replace(found, mergeable=merged is not None))
                continue
            found = merged
        if found.why and found.kind in ("other", "link") and not found.same(current):
            conflicts.append(Conflict(path, f"it cannot be made again: {found.why}"))
            continue
        if found is not current and (not found.same(current) or current.unsaved):
            steps.append(Step(path, current, found))
    then: dict[Path, str] = {step.path: step.then.kind for step in steps}
    for step in [step for step in steps if step.then.kind != "none" and _has_no_folder(step.path, then)]:
        steps.remove(step)
        conflicts.append(Conflict(step.path, NO_FOLDER))
    while unkept := _unkept(steps):
        steps = [step for step in steps if step.path not in unkept]
        conflicts += [Conflict(path, f"its earlier content was not kept: {why}") for path, why in unkept.items()]
    steps += _closed_folders(steps)
    return Plan(tuple(_in_order(steps, conflicts)), tuple(conflicts))


def _becomes_folder(path: Path, done: Sequence[Change], now: Callable[[Path], Entry]) -> bool:
    """Whether the agent has put a link, which is still there, in the place of a folder."""
    after = done[-1].after
    try:
        return done[0].before.kind == "dir" and after is not None and after.kind == "link" and now(path).same(after)
    except (OSError, ExecutorError):
        return False


def _is_below_link(path: Path, links: set[Path]) -> bool:
    return any(above in links for above in path.parents)


def _has_no_folder(path: Path, then: dict[Path, str]) -> bool:
    """Whether something else is where its folder was, also after the steps."""
    for above in path.parents:
        if above in then:
            if then[above] not in ("dir", "none"):
                return True
            continue
        try:
            return not stat.S_ISDIR(os.lstat(above).st_mode)
        except OSError:
            continue
    return False


def _unkept(steps: Sequence[Step]) -> dict[Path, str]:
    """What these steps cannot make again, and why: it is not kept, and not where one of them could move it from."""
    marks = {step.now.mark for step in steps} - {""}
    return {step.path: step.then.why for step in steps if not step.then.kept and step.then.mark not in marks}


def _closed_folders(steps: Sequence[Step]) -> Iterator[Step]:
    """Those that we may not write to, in which something changes: they stay as they are, and their mode is in the log
    while they are open."""
    effective = os.access in os.supports_effective_ids
    for folder in {step.path.parent for step in steps} - {step.path for step in steps}:
        with suppress(OSError):
            found = os.lstat(folder)
            if stat.S_ISDIR(found.st_mode) and not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
                entry = Entry("dir", stat.S_IMODE(found.st_mode))
                yield Step(folder, entry, entry)


def _back(path: Path, current: Entry, done: Sequence[Change]) -> Entry | Conflict:
    """What was at the path before these changes, if nobody else changed it meanwhile."""
    last = done[-1]
    if all(change.after is None for change in done) and current.same(done[0].before):
        return current
    if any(change.after is None for change in done):
        return Conflict(path, UNKNOWN)
    for one, next_ in pairwise(done):
        assert one.after is not None
        if one.after.same(next_.before) and next_.before.unsaved in ("", one.after.unsaved):
            continue
        if not _saved_or_not(next_.before, one):
            return Conflict(path, BETWEEN)
    assert last.after is not None
    if _saved_or_not(current, last):
        return done[0].before.shown()
    if current.unsaved and current.unsaved != last.after.unsaved:
        return Conflict(path, UNSAVED)
    if current.same(done[0].before) and current.unsaved == done[0].before.unsaved:
        return current  # Somebody has taken it back already.
    if not current.same(last.after):
        return Conflict(path, CHANGED_SINCE)
    return done[0].before.shown()


def _saved_or_not(current: Entry, change: Change) -> bool:
    """Whether the editor shows what the change left, and has only saved it since, or not yet."""
    after = change.after
    assert after is not None
    if (current.kind, current.mode) != (after.kind, after.mode) or current.kind != "file":
        return False
    if after.unsaved:
        return not current.unsaved and current.content == after.unsaved
    return bool(current.unsaved) and current.unsaved == after.content and current.same(change.before)


def _merged(current: Entry, done: Sequence[Change], contents: Contents) -> Entry | None:
    """The current file without these changes; `None` where that is not clean."""
    if current.kind != "file":
        return None
    try:
        text = _text(contents, current.unsaved or current.content)
        for change in reversed(done):
            if change.after is None or change.after.kind != "file" or change.before.kind != "file":
                return None
            after, before = change.after, change.before
            merged = merge(_text(contents, after.content), text, _text(contents, before.unsaved or before.content))
            if merged is None:
                return None
            text = merged
        mode = done[0].before.mode if done[-1].after and current.mode == done[-1].after.mode else current.mode
        data = text.encode()
        return Entry("file", mode, len(data), contents.put(data, current.content))
    except (ContentError, UnicodeError):
        return None


def _text(contents: Contents, name: str) -> str:
    if not name:
        raise ContentError("not kept")
    return contents.get(name).decode()


def _in_order(steps: Sequence[Step], conflicts: Sequence[Conflict]) -> list[Step]:
    """In the order in which they are to be made: removals from the bottom up, then folders from the top down, then
    files."""
    kept = {conflict.path for conflict in conflicts}
    kept |= {above for path in kept for above in path.parents}
    gone = [step for step in steps if step.then.kind == "none" and not (step.path in kept and step.now.kind == "dir")]
    made = [step for step in steps if step.then.kind == "dir"]
    rest = [step for step in steps if step.then.kind not in ("none", "dir")]
    gone.sort(key=lambda step: (-len(step.path.parts), step.path))
    made.sort(key=lambda step: (len(step.path.parts), step.path))
    return [*gone, *made, *rest]
