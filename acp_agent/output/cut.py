"""A strategy's decision, and the only code that executes it.

A strategy returns positions, not text: which lines may be removed, and as what. `carried_out` keeps what must not be
removed: error lines, marks of earlier strategies, and lines shorter than their mark. So no strategy, built in or a
user's own, can lose a failure, and none makes an output longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from acp_agent.linear import compiled
from acp_agent.output.error_lines import error_lines, looks_like_error, unready_rows

Confidence = Literal["Full", "Partial", "Fallback"]
"""Full: understood. Partial: something useful may be lost. Fallback: not understood, nothing was changed."""
ORDER: tuple[Confidence, ...] = ("Full", "Partial", "Fallback")

MARK = compiled(r"^\[\.\.\. .* left out.* \.\.\.\]$")
LAST_LINES = 40
"""Last lines of a failed command that are always kept if no error was found or the strategy does not know the format:
the cause may be in unknown words."""
FOLLOWING = 2
"""Lines kept after each error of a failed command if the strategy does not know the format."""


class Omission(Struct, frozen=True, eq=False):
    """Why lines are left out: the text of their mark. One object means one mark (or one per run)."""

    one: str
    many: str
    each_run: bool = False
    """A mark for each place where lines are missing. Otherwise one mark at the first place counts all."""

    def mark(self, count: int) -> str:
        return f"[... {count} {self.one if count == 1 else self.many} left out ...]"


NOTHING = Omission("", "")
"""For lines whose content another line already reports (`(x12)`, a list of places)."""


class Cut(Struct, frozen=True):
    """A decision about a list of lines, by their indices."""

    confidence: Confidence
    dropped: Mapping[int, Omission] = {}
    stands_for: Mapping[int, int] = {}
    """Dropped line -> the kept line that says the same, and how often."""
    changed: Mapping[int, str] = {}
    """Kept lines that are rewritten."""
    added: Mapping[int, str] = {}
    """The strategy's own marks, each placed after the kept line with that index."""
    quoted: frozenset[int] = frozenset()
    """Lines that are certainly quoted contents (of a diff), not a report: they may mention errors."""
    same: Callable[[str], str] = str.strip
    """Lines with the same key say the same."""
    knows_format: bool = True


def worst(confidences: Iterable[Confidence]) -> Confidence | None:
    return max(confidences, key=ORDER.index, default=None)


def carried_out(lines: Sequence[str], cut: Cut, *, failed: bool) -> list[str]:
    """The lines that stay, in order, with marks for all that were removed. Not empty unless `lines` is, never more
    characters than `lines`, and with every line of it that looks like an error.
    """
    if not cut.dropped and not cut.changed:
        return list(lines)
    dropped = dict(cut.dropped)
    for place in _protected(lines, cut, failed=failed):
        dropped.pop(place, None)
    _forget_small(lines, dropped)
    kept = list(_written(lines, cut, dropped))
    if not any(kept) or sum(map(len, kept)) + len(kept) > sum(map(len, lines)) + len(lines):
        return list(lines)
    return kept


def _protected(lines: Sequence[str], cut: Cut, *, failed: bool) -> set[int]:
    """Lines that must stay, unless a kept line reports them."""
    told = {place for place, teller in cut.stands_for.items() if _tells(lines, cut, teller, place)}
    errors = set(error_lines(lines) if failed else error_lines(lines, sorted(cut.dropped.keys() - cut.quoted)))
    kept = errors - cut.quoted
    kept.update(place for place in cut.dropped if lines[place].startswith("[... ") and MARK.search(lines[place]))
    kept.update(unready_rows(lines))
    if failed and (not errors or not cut.knows_format):
        kept.update(range(max(0, len(lines) - LAST_LINES), len(lines)))
    if failed and not cut.knows_format:
        kept.update(near for place in errors for near in range(place, min(place + FOLLOWING + 1, len(lines))))
    return kept - told


def _tells(lines: Sequence[str], cut: Cut, teller: int, place: int) -> bool:
    return teller not in cut.dropped and cut.same(lines[teller]) == cut.same(lines[place])


_Counted = tuple[Omission, int]
"""What one mark counts: an omission, and the start of the run if each run has its own mark (else -1)."""


def _marked(lines: Sequence[str], dropped: Mapping[int, Omission]) -> dict[_Counted, list[int]]:
    """The lines that each mark counts, in order. Blank lines need none."""
    marks: dict[_Counted, list[int]] = {}
    run, last = 0, -2
    for place in sorted(dropped):
        omission = dropped[place]
        if place != last + 1 or dropped[last] is not omission:
            run = place
        last = place
        if omission is not NOTHING and lines[place].strip():
            marks.setdefault((omission, run if omission.each_run else -1), []).append(place)
    return marks


def _forget_small(lines: Sequence[str], dropped: dict[int, Omission]) -> None:
    """Restores lines that are no longer than their mark."""
    for (omission, _), places in _marked(lines, dropped).items():
        if sum([len(lines[place]) + 1 for place in places]) <= len(omission.mark(len(places))) + 1:
            for place in places:
                del dropped[place]


def _written(lines: Sequence[str], cut: Cut, dropped: Mapping[int, Omission]) -> Iterator[str]:
    marks = {places[0]: key[0].mark(len(places)) for key, places in _marked(lines, dropped).items()}
    for place, line in enumerate(lines):
        if place in dropped:
            if place in marks:
                yield marks[place]
        else:
            changed = cut.changed.get(place, line)
            yield changed if line.strip() in changed or not looks_like_error(line) else line
            if place in cut.added:
                yield cut.added[place]
