"""Finds the edits that turn one text into another: whole lines, as few as possible.

The agent writes a file's complete new text. What it means is the difference from the text it had read, so that
difference is applied to the document, which the user may have edited in the meantime.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from lsprotocol.types import Range, TextEdit
from msgspec import Struct

from acp_agent.fronts.lsp_server.documents.text_positions import Text

MATCHED_LINES = 4_000
"""Above that, everything between the common beginning and end is replaced as one piece: matching takes too long."""


class Hunk(Struct, frozen=True):
    """Replaces the lines from `start` up to `end` with `lines`."""

    start: int
    end: int
    lines: tuple[str, ...]


def hunks_between(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """Ordered from first to last. Empty if the texts are equal."""
    first, last = 0, 0
    shorter = min(len(old), len(new))
    while first < shorter and old[first] == new[first]:
        first += 1
    while last < shorter - first and old[-1 - last] == new[-1 - last]:
        last += 1
    before, after = old[first : len(old) - last], new[first : len(new) - last]
    if not before and not after:
        return []
    if max(len(before), len(after)) > MATCHED_LINES:
        return [Hunk(first, first + len(before), tuple(after))]
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [Hunk(first + a, first + b, tuple(after[c:d])) for tag, a, b, c, d in codes if tag != "equal"]


def rebased(base: Sequence[str], current: Sequence[str], wanted: Sequence[str]) -> list[Hunk] | None:
    """The changes from `base` to `wanted`, as hunks of `current`, which may have changed elsewhere.

    `None` if both changed the same place in different ways.
    """
    theirs = hunks_between(base, current)
    found: list[Hunk] = []
    for ours in hunks_between(base, wanted):
        shift = 0
        for other in theirs:
            if other == ours:
                break  # Both made the same change.
            if (other.start, other.end) == (ours.start, ours.end) and ours.start == ours.end:
                return None  # Two insertions at one place: their order is unknown.
            if other.end <= ours.start:
                shift += len(other.lines) - (other.end - other.start)
            elif other.start < ours.end:
                return None
        else:
            found.append(Hunk(ours.start + shift, ours.end + shift, ours.lines))
    return found


def text_edits(text: Text, hunks: Sequence[Hunk]) -> list[TextEdit]:
    return [
        TextEdit(
            range=Range(start=text.line_start(hunk.start), end=text.line_start(hunk.end)), new_text="".join(hunk.lines)
        )
        for hunk in hunks
    ]
