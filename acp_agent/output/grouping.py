"""Groups diagnostics by rule, for `group_by_rule`: the first of each in full, only the places of the others.

Supports rustc and clippy, ruff (full and concise) and flake8. Any other linter with one line per finding is described
by a pattern with a group `rule` (and `location`, else everything before the rule).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from acp_agent.linear import Match, Pattern, compiled
from acp_agent.output.cut import NOTHING, Cut, Omission
from acp_agent.output.error_lines import error_lines, looks_like_error
from acp_agent.output.passing import CARGO_PROGRESS

HEAD = compiled(
    r"^(?P<level>warning|error)(?:\[(?P<code>\w+)\])?: (?P<message>.*)$"
    r"|^(?P<rule>[A-Z]{1,5}\d{2,5}) (?:\[\*\] )?(?P<found>.+)$"
)
LINE = compiled(r"^(?P<location>[^\s:]+:\d+(?::\d+)?): (?P<rule>[A-Z]{1,5}\d{2,5}) ")
LOCATION = compiled(r"^\s*--> (\S+)")
LINT = compiled(
    r"rust-clippy/\S*#(\w+)|#\[(?:warn|deny|forbid)\((?:clippy::)?([\w:]+)\)\]|`-[DWF] (?:clippy::)?([\w-]+)`"
)
SUMMARY = compiled(
    r"(?: generated \d+ | emitted|aborting due to |could not compile|build failed"
    r"|unused manifest key|some issues detected)"
)
QUOTED = compiled(r"`[^`]*`")
PROGRESS = Omission("line of progress", "lines of progress")
BLANK = Omission("blank line", "blank lines")


class _Block(Struct):
    rule: str
    head: str
    location: str
    places: range


class _Group(Struct):
    first: _Block
    others: list[_Block] = []


def group_by_rule_cut(lines: Sequence[str], pattern: str | None) -> Cut:
    """Returns the lines that may be removed. Errors are grouped only if they say exactly the same: they are never lost.
    Fallback if no diagnostic was found."""
    blocks = _described(lines, compiled(pattern)) if pattern else _known(lines)
    dropped: dict[int, Omission] = {}
    if pattern is None:
        dropped = {place: PROGRESS for place, line in enumerate(lines) if CARGO_PROGRESS.search(line) is not None}
    if not blocks:
        return Cut("Full" if dropped else "Fallback", dropped)
    groups: dict[tuple[str, str], _Group] = {}
    for block in blocks:
        if block.head.startswith("error["):
            continue  # The compiler's own errors differ from each other.
        key = (block.rule, block.head if looks_like_error(block.head) else "")
        if key not in groups:
            groups[key] = _Group(block)
        elif not any(True for _ in error_lines(lines, block.places[1:])):
            groups[key].others.append(block)
    stands_for: dict[int, int] = {}
    added: dict[int, str] = {}
    for group in groups.values():
        if not group.others:
            continue
        for block in group.others:
            dropped.update(dict.fromkeys(block.places, NOTHING))
            stands_for[block.places[0]] = group.first.places[0]
        places = ", ".join(_where(block, group.first) for block in group.others)
        added[_last_told(lines, group.first)] = (
            f"[... {len(group.others)} more of {group.first.rule} left out, at {places} ...]"
        )
    return Cut("Full", dropped, stands_for, added=added)


def _where(block: _Block, first: _Block) -> str:
    """The place, and the message if it differs from the first one's."""
    return block.location if block.head == first.head else f"{block.location} ({block.head})"


def _last_told(lines: Sequence[str], block: _Block) -> int:
    """The last non-blank line of a block."""
    return next((place for place in reversed(block.places) if lines[place].strip()), block.places[0])


def _known(lines: Sequence[str]) -> list[_Block]:
    blocks: list[_Block] = []
    names: dict[str, str] = {}
    """Returns the lint of a message: rustc names it only in the first warning."""
    place = 0
    while place < len(lines):
        if (single := LINE.search(lines[place])) is not None:
            blocks.append(_single(lines[place], single, place))
        elif (head := HEAD.search(lines[place])) is not None and SUMMARY.search(lines[place]) is None:
            end = _end(lines, place)
            location = next((found.group(1) for line in lines[place + 1 : end] if (found := LOCATION.search(line))), "")
            if location:
                blocks.append(
                    _Block(_rule(lines, head, range(place, end), names), _said(head), location, range(place, end))
                )
            place = end
            continue
        place += 1
    return blocks


def _end(lines: Sequence[str], start: int) -> int:
    """The end of the block that begins at `start`, including the blank line that closes it."""
    place = start + 1
    while place < len(lines) and lines[place].strip() and HEAD.search(lines[place]) is None:
        place += 1
    return place + 1 if place < len(lines) and not lines[place].strip() else place


def _said(head: Match) -> str:
    level = head.group("level")
    code = f"[{head.group('code')}]" if head.group("code") else ""
    return f"{level}{code}: {head.group('message')}" if level else head.group("found")


def _rule(lines: Sequence[str], head: Match, places: range, names: dict[str, str]) -> str:
    named = head.group("code") or head.group("rule")
    if named:
        return named
    message = QUOTED.sub("`_`", head.group("message"))
    for place in places:
        if (lint := LINT.search(lines[place])) is not None:
            names[message] = lint.group(1) or lint.group(2) or lint.group(3)
            break
    return names.get(message, message)


def _single(line: str, match: Match, place: int) -> _Block:
    return _Block(match.group("rule"), line[match.end() :].strip(), match.group("location"), range(place, place + 1))


def _described(lines: Sequence[str], pattern: Pattern) -> list[_Block]:
    blocks = []
    for place, line in enumerate(lines):
        if (match := pattern.search(line)) is None:
            continue
        named = match.groupdict()
        rule = named.get("rule") or match.group() or pattern.pattern
        location = named.get("location") or line.partition(rule)[0].strip(" :[(") or line
        blocks.append(_Block(rule, location, location, range(place, place + 1)))
    return blocks
