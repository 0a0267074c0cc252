"""The values of the undo log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Kind = Literal["none", "file", "dir", "link", "other"]
By = Literal["call", "background", "undo"]
State = Literal["running", "done", "taken back"]


class Entry(Struct, frozen=True, omit_defaults=True):
    """What is at a path."""

    kind: Kind = "none"
    mode: int = 0
    """Permission bits."""
    size: int = 0
    content: str = ""
    """SHA-256 of a file's content, which is kept; empty if it is not kept."""
    target: str = ""
    """Of a link."""
    mark: str = ""
    """Of a file: inode, size, time. Tells whether one whose content is not kept is still the same."""
    unsaved: str = ""
    """SHA-256 of the text that the editor had, if it differed from the file."""
    why: str = ""
    """Why the content is not kept."""

    @property
    def kept(self) -> bool:
        """Whether it can be made again from what is kept."""
        return self.kind in ("none", "dir", "link") or bool(self.content)

    def same(self, other: Entry) -> bool:
        """Whether both are the same on disk, as far as it matters: not the time. Contents that are not kept are the
        same if inode, size and time are."""
        if (self.kind, self.mode, self.target) != (other.kind, other.mode, other.target):
            return False
        return self.content == other.content if self.content and other.content else self.mark == other.mark

    def shown(self) -> Entry:
        """With the text that the editor had as its content."""
        return replace(self, content=self.unsaved, unsaved="") if self.unsaved else self


NOTHING = Entry()

CACHES = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox", ".cache", ".next"})
"""Folders whose contents programs make again in any project."""

How = Literal["created", "changed", "deleted"]


def how_changed(before: Entry, after: Entry) -> How | None:
    """What became of a file (or link); `None` where there was none and is none."""
    was, is_ = before.kind not in ("none", "dir"), after.kind not in ("none", "dir")
    if not was:
        return "created" if is_ else None
    return "changed" if is_ else "deleted"


def is_cache(shown: str) -> bool:
    """Whether a path, as the user sees it, is in a folder whose contents programs make again."""
    return any(part in CACHES or (part[:1] == "." and part.endswith("cache")) for part in Path(shown).parts[:-1])


class Change(Struct, frozen=True):
    """What one operation did to a path."""

    path: Path
    before: Entry
    after: Entry | None
    """`None`: unknown, since the agent was killed before it looked."""

    @property
    def how(self) -> How | None:
        """What became of the file; where that is unknown, it is taken to be there."""
        return how_changed(self.before, self.after or Entry("file"))


class Operation(Struct, frozen=True):
    """Everything that a call, a command in the background, or an undo did."""

    id: int
    session_id: str
    prompt: int
    """The number of the prompt in its session."""
    call: str
    """The tool call's id; empty for an undo."""
    by: By
    title: str
    created_at: str
    """ISO 8601, UTC."""
    state: State
    uncovered: str = ""
    """What of it cannot be taken back, and why."""
    undoes: tuple[int, ...] = ()
    """The operations that an undo took back."""
    rewound: int = 0
    """For an undo: the prompt from which on the conversation was cut; 0 if it was not."""


def named(names: Sequence[str], most: int = 3, count: int = 0) -> str:
    """`A, B and 7 more`. `count`: how many there are, if not all are in `names`."""
    left = max(count, len(names)) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")
