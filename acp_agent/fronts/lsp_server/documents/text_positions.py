"""Texts and LSP positions in them: lines as LSP counts them, characters in the negotiated unit.

A line ends with `\\n`, `\\r\\n` or `\\r` and nothing else (a form feed or U+2028 is part of a line). A position counts
UTF-8 bytes, UTF-16 code units or code points; one past the end of its line means the end of the line, one past the
last line means the end of the text, and one inside a character means that character's beginning.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Literal

from lsprotocol.types import Position, Range

Encoding = Literal["utf-8", "utf-16", "utf-32"]

ENCODINGS: dict[str, Encoding] = {"utf-8": "utf-8", "utf-16": "utf-16", "utf-32": "utf-32"}
DEFAULT: Encoding = "utf-16"
LINE = re.compile(r"[^\r\n]*+(?:\r\n|\r|\n)|[^\r\n]++")


def choose_encoding(offered: Sequence[str] | None) -> Encoding:
    """The first one offered by the client that we support; else UTF-16, which every client supports."""
    return next((ENCODINGS[name] for name in offered or () if name in ENCODINGS), DEFAULT)


def split_lines(text: str) -> list[str]:
    """The lines with their ends. No line follows a trailing line end."""
    return LINE.findall(text)


class Text:
    """An immutable text whose positions are counted in `encoding`."""

    def __init__(self, text: str, encoding: Encoding = DEFAULT) -> None:
        self.text = text
        self.encoding = encoding

    @cached_property
    def lines(self) -> list[str]:
        return split_lines(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        """The offset of each line, followed by the end of the text."""
        return list(accumulate((len(line) for line in self.lines), initial=0))

    def line(self, number: int) -> str:
        """A line without its end, counted from 0; empty if it does not exist."""
        return self.lines[number].rstrip("\r\n") if 0 <= number < len(self.lines) else ""

    def offset(self, position: Position) -> int:
        """Code points before `position`."""
        if position.line >= len(self.lines):
            return len(self.text)
        line = self.line(position.line)
        return self._starts[position.line] + _code_points(line, position.character, self.encoding)

    def position(self, offset: int) -> Position:
        """The position after `offset` code points. One between `\\r` and `\\n` is the end of that line."""
        offset = max(0, min(offset, len(self.text)))
        number = bisect_right(self._starts, offset) - 1
        if offset == len(self.text) and number == len(self.lines) and number and not self._ends_a_line(number - 1):
            number -= 1
        rest = self.line(number)[: offset - self._starts[number]]
        return Position(line=number, character=_units(rest, self.encoding))

    def line_start(self, number: int) -> Position:
        """The beginning of a line; after the last one, the end of the text."""
        return Position(line=number, character=0) if number < len(self.lines) else self.position(len(self.text))

    def line_end(self, number: int) -> Position:
        """The end of a line, before its line end."""
        return Position(line=number, character=_units(self.line(number), self.encoding))

    def slice(self, where: Range) -> str:
        start, end = self.offset(where.start), self.offset(where.end)
        return self.text[min(start, end) : max(start, end)]

    def changed(self, where: Range, new: str) -> Text:
        start, end = self.offset(where.start), self.offset(where.end)
        return Text(self.text[: min(start, end)] + new + self.text[max(start, end) :], self.encoding)

    def _ends_a_line(self, number: int) -> bool:
        return self.lines[number][-1] in "\r\n"


def _units(text: str, encoding: Encoding) -> int:
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(char > "\uffff" for char in text)


def _code_points(line: str, units: int, encoding: Encoding) -> int:
    if encoding == "utf-32" or line.isascii():
        return max(0, min(units, len(line)))
    used = 0
    for index, char in enumerate(line):
        used += _units(char, encoding)
        if used > units:
            return index
    return len(line)
