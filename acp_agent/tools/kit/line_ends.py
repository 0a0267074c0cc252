"""Line ends of a text, which may be mixed: a line feed, or the two characters of Windows. Nothing else ends a line."""

from __future__ import annotations

from itertools import takewhile

from acp_agent.lazy import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MATCHER = "difflib:SequenceMatcher"
MOST_COMPARED = 2_000
"""Changed lines whose counterparts are looked for; in a longer change they are those at the same place."""


def plain(text: str) -> str:
    """The text with line feeds alone."""
    return text.replace("\r\n", "\n")


def with_ends(text: str, like: str) -> str:
    """`text` with each line's end as in `like`; a new line has that of the line before it."""
    text, windows = plain(text), like.count("\r\n")
    if windows == 0 or windows == like.count("\n"):
        return text.replace("\n", "\r\n") if windows else text
    *old, _ = like.split("\n")
    *new, last = text.split("\n")
    ends: list[str | None] = [None] * len(new)
    for at, was in _counterparts([line.removesuffix("\r") for line in old], new):
        ends[at] = "\r\n" if old[was].endswith("\r") else "\n"
    end = next(filter(None, ends), "\r\n" if old[0].endswith("\r") else "\n")
    made: list[str] = []
    for line, own in zip(new, ends, strict=True):
        end = own or end
        made.append(line + end)
    return "".join([*made, last])


def _counterparts(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """The lines of `new` that were in `old`, changed or not, each with its place there."""
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))))
    rest = zip(reversed(old[same:]), reversed(new[same:]), strict=False)
    below = len(list(takewhile(lambda pair: pair[0] == pair[1], rest)))
    found = [(at, at) for at in range(same)]
    found += [(len(new) - at, len(old) - at) for at in range(1, below + 1)]
    changed, made = old[same : len(old) - below], new[same : len(new) - below]
    blocks = [(0, 0, min(len(changed), len(made)))]
    if max(len(changed), len(made)) <= MOST_COMPARED:
        codes = load(MATCHER)(None, changed, made, autojunk=False).get_opcodes()
        blocks = [(begin, start, min(end - begin, stop - start)) for _, begin, end, start, stop in codes]
    return found + [(same + start + at, same + begin + at) for begin, start, size in blocks for at in range(size)]
