"""Output kept within a bound: the beginning and the end, with a mark where something was left out."""

from __future__ import annotations

import codecs
from collections import deque

__all__ = ["BoundedText", "Utf8Stream"]


class BoundedText:
    """Text of which at most about `limit` characters are kept: the first half and the last half."""

    def __init__(self, limit: int) -> None:
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
        return "".join(self._head) + f"\n[... {omitted} characters omitted ...]\n" + tail[extra:]


class Utf8Stream:
    """Bytes in any cuts -> text; what is no UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def decode(self, data: bytes, *, final: bool = False) -> str:
        return self._decoder.decode(data, final)
