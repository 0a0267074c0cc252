"""Shortens outputs while the agent works towards a goal: unrelated sections are left out and marked.

Pure: the caller says which sections are relevant (embeddings, or shared words). Lines that report errors and
lines that mention the goal stay, as far as the limit allows; each gap states how many lines are missing and why.

Strategies: `aggressive` keeps two or three lines besides those (and says how many paths were found); `moderate` leaves
what is about the goal alone, up to the limit, and keeps the beginning and the relevant sections of the rest; `none`
leaves every output alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from acp_agent.config.model import CompressionConfig, CompressionStrategy
from acp_agent.output.error_lines import error_lines

STRATEGIES: Mapping[str, CompressionStrategy] = {
    "bash": "aggressive",
    "bash_output": "aggressive",
    "find_path": "aggressive",
    "list_directory": "aggressive",
    "grep": "moderate",
    "read": "moderate",
    "diagnostics": "moderate",
    "fetch": "moderate",
    "web_scrape": "moderate",
    "web_search": "moderate",
    "http_request": "moderate",
    "browser": "moderate",
    "*": "none",
}
"""Built in; extended by `tools.compression.strategies`."""

SECTION_LINES = 12
"""Lines per section if there are no blank lines."""
MOST_SECTIONS = 64
"""Additional sections are joined: each is a text to be judged."""
FIRST_LINES, LAST_LINES = 1, 2
"""Lines of any output that `aggressive` keeps."""
BEGINNING = {"read": 500}
"""Characters at the beginning that `moderate` keeps; and of the rest:"""
BEGINNING_OF_OTHERS = 1000
WORTH_IT = 0.9
"""A result must be shorter than this fraction of the output."""

MARK_CHARS = 60
"""Approximate length of a mark."""
LONGEST_MARK = 100
"""A mark is shorter than this."""

OFF_TOPIC = "not about the goal"
TOO_LONG = "beyond the length that is kept"


class Sections(Struct, frozen=True):
    """An output divided into coherent sections."""

    lines: tuple[str, ...]
    bounds: tuple[tuple[int, int], ...]
    """First line of each section, and the one after its last."""

    @property
    def texts(self) -> list[str]:
        return ["\n".join(self.lines[begin:end]) for begin, end in self.bounds]


def strategy_of(tool: str, config: CompressionConfig) -> CompressionStrategy:
    strategies = {**STRATEGIES, **config.strategies}
    return strategies.get(tool, strategies["*"])


def wants_compression(tool: str, tokens: int, config: CompressionConfig, *, exit_code: int | None) -> bool:
    """Whether an output of this many tokens should be compressed at all. `exit_code` is 0 for anything but a
    command."""
    if not config.enabled or strategy_of(tool, config) == "none":
        return False
    if config.preserve_shell_errors and exit_code != 0:
        return False
    return tokens > config.threshold_tokens


def sections_of(text: str) -> Sections:
    """Divides at blank lines, and after some lines at the latest."""
    lines = tuple(text.split("\n"))
    longest = max(SECTION_LINES, -(-len(lines) // MOST_SECTIONS))
    bounds: list[tuple[int, int]] = []
    begin = 0
    for at, line in enumerate(lines):
        blank = not line.strip() and at - begin >= longest // 2
        if blank or at - begin >= longest:
            bounds.append((begin, at))
            begin = at
    bounds.append((begin, len(lines)))
    return Sections(lines, tuple(bounds))


def compressed(
    tool: str, sections: Sections, goal: str, scores: Sequence[float] | None, config: CompressionConfig
) -> str | None:
    """The shorter output; `None` if little would be gained. `scores`: one per section, 0 to 1; `None`: the goal does
    not count."""
    lines = sections.lines
    whole = "\n".join(lines)
    moderate = strategy_of(tool, config) == "moderate"
    errors = set(error_lines(lines)) if config.preserve_errors else set()
    named = set(_naming(lines, goal)) if scores is not None else set()
    kept = errors | named
    filled = [at for at, line in enumerate(lines) if line.strip()]
    if moderate:
        near = named or any(score >= config.goal_relevance_threshold for score in scores or ())
        if near and len(whole) <= config.max_preserved_chars:
            return None  # It is about the goal.
        kept |= _beginning(lines, BEGINNING.get(tool, BEGINNING_OF_OTHERS))
        for (begin, end), score in zip(sections.bounds, scores or (), strict=False):
            if score >= config.goal_relevance_threshold:
                kept |= set(range(begin, end))
    else:
        kept |= set(filled[:FIRST_LINES]) | set(filled[-LAST_LINES:])
    kept |= _small_gaps(lines, kept)
    fitting = _within(lines, kept, errors, named, config.max_preserved_chars)
    text = _marked(lines, fitting, too_long=len(fitting) < len(kept))
    if tool == "find_path":
        text = f"[{len(filled)} files and folders match]\n{text}"
    return text if len(text) < len(whole) * WORTH_IT else None


WORD = re.compile(r"[^\W_]{3,}")
SPLIT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
COMMON = frozenset(
    "and are but can for from has have how into its make more new not now our out should that the them then there this "
    "use uses using via was what when where which will with you your all any add set get implement build write create "
    "file files code".split()
)


def _naming(lines: Sequence[str], goal: str) -> list[int]:
    """The lines with a word of the goal (by prefix, so that `parser` also finds `parsers` and `parse_all`)."""
    words = {word.lower() for word in WORD.findall(SPLIT.sub(" ", goal))} - COMMON
    if not words:
        return []
    stems = sorted({word[: max(4, len(word) - 2)] if len(word) > 4 else word for word in words})
    wanted = re.compile("|".join(rf"(?<![a-z0-9]){re.escape(stem)}" for stem in stems))
    return [at for at, line in enumerate(lines) if wanted.search(SPLIT.sub("_", line[:LONGEST_LINE]).lower())]


LONGEST_LINE = 4_000
"""Characters of a line that are searched."""


def _beginning(lines: Sequence[str], chars: int) -> set[int]:
    kept: set[int] = set()
    for at, line in enumerate(lines):
        chars -= len(line) + 1
        if chars < 0:
            break
        kept.add(at)
    return kept


def _small_gaps(lines: Sequence[str], kept: set[int]) -> set[int]:
    """The lines shorter than the mark that would replace them."""
    small: set[int] = set()
    run: list[int] = []
    size = 0
    for at in range(len(lines) + 1):
        if at < len(lines) and at not in kept:
            run.append(at)
            size += len(lines[at]) + 1
            continue
        if run and size <= MARK_CHARS:
            small.update(run)
        run, size = [], 0
    return small


def _within(lines: Sequence[str], kept: set[int], errors: set[int], named: set[int], room: int) -> set[int]:
    """The lines that stay, at most `room` characters with their marks: errors, then those that name the goal."""
    room -= LONGEST_MARK  # The one at the end.
    chosen: set[int] = set()
    for group in (errors, named - errors, kept - named - errors):
        for at in sorted(group):
            size = len(lines[at]) + 1
            if at - 1 not in chosen:
                size += LONGEST_MARK  # The one before it.
            if size <= room:
                chosen.add(at)
                room -= size
    return chosen


def _marked(lines: Sequence[str], kept: set[int], *, too_long: bool) -> str:
    shown: list[str] = []
    missing = 0
    reason = f"{OFF_TOPIC}, or {TOO_LONG}" if too_long else OFF_TOPIC

    def gap() -> None:
        if missing:
            shown.append(f"[output filtered: {missing} line{'s' if missing > 1 else ''} {reason}]")

    for at, line in enumerate(lines):
        if at in kept:
            gap()
            missing = 0
            shown.append(line)
        else:
            missing += bool(line.strip())
    gap()
    return "\n".join(shown)
