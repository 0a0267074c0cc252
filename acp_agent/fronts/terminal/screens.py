"""What a chat needs of a terminal: lines into the scrollback, a part that changes, events, and questions."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import Struct

DIM, RED, GREEN, YELLOW, CYAN, BOLD, RESET = (
    "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[1m", "\x1b[0m",
)  # fmt: skip
MARKS = {
    "call": ("●", "*"), "ok": ("✓", "+"), "bad": ("✗", "x"), "bar": ("│", "|"), "more": ("…", "..."), "dot": ("·", "-"),
    "into": ("↳", "->"), "row": ("❯", ">"), "think": ("∴", "~"), "up": ("↑", "up"), "todo": ("☐", "[ ]"),
    "doing": ("◐", "[~]"), "done": ("☑", "[x]"),
}  # fmt: skip
UNFOLD = "/unfold"
"""Where there are lines only, and no keys."""
COLOUR = re.compile("\x1b\\[[0-9;]*m")
FRAMES = ("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\")


def wrapped(text: str, width: int, hang: str = "") -> str:
    """Text without colours, its long lines broken between words; what they are indented by stays, with `hang`."""
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(line, max(width, 20), subsequent_indent=indent + hang, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def joined(parts: Sequence[str], between: str, width: int) -> list[str]:
    """The parts, which may have colours, in lines of at most `width`, none of them broken."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]}{between}{part}"
        if len(COLOUR.sub("", longer)) > width:
            lines.append(part)
        else:
            lines[-1] = longer
    return lines


class TerminalStyle(Struct, frozen=True):
    """What the terminal shows."""

    colour: bool = True
    utf8: bool = True
    opens: str = "Ctrl-O"
    """What opens what was folded."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> TerminalStyle:
        named = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "UTF-8"
        dumb = environ.get("TERM", "dumb") in ("dumb", "unknown")
        return cls(not environ.get("NO_COLOR") and not dumb, "utf" in named.lower(), UNFOLD if dumb else "Ctrl-O")

    def paint(self, colour: str, text: str) -> str:
        return f"{colour}{text}{RESET}" if self.colour and text else text

    def mark(self, name: str) -> str:
        return MARKS[name][0 if self.utf8 else 1]

    def frame(self, number: int) -> str:
        frames = FRAMES[0 if self.utf8 else 1]
        return frames[number % len(frames)]


EventKind = Literal["submit", "queue", "interrupt", "cancel", "mode", "unfold", "leave"]


class ScreenEvent(Struct, frozen=True):
    kind: EventKind
    text: str = ""


class PickRow(Struct, frozen=True):
    """One answer of a question. `key`: a letter that chooses it. `words`: it asks for words. `lasts`: it holds for more
    than this question, so that a key only moves to it and Enter chooses it."""

    id: str
    name: str
    key: str = ""
    words: bool = False
    lasts: bool = False


class Pick(Struct, frozen=True):
    """A question. Without rows it is answered in words. `start`: the row that Enter chooses at first."""

    title: str
    rows: Sequence[PickRow] = ()
    start: int = 0
    several: bool = False
    words: str = "In your words"
    """What asks for words."""


class Picked(Struct, frozen=True):
    """The answer: the ids of the rows; none if it was dismissed."""

    ids: tuple[str, ...] = ()
    words: str = ""


class CommandRow(Struct, frozen=True):
    """A slash command, as it is completed."""

    name: str
    description: str


class ChatJob(Struct, frozen=True):
    """What the chat begins with. `cwd` is absolute; `environ` is the agent's complete environment."""

    cwd: Path
    environ: Mapping[str, str]
    prompt: str = ""
    mode: str | None = None
    model: str | None = None
    session: str | None = None
    newest: bool = False
    """Whether to go on with the newest session of `cwd`."""


class ChatScreen(Protocol):
    """What is printed stays as it is, in the scrollback; what is drawn is below it."""

    style: TerminalStyle
    events: MemoryObjectReceiveStream[ScreenEvent]

    @property
    def commands(self) -> Sequence[CommandRow]: ...

    def offer(self, commands: Sequence[CommandRow]) -> None:
        """The commands that are there from now on."""
        ...

    @property
    def size(self) -> os.terminal_size: ...

    def use_vi_keys(self) -> None: ...

    def print(self, text: str) -> None:
        """Adds lines to the scrollback, at the next `paint`."""
        ...

    def paint(self, live: str, status: str) -> None:
        """Prints what is new and draws the part that changes, with the status line."""
        ...

    def give_back(self, text: str) -> None:
        """Puts words into the input again, before what stands there."""
        ...

    def clear(self) -> bool:
        """Empties the input; whether anything stood there."""
        ...

    async def ask(self, pick: Pick) -> Picked: ...

    def signal(self, sequence: str) -> None:
        """Sends the terminal what makes it ring or notify."""
        ...

    async def run(self) -> None:
        """Until `leave`."""
        ...

    def leave(self) -> None: ...
