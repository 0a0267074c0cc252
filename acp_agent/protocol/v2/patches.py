"""A changed file as a `git_patch` of ACP v2: absolute paths, without `a/` and `b/`.

Patches are made between two messages of the connection, so the time for one is bounded: lines that both texts have once
are found first, in linear time; only what stands between them is compared, and no more than `MOST_PAIRS` of lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher

MOST_CHARS = 200_000
"""Of both texts of a file together, above which no patch is made."""
MOST_PAIRS = 100_000
"""Of lines that are compared for one patch; the rest of it is correct, but not short."""
CONTEXT = 3
ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


def patch(path: str, old: str | None, new: str | None) -> str:
    """`old`: None for a new file; `new`: None for a deleted one. Empty if no line changed, or if it would take too
    long."""
    if len(old or "") + len(new or "") > MOST_CHARS or (old == new):
        return ""
    name = quoted(path)
    lines = [f"diff --git {name} {name}\n"]
    if old is None:
        lines.append("new file mode 100644\n")
    elif new is None:
        lines.append("deleted file mode 100644\n")
    hunks = list(_hunks(_lines(old or ""), _lines(new or "")))
    end = "\t\n" if " " in path and not name.startswith('"') else "\n"
    lines.append("--- /dev/null\n" if old is None else f"--- {name}{end}")
    lines.append("+++ /dev/null\n" if new is None else f"+++ {name}{end}")
    return "".join([*lines, *hunks]) if hunks else ""


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for group in _Comparison(old, new).get_grouped_opcodes(CONTEXT):
        (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
        yield f"@@ -{_range(a1, a2)} +{_range(b1, b2)} @@\n"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (_line(" ", line) for line in old[i1:i2])
            else:
                yield from (_line("-", line) for line in old[i1:i2])
                yield from (_line("+", line) for line in new[j1:j2])


class _Comparison(SequenceMatcher[str]):
    """With blocks that are found in bounded time."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__()
        self._old, self._new = old, new

    def get_matching_blocks(self) -> list[Match]:
        old, new, pairs = self._old, self._new, MOST_PAIRS
        blocks: list[Match] = []
        i = j = 0
        for to_i, to_j in [*_anchors(old, new), (len(old), len(new))]:
            while i < to_i and j < to_j and old[i] == new[j]:
                blocks.append(Match(i, j, 1))
                i, j = i + 1, j + 1
            end = to_i
            while end > i and to_j - (to_i - end) > j and old[end - 1] == new[to_j - (to_i - end) - 1]:
                end -= 1
            same = to_i - end
            if 0 < (cost := (end - i) * (to_j - same - j)) <= pairs:
                pairs -= cost
                inner = SequenceMatcher(None, old[i:end], new[j : to_j - same])
                blocks += [Match(i + a, j + b, size) for a, b, size in inner.get_matching_blocks()]
            blocks.append(Match(end, to_j - same, same))
            i, j = to_i, to_j
        return _joined([*blocks, Match(len(old), len(new), 0)])


def _anchors(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """The most places, in order in both, of lines that are in each of them once."""
    once = Counter(a)
    there = Counter(b)
    at = {line: index for index, line in enumerate(b)}
    pairs = [(i, at[line]) for i, line in enumerate(a) if once[line] == 1 and there[line] == 1]
    ends: list[int] = []
    """By length of a row: the place in `b` where the best one of this length ends."""
    last: list[int] = []
    before: list[int] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [index]
    found = []
    index = last[-1] if last else -1
    while index >= 0:
        found.append(pairs[index])
        index = before[index]
    return found[::-1]


def _joined(blocks: Sequence[Match]) -> list[Match]:
    """Without empty ones, but for the last, and without two where one says it."""
    found: list[Match] = []
    for block in blocks[:-1]:
        if found and (found[-1].a + found[-1].size, found[-1].b + found[-1].size) == (block.a, block.b):
            found[-1] = Match(found[-1].a, found[-1].b, found[-1].size + block.size)
        elif block.size:
            found.append(block)
    return [*found, blocks[-1]]


def _range(start: int, stop: int) -> str:
    """Of lines, from 1; an empty one names the line before it."""
    length = stop - start
    return str(start + 1) if length == 1 else f"{start + (length > 0)},{length}"


def _line(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """Only a line feed ends a line, as for git."""
    lines = text.split("\n")
    return [*(f"{line}\n" for line in lines[:-1]), *([lines[-1]] if lines[-1] else [])]


def quoted(path: str) -> str:
    """As git writes a path (`core.quotePath`): in quotes if it has control characters, quotes, backslashes, or bytes
    that are not ASCII."""
    data = path.encode("utf-8", "surrogateescape")
    if all(32 <= byte < 127 and byte not in (34, 92) for byte in data):
        return path
    return '"' + "".join(_escaped(byte) for byte in data) + '"'


def _escaped(byte: int) -> str:
    if byte in ESCAPES:
        return f"\\{ESCAPES[byte]}"
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
