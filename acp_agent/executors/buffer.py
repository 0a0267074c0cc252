"""Bounded output: the beginning and the end, with a mark where something was left out.

A cut within a line would leave half a word, or half a credential that is no longer recognised: kept output ends and
begins with whole lines, unless lines are unusually long.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable

from acp_agent.executors.base import OutputChunk, StreamName

LONGEST_CUT_LINE = 8_192
"""Maximum characters of a cut line that are dropped."""


class BoundedText:
    """Text of which at most about `limit` characters are kept, half from the start and half from the end.

    `whole_lines`: cut lines are dropped, too.
    """

    def __init__(self, limit: int, *, whole_lines: bool = False) -> None:
        self._whole_lines = whole_lines
        self._half = max(1, limit // 2)
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._whole: str | None = None
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
    def empty(self) -> bool:
        return not self._head_size

    @property
    def lost(self) -> int:
        """Characters that are not kept; not counting the lines they have cut."""
        return self.omitted + max(0, self._tail_size - self._half)

    @property
    def truncated(self) -> bool:
        return self.lost > 0

    def copy(self) -> BoundedText:
        """The same text, to which other things may be added."""
        other = BoundedText(2 * self._half, whole_lines=self._whole_lines)
        other._head, other._head_size = [*self._head], self._head_size
        other._tail, other._tail_size, other.omitted = deque(self._tail), self._tail_size, self.omitted
        return other

    def close(self) -> None:
        """Nothing more is added: joins and frees the pieces."""
        if self._whole is None:
            self._whole = self.text()
            self._head, self._tail = [], deque()

    def text(self) -> str:
        """The text that was kept; the omission is marked in a line of its own. The same object each time, once
        closed."""
        if self._whole is not None:
            return self._whole
        extra = max(0, self._tail_size - self._half)
        omitted = self.omitted + extra
        if not omitted:
            return "".join([*self._head, *self._tail])
        head, tail = deque(self._head), deque(self._tail)
        tail[0] = tail[0][extra:]  # What is too much is never more than the first piece.
        if self._whole_lines:
            last, first = "".join(reversed(_taken(head.pop, head))), "".join(_taken(tail.popleft, tail))
            kept_last, kept_first = _without_last_part(last), without_first_part(first)
            omitted += len(last) - len(kept_last) + len(first) - len(kept_first)
            head.append(kept_last.removesuffix("\n"))
            tail.appendleft(kept_first)
        return "".join([*head, f"\n[... {omitted} characters omitted ...]\n", *tail])


def _taken(take: Callable[[], str], pieces: deque[str]) -> list[str]:
    """Takes pieces away, from one end: those in which the text may have to be cut."""
    taken: list[str] = []
    size = 0
    while pieces and size <= LONGEST_CUT_LINE:
        taken.append(take())
        size += len(taken[-1])
    return taken


def _without_last_part(text: str) -> str:
    """`text`, cut off somewhere, without its incomplete last line."""
    at = text.rfind("\n", max(0, len(text) - LONGEST_CUT_LINE))
    return text[: at + 1] if at >= 0 else text[: max(0, len(text) - LONGEST_CUT_LINE)]


def without_first_part(text: str) -> str:
    """`text`, cut at the start, without its incomplete first line."""
    at = text.find("\n", 0, LONGEST_CUT_LINE)
    return text[at + 1 :] if at >= 0 else text[LONGEST_CUT_LINE:]


class Utf8Stream:
    """Decodes bytes in arbitrary chunks; invalid UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def decode(self, data: bytes, *, final: bool = False) -> str:
        return self._decoder.decode(data, final)


class KeptOutput:
    """What a command prints, as far as it is kept: at most about `limit` characters of each stream."""

    def __init__(self, limit: int) -> None:
        # The pieces are the same strings in all of them.
        self._buffers: dict[StreamName, BoundedText] = {
            "stdout": BoundedText(limit, whole_lines=True),
            "stderr": BoundedText(limit, whole_lines=True),
        }
        self._both: BoundedText | None = None
        """Created when the second stream prints: most commands use only one, and then it is that one."""
        self._ready: list[OutputChunk] = []

    @property
    def stdout(self) -> str:
        return self._buffers["stdout"].text()

    @property
    def stderr(self) -> str:
        return self._buffers["stderr"].text()

    @property
    def combined(self) -> str:
        if self._both is not None:
            return self._both.text()
        return self.stdout or self.stderr

    @property
    def truncated(self) -> bool:
        return any(buffer.truncated for buffer in self._buffers.values())

    @property
    def lost(self) -> str:
        out, err = self._buffers["stdout"], self._buffers["stderr"]
        lost = (self._both or (err if out.empty else out)).lost
        return f"about {lost} characters in the middle" if lost else ""

    def _add(self, stream: StreamName, text: str) -> None:
        if text:
            other = self._buffers["stderr" if stream == "stdout" else "stdout"]
            if self._both is None and not other.empty:
                self._both = other.copy()
            if self._both is not None:
                self._both.add(text)
            self._buffers[stream].add(text)
            self._ready.append(OutputChunk(stream, text))

    def _no_more(self) -> None:
        for buffer in (*self._buffers.values(), self._both):
            if buffer is not None:
                buffer.close()
