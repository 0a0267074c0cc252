"""What a terminal shows: a VT100 emulator (`pyte`) with scrolled-off lines and the alternate screen.

The emulator is slow (some hundred kB a second), so output is fed to it only when somebody looks; of a flood only the
end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any
from unicodedata import combining

import pyte
from wcwidth import wcwidth

MOST_FED = 65_536
"""Bytes of output between two looks that are drawn; those before them are left out."""
DECCKM = 1 << 5
"""The mode "cursor keys", as the emulator keeps private modes."""
ALTERNATE = frozenset({47, 1047, 1049})
"""Private modes that switch to the alternate screen."""
SLOW = frozenset({3, 5})
"""Private modes for which the emulator changes every cell: another width, colours the other way round."""
MOST_IN_CELL = 8
"""Characters: one and the marks on it."""
STUMBLES = (TypeError, ValueError, LookupError, AttributeError, NameError)
"""The emulator's own errors at some sequences."""


class _Screen(pyte.Screen):
    def __init__(self, columns: int, rows: int, history: int, answer: Callable[[bytes], None]) -> None:
        self.above: deque[str] = deque(maxlen=history)
        """Lines that have scrolled off the top."""
        self.gone = 0
        """Lines that are no longer even there."""
        self.other: tuple[dict[int, Any], Any] | None = None
        """Buffer and cursor of the main screen, while the alternate one is shown."""
        self._answer = answer
        super().__init__(columns, rows)

    def index(self) -> None:
        top, bottom = self.margins or (0, self.lines - 1)
        if self.cursor.y == bottom and top == 0 and self.other is None:
            self.gone += len(self.above) == self.above.maxlen
            self.above.append(self.line(0))
        super().index()

    def draw(self, data: str) -> None:
        """Without characters that have no width, at which the emulator drops the rest, and marks without end."""
        if not data.isascii():
            x, y = self.cursor.x, self.cursor.y
            before = self.buffer[y][x - 1] if x else self.buffer[y - 1][self.columns - 1] if y else None
            room, kept = MOST_IN_CELL - len(before.data if before else ""), []
            for char in data:
                wide = wcwidth(char) > 0
                room = MOST_IN_CELL - 1 if wide else room - 1
                if wide or (combining(char) and room >= 0):
                    kept.append(char)
            data = "".join(kept)
        super().draw(data)

    def alignment_display(self) -> None:
        """A test picture, which nobody needs: every cell of it costs."""
        self.erase_in_display(2)

    def erase_in_display(self, how: int = 0, *more: Any, **ways: Any) -> None:
        if how in (2, 3):
            self.buffer.clear()
        elif how in (0, 1):  # The emulator knows no others and trips over them.
            super().erase_in_display(how, *more, **ways)

    def reset(self) -> None:
        self.other = None
        super().reset()

    def set_mode(self, *modes: int, **how: bool) -> None:
        super().set_mode(*_quick(modes, how), **how)
        if how.get("private") and ALTERNATE.intersection(modes) and self.other is None:
            self.other = dict(self.buffer), copy(self.cursor)
            self.buffer.clear()

    def reset_mode(self, *modes: int, **how: bool) -> None:
        super().reset_mode(*_quick(modes, how), **how)
        if how.get("private") and ALTERNATE.intersection(modes) and self.other is not None:
            rows, cursor = self.other
            self.other = None
            self.buffer.clear()
            self.buffer.update(rows)
            self.cursor = cursor

    def select_graphic_rendition(self, *attributes: int, **how: bool) -> None:
        if not how.get("private"):  # Another sequence of xterm's, about its keyboard.
            super().select_graphic_rendition(*attributes)

    def write_process_input(self, data: str) -> None:
        self._answer(data.encode())

    def line(self, row: int) -> str:
        if not (cells := self.buffer.get(row)):
            return " " * self.columns
        return "".join(cells[column].data for column in range(self.columns))


def _quick(modes: Iterable[int], how: dict[str, bool]) -> list[int]:
    return [mode for mode in modes if not (how.get("private") and mode in SLOW)]


class Screen:
    """`answer`: sends a program what it asks its terminal for (the cursor's position)."""

    def __init__(self, columns: int, rows: int, history: int, answer: Callable[[bytes], None]) -> None:
        self._screen = _Screen(columns, rows, history, answer)
        self._stream = pyte.ByteStream(self._screen)
        self._waiting = bytearray()
        self.left_out = 0
        """Bytes of output that were never drawn."""

    def add(self, data: bytes) -> None:
        """Takes output; cheap."""
        self._waiting += data
        if len(self._waiting) > 2 * MOST_FED:
            self._cut()

    def _cut(self) -> None:
        over = len(self._waiting) - MOST_FED
        if over > 0:
            at = self._waiting.find(b"\n", over) + 1 or over
            self.left_out += at
            del self._waiting[:at]

    def _draw(self) -> None:
        if self._waiting:
            self._cut()
            data, self._waiting = bytes(self._waiting), bytearray()
            for line in data.splitlines(keepends=True):
                try:
                    self._stream.feed(line)
                except STUMBLES:
                    self._stream = pyte.ByteStream(self._screen)

    @property
    def alternate(self) -> bool:
        """Whether the alternate screen is shown: that of a full-screen program."""
        self._draw()
        return self._screen.other is not None

    @property
    def application_keys(self) -> bool:
        self._draw()
        return DECCKM in self._screen.mode

    @property
    def lost_lines(self) -> int:
        """Lines that have scrolled off beyond the history."""
        self._draw()
        return self._screen.gone

    def rows(self, *, join: bool = False, keep_spaces: bool = False) -> tuple[list[str], int]:
        """As `Terminal.rows`."""
        self._draw()
        screen = self._screen
        rows = list(screen.above)
        above = len(rows)
        rows += (screen.line(row) for row in range(screen.lines))
        while rows and not rows[-1].strip():
            rows.pop()
        above = min(above, len(rows))
        if join:
            joined = _joined(rows)
            above = len(_joined(rows[:above]))
            rows = joined
        return (rows if keep_spaces else [row.rstrip() for row in rows]), above

    def text(self) -> str:
        rows, _ = self.rows(join=True)
        return "".join(f"{row}\n" for row in rows)


def _joined(rows: Iterable[str]) -> list[str]:
    """A row with something in its last column goes on in the next; each has as many columns as the screen."""
    found: list[str] = []
    goes_on = False
    for row in rows:
        if goes_on:
            found[-1] += row
        else:
            found.append(row)
        goes_on = not row[-1:].isspace()
    return found
