"""A three-way merge of texts by lines (diff3: Khanna, Kunal, Pierce, "A Formal Investigation of Diff3", 2007)."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from typing import Any

from acp_agent.lazy import load

MATCHER = "difflib:SequenceMatcher"
MOST_PAIRS = 500_000
"""Pairs of equal lines of two texts that are compared."""
LONGEST = 20_000
"""Lines of a text that is merged."""


def merge(base: str, ours: str, theirs: str) -> str | None:
    """`ours` with the changes from `base` to `theirs`; `None` where both changed the same or neighbouring lines
    differently."""
    lines = [lines_of(text) for text in (base, ours, theirs)]
    base_lines, *others = lines
    if max(map(len, lines)) > LONGEST or not all(is_quick(base_lines, other) for other in others):
        return None
    merged: list[str] = []
    for old, mine, other in _pieces(*lines):
        if mine == other or other == old:
            merged += mine
        elif mine == old:
            merged += other
        else:
            return None
    return "".join(merged)


def is_quick(one: list[str], two: list[str]) -> bool:
    """Whether these lines are compared in a short time: lines that occur again and again in both take long."""
    counts = Counter(two)
    return sum(count * counts[line] for line, count in Counter(one).items()) <= MOST_PAIRS


def lines_of(text: str) -> list[str]:
    """As editors count them: a form feed ends no line."""
    return list(io.StringIO(text, newline=""))


def _pieces(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """All three, cut where they agree: what they agree on, and what is between."""
    mine, other = _matches(base, ours), _matches(base, theirs)
    at = [0, 0, 0]
    for line in range(len(base) + 1):
        if line < len(base) and not (line in mine and line in other):
            continue
        end = [line, mine.get(line, len(ours)), other.get(line, len(theirs))]
        yield base[at[0] : end[0]], ours[at[1] : end[1]], theirs[at[2] : end[2]]
        if line < len(base):
            yield [base[line]], [base[line]], [base[line]]
        at = [end[0] + 1, end[1] + 1, end[2] + 1]


def _matches(base: list[str], other: list[str]) -> dict[int, int]:
    matcher: Any = load(MATCHER)(None, base, other, autojunk=False)
    return {one + at: two + at for one, two, size in matcher.get_matching_blocks() for at in range(size)}
