"""Output kept within a bound: the beginning and the end, with a mark where something was left out.

A cut in the middle of a line would leave half a word, or half a credential that nobody recognises any more: what is
kept of a command ends and begins with whole lines, as long as lines have an ordinary length.
"""

from __future__ import annotations

import codecs
from collections import deque

__all__ = ["LONGEST_CUT_LINE", "BoundedText", "Utf8Stream", "without_first_part"]

LONGEST_CUT_LINE = 8_192
"""Characters of a cut line that are left out with it; of a longer one so many are."""


class BoundedText:
    """Text of which at most about `limit` characters are kept: the first half and the last half.

    `whole_lines`: the lines that are cut are left out, too.
    """

    def __init__(self, limit: int, *, whole_lines: bool = False) -> None:
        self._whole_lines = whole_lines
        self._half = max(1, limit // 2)
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self.omitted = 0
        """Characters left out."""

    def add(self, text: str) -> None:
        room = self._half - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += min(room, len(text))
            text = text[room:]
        if not text:
            return
        self._tail.append(text)
        self._tail_size += len(text)
        while self._tail_size - len(self._tail[0]) >= self._half:
            dropped = self._tail.popleft()
            self._tail_size -= len(dropped)
            self.omitted += len(dropped)

    @property
    def truncated(self) -> bool:
        return self.omitted > 0 or self._tail_size > self._half

    def text(self) -> str:
        """What was kept; the omission is marked in a line of its own."""
        tail = "".join(self._tail)
        extra = max(0, len(tail) - self._half)
        omitted = self.omitted + extra
        if not omitted:
            return "".join(self._head) + tail
        head, tail = "".join(self._head), tail[extra:]
        if self._whole_lines:
            kept_head, kept_tail = _without_last_part(head), without_first_part(tail)
            omitted += len(head) - len(kept_head) + len(tail) - len(kept_tail)
            head, tail = kept_head.removesuffix("\n"), kept_tail
        return f"{head}\n[... {omitted} characters omitted ...]\n{tail}"


def _without_last_part(text: str) -> str:
    """`text`, cut off somewhere, without its broken last line."""
    at = text.rfind("\n", max(0, len(text) - LONGEST_CUT_LINE))
    return text[: at + 1] if at >= 0 else text[: max(0, len(text) - LONGEST_CUT_LINE)]


def without_first_part(text: str) -> str:
    """`text`, begun somewhere, without its broken first line."""
    at = text.find("\n", 0, LONGEST_CUT_LINE)
    return text[at + 1 :] if at >= 0 else text[LONGEST_CUT_LINE:]


class Utf8Stream:
    """Bytes in any cuts -> text; what is no UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def decode(self, data: bytes, *, final: bool = False) -> str:
        return self._decoder.decode(data, final)
