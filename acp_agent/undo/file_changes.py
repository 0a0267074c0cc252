"""Changes as users see them: texts, counted lines, hunks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from acp_agent.errors import ExecutorError
from acp_agent.executors.encodings import decoded
from acp_agent.lazy import load
from acp_agent.undo.base import NOTHING, Change, Entry, How, how_changed
from acp_agent.undo.contents import ContentError, Contents
from acp_agent.undo.merge import is_quick, lines_of
from acp_agent.undo.undo_plan import BETWEEN, CHANGED_SINCE, UNSAVED, by_path, make_plan

MATCHER = "difflib:SequenceMatcher"
MOST_SHOWN = 1_000_000
"""Bytes of a file that is shown."""
MOST_FILES = 500
"""Files whose texts are compared in one answer; of the others only what became of them is told."""
MANY_FILES = f"more than {MOST_FILES} files changed, so this one is not shown"
MOST_COMPARED = 20_000
"""Lines of a file whose hunks are found."""

Hunk = tuple[int, int, int, int]
"""First line (from 1) and number of lines before, and after; of no lines: the line before them."""


class FileChange(Struct, frozen=True):
    path: Path
    kind: How
    old: str | None
    """`None` if there was no file."""
    new: str | None
    shown: bool
    """Whether the texts are there; false for what is no text, too long, or not kept."""
    hunks: tuple[Hunk, ...]
    calls: tuple[str, ...] = ()
    words: str = ""
    """What changed besides the text, or why that is not shown."""
    mixed: bool = False
    """Whether somebody else has changed the file as well."""
    cache: bool = False
    """Whether programs make it again."""

    @property
    def added(self) -> int:
        return sum(hunk[3] for hunk in self.hunks)

    @property
    def removed(self) -> int:
        return sum(hunk[1] for hunk in self.hunks)


class Part(Struct, frozen=True):
    """The agent's part in what became of a path."""

    old: Entry
    new: Entry
    mixed: bool
    """Whether somebody else has changed it as well."""


def parts_of(changes: Sequence[Change], now: Mapping[Path, Entry] | None, contents: Contents) -> dict[Path, Part]:
    """What is left of these changes: that which taking them back, with a merge, would change, seen the other way round.
    Where it cannot be told apart from what others did: what the changes left. `now`: what is there; `None`: what the
    changes left, and nothing is merged."""
    done = by_path(changes)

    def entry(path: Path) -> Entry:
        found = done[path][-1].after or NOTHING if now is None else now.get(path)
        if found is None:
            raise ExecutorError("it cannot be looked at")
        return found

    plan = make_plan(changes, entry, contents, merging=now is not None)
    found = {
        step.path: Part(step.then, step.now, not step.then.same(done[step.path][0].before.shown()))
        for step in plan.steps
        if step.path in done
    }
    for conflict in plan.conflicts:
        first, last = done[conflict.path][0].before, done[conflict.path][-1].after
        after = (now or {}).get(conflict.path) if last is None else last
        if after is not None and not (first.same(after) and first.unsaved == after.unsaved):
            mixed = conflict.why in (BETWEEN, CHANGED_SINCE, UNSAVED)
            found[conflict.path] = Part(first, after, mixed)
    return {path: found[path] for path in done if path in found}


def file_change(path: Path, before: Entry, after: Entry, contents: Contents | None) -> FileChange | None:
    """`None` for folders, which are not shown. Without `contents` texts are not compared."""
    if (kind := how_changed(before, after)) is None:
        return None
    words = []
    if before.kind == after.kind == "file" and before.mode != after.mode:
        words.append(f"mode {before.mode:o} becomes {after.mode:o}")
    if contents is None:
        return FileChange(path, kind, None, None, False, (), words="; ".join([*words, MANY_FILES]))
    try:
        old, new = text_of(before, contents), text_of(after, contents)
    except (ContentError, UnicodeError) as error:
        said = str(error) if isinstance(error, ContentError) else "it is no text"
        return FileChange(path, kind, None, None, False, (), words="; ".join([*words, said]))
    return FileChange(path, kind, old, new, True, hunks(old or "", new or ""), words="; ".join(words))


def text_of(entry: Entry, contents: Contents) -> str | None:
    """`None` where there is no file. Raises ContentError, UnicodeError."""
    if entry.kind == "link":
        return f"-> {entry.target}"
    if entry.kind != "file":
        return None
    if entry.size > MOST_SHOWN:
        raise ContentError(f"it is larger than {MOST_SHOWN} bytes")
    if not (name := entry.unsaved or entry.content):
        raise ContentError(entry.why or "its content is not kept")
    return decoded(contents.get(name)).text


def hunks(old: str, new: str) -> tuple[Hunk, ...]:
    one, two = lines_of(old), lines_of(new)
    if max(len(one), len(two)) > MOST_COMPARED or not is_quick(one, two):
        return ((1, len(one), 1, len(two)),)
    matcher: Any = load(MATCHER)(None, one, two, autojunk=False)
    found = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            found.append((a + (b > a), b - a, c + (d > c), d - c))
    return tuple(found)


def hunk_ids(change: FileChange) -> list[str]:
    """What each hunk is known by, wherever it stands: its lines."""
    one, two = lines_of(change.old or ""), lines_of(change.new or "")
    found = []
    for start, count, at, length in change.hunks:
        begin, end = start - (count > 0), at - (length > 0)
        lines = repr((one[begin : begin + count], two[end : end + length]))
        found.append(hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()[:16])
    return found


def without(change: FileChange, wanted: Sequence[tuple[int, str]]) -> str:
    """The text after the change, with these hunks as they were. They are known by index and id: where another one is
    there now, the nearest with that id is meant. Raises LookupError if there is none."""
    one, two = lines_of(change.old or ""), lines_of(change.new or "")
    ids, chosen = hunk_ids(change), set[int]()
    for index, known in wanted:
        places = [at for at, id_ in enumerate(ids) if id_ == known and at not in chosen]
        if not places:
            raise LookupError(known)
        chosen.add(min(places, key=lambda at: abs(at - index)))
    for index in sorted(chosen, reverse=True):
        start, count, at, length = change.hunks[index]
        begin, end = start - (count > 0), at - (length > 0)
        two[end : end + length] = one[begin : begin + count]
    return "".join(two)
