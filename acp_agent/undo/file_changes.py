"""Changes as users see them: texts, counted lines, hunks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from acp_agent.executors.encodings import decoded
from acp_agent.lazy import load
from acp_agent.undo.base import Entry
from acp_agent.undo.contents import ContentError, Contents
from acp_agent.undo.merge import is_quick, lines_of

MATCHER = "difflib:SequenceMatcher"
MOST_SHOWN = 1_000_000
"""Bytes of a file that is shown."""
MOST_COMPARED = 20_000
"""Lines of a file whose hunks are found."""

Hunk = tuple[int, int, int, int]
"""First line (from 1) and number of lines before, and after; of no lines: the line before them."""


class FileChange(Struct, frozen=True):
    path: Path
    kind: Literal["created", "changed", "deleted"]
    old: str | None
    """`None` if there was no file."""
    new: str | None
    shown: bool
    """Whether the texts are there; false for what is no text, too long, or not kept."""
    hunks: tuple[Hunk, ...]
    calls: tuple[str, ...] = ()
    words: str = ""
    """What changed besides the text, or why that is not shown."""

    @property
    def added(self) -> int:
        return sum(hunk[3] for hunk in self.hunks)

    @property
    def removed(self) -> int:
        return sum(hunk[1] for hunk in self.hunks)


def file_change(path: Path, before: Entry, after: Entry, contents: Contents) -> FileChange | None:
    """`None` for folders, which are not shown."""
    if {before.kind, after.kind} <= {"none", "dir"}:
        return None
    kind: Literal["created", "changed", "deleted"] = "changed"
    if before.kind in ("none", "dir"):
        kind = "created"
    elif after.kind in ("none", "dir"):
        kind = "deleted"
    words = []
    if before.kind == after.kind == "file" and before.mode != after.mode:
        words.append(f"mode {before.mode:o} becomes {after.mode:o}")
    try:
        old, new = _text(before, contents), _text(after, contents)
    except (ContentError, UnicodeError) as error:
        said = str(error) if isinstance(error, ContentError) else "it is no text"
        return FileChange(path, kind, None, None, False, (), words="; ".join([*words, said]))
    return FileChange(path, kind, old, new, True, hunks(old or "", new or ""), words="; ".join(words))


def _text(entry: Entry, contents: Contents) -> str | None:
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


def without(old: str, new: str, chosen: Sequence[int]) -> str:
    """`new`, with these hunks (indices) as they were. Raises IndexError for one that there is not."""
    one, two = lines_of(old), lines_of(new)
    all_ = hunks(old, new)
    for index in sorted(set(chosen), reverse=True):
        if index < 0:
            raise IndexError(index)
        start, count, at, length = all_[index]
        begin, end = start - (count > 0), at - (length > 0)
        two[end : end + length] = one[begin : begin + count]
    return "".join(two)
