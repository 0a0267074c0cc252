"""The nine strategies of filter rules: their form in a rule (`type` and parameters), and which lines they remove.

Each decides about a list of lines and returns a `Cut`: positions, never text. Only `cut.carried_out` turns it into text
and keeps whatever would lose a failure. A strategy that does not understand its input returns `Fallback` and removes
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from acp_agent.linear import MAX_PATTERN_CHARS, Pattern, PatternError, compiled
from acp_agent.output.cut import NOTHING, Cut, Omission
from acp_agent.output.error_lines import error_lines
from acp_agent.output.git_output import git_diff_cut, git_status_cut
from acp_agent.output.grouping import group_by_rule_cut
from acp_agent.output.passing import test_summary_of

MAX_DIFF_LINES = 500

NOISE = Omission("line of noise", "lines of noise")
OTHERS = Omission("other line", "other lines")
MIDDLE = Omission("line", "lines", each_run=True)
ANNOTATIONS = Omission("line of notes", "lines of notes")

TIMES = re.compile(
    r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?: ?(?:Z|[+-]\d{2}:?\d{2}))?\b"
    r"|\b\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\b"
    r"|\b\d{1,2}/[A-Z][a-z]{2}/\d{4}(?::\d{2}){3}(?: [+-]\d{4})?"
    r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d{2}:\d{2}:\d{2}\b"
    r"|\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?\b"
)
"""Timestamps: lines that differ only in these say the same. Each part is limited, so `re` is safe."""
NAMES = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0x[0-9a-fA-F]+\b")
"""UUIDs and addresses: likewise, except in lines that report errors, where they identify different ones."""
DOCUMENT = re.compile(r"[{\[]$|---$|apiVersion:")
KLOG = re.compile(r"[IWEF]\d{4} \d\d:")

Patterns = Annotated[tuple[str, ...], Meta(min_length=1)]
Lines = Annotated[int, Meta(ge=0)]


class Strategy(Protocol):
    def cut(self, lines: Sequence[str]) -> Cut:
        """Returns the lines that may be removed. Pure; nothing it returns can lose an error line."""
        ...

    def check(self) -> None:
        """Raises ValueError, with a sentence, for parameters that are well-formed but invalid."""
        ...


class _Strategy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    def check(self) -> None:
        return


class StripNoise(_Strategy, frozen=True, tag="strip_noise"):
    """Removes lines that match one of `patterns`. Full if lines were removed, else Fallback."""

    patterns: Patterns

    def check(self) -> None:
        _union(self.patterns)

    def cut(self, lines: Sequence[str]) -> Cut:
        noise = _union(self.patterns)
        dropped = {place: NOISE for place, line in enumerate(lines) if noise.search(line) is not None}
        return Cut("Full" if dropped else "Fallback", dropped, knows_format=False)


class Truncate(_Strategy, frozen=True, tag="truncate"):
    """Beyond `max_lines`, keeps only the first `head` and last `tail` lines. Partial in that case, else Full."""

    max_lines: Annotated[int, Meta(ge=1)] = 100
    head: Lines = 20
    tail: Lines = 20

    def cut(self, lines: Sequence[str]) -> Cut:
        if len(lines) <= self.max_lines or len(lines) <= self.head + self.tail:
            return Cut("Full")
        dropped = dict.fromkeys(range(self.head, len(lines) - self.tail), MIDDLE)
        return Cut("Partial", dropped, knows_format=False)


class KeepMatching(_Strategy, frozen=True, tag="keep_matching"):
    """Keeps only lines that match one of `patterns`. Partial; Full if all do, Fallback if none does."""

    patterns: Patterns

    def check(self) -> None:
        _union(self.patterns)

    def cut(self, lines: Sequence[str]) -> Cut:
        wanted = _union(self.patterns)
        dropped = {place: OTHERS for place, line in enumerate(lines) if wanted.search(line) is None}
        if len(dropped) == len(lines):
            return Cut("Fallback")
        return Cut("Partial" if dropped else "Full", dropped, knows_format=False)


class StripAnnotated(_Strategy, frozen=True, tag="strip_annotated"):
    """Removes lines that begin with one of `prefixes` (`note:`; ignoring leading blanks and `=`), and following lines
    with deeper indentation. Full if lines were removed, else Fallback."""

    prefixes: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]

    def cut(self, lines: Sequence[str]) -> Cut:
        dropped: dict[int, Omission] = {}
        depth: int | None = None
        for place, line in enumerate(lines):
            indent = len(line) - len(line.lstrip())
            if line.lstrip(" \t=").startswith(self.prefixes):
                depth = indent
            elif depth is None or not line.strip() or indent <= depth:
                depth = None
                continue
            dropped[place] = ANNOTATIONS
        return Cut("Full" if dropped else "Fallback", dropped)


class TestSummary(_Strategy, frozen=True, tag="test_summary"):
    """Removes lines of passed tests; failures with their reports, warnings and the summary stay."""

    __test__ = False

    def cut(self, lines: Sequence[str]) -> Cut:
        return test_summary_of(lines)


class GroupByRule(_Strategy, frozen=True, tag="group_by_rule"):
    """Keeps the first diagnostic of each rule, and the places of the others. `pattern` describes other linters."""

    pattern: str | None = None

    def check(self) -> None:
        if self.pattern is not None:
            checked_pattern(self.pattern)

    def cut(self, lines: Sequence[str]) -> Cut:
        return group_by_rule_cut(lines, self.pattern)


class GitStatus(_Strategy, frozen=True, tag="git_status"):
    """Removes hints and blank lines; the branch and every path stay."""

    def cut(self, lines: Sequence[str]) -> Cut:
        return git_status_cut(lines)


class GitDiff(_Strategy, frozen=True, tag="git_diff"):
    """Beyond `max_diff_lines`, removes file contents but keeps file and hunk headers. Without it: as configured."""

    max_diff_lines: Annotated[int, Meta(ge=1)] | None = None

    def cut(self, lines: Sequence[str]) -> Cut:
        return git_diff_cut(lines, MAX_DIFF_LINES if self.max_diff_lines is None else self.max_diff_lines)


class Dedup(_Strategy, frozen=True, tag="dedup"):
    """Keeps the first of consecutive lines that differ only in timestamps, with `(x12)`; if they report no error, UUIDs
    and addresses may differ, too. Full; Fallback for a JSON or YAML document."""

    def cut(self, lines: Sequence[str]) -> Cut:
        if _is_document(lines):
            return Cut("Fallback")
        dropped: dict[int, Omission] = {}
        stands_for: dict[int, int] = {}
        changed: dict[int, str] = {}
        keys = _without_varying(lines)
        for run in _runs(keys):
            first = run[0]
            written = f"{lines[first]} (x{len(run)})"
            if len(run) == 1 or not lines[first].strip() or len(written) > sum(len(lines[place]) + 1 for place in run):
                continue
            changed[first] = written
            dropped.update(dict.fromkeys(run[1:], NOTHING))
            stands_for.update(dict.fromkeys(run[1:], first))
        return Cut(
            "Full",
            dropped,
            stands_for,
            changed,
            same=dict(zip(lines, keys, strict=True)).__getitem__,
            knows_format=False,
        )


AnyStrategy = (
    StripNoise | Truncate | KeepMatching | StripAnnotated | TestSummary | GroupByRule | GitStatus | GitDiff | Dedup
)


def may_cut_strangers(strategy: Strategy) -> bool:
    """Whether the strategy names what it removes, so that it may process other programs' output, too. The two that name
    what they keep may not."""
    return not isinstance(strategy, Truncate | KeepMatching)


def checked_pattern(pattern: str) -> Pattern:
    """Raises ValueError, with a sentence, for a pattern that is too long or invalid in RE2."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"a pattern of {len(pattern)} characters; the maximum is {MAX_PATTERN_CHARS}")
    try:
        return compiled(pattern)
    except PatternError as error:
        raise ValueError(f"the pattern `{pattern}` cannot be used: {error}") from error


def _union(patterns: Sequence[str]) -> Pattern:
    """One pattern that matches wherever one of them does. Raises ValueError."""
    for pattern in patterns:
        checked_pattern(pattern)
    union = "|".join(f"(?:{pattern})" for pattern in patterns)
    try:
        return compiled(union)
    except PatternError as error:
        raise ValueError(f"the patterns together are too large: {error}") from error


def _without_varying(lines: Sequence[str]) -> list[str]:
    """Returns a key for each line: lines with the same key say the same."""
    timeless = [TIMES.sub("\0", line).rstrip() for line in lines]
    nameless = [NAMES.sub("\x01", line) for line in timeless]
    named = [place for place, line in enumerate(timeless) if nameless[place] != line]
    for place in error_lines(lines, named):
        nameless[place] = timeless[place]
    return nameless


def _is_document(lines: Sequence[str]) -> bool:
    """Whether this is JSON or YAML, as from `kubectl get -o yaml`, where equal lines are not repetitions."""
    first = next((line for line in lines if line.strip() and KLOG.match(line) is None), "")
    return DOCUMENT.match(first) is not None


def _runs(keys: Sequence[str]) -> Iterable[range]:
    start = 0
    for place in range(1, len(keys) + 1):
        if place == len(keys) or keys[place] != keys[start]:
            yield range(start, place)
            start = place
