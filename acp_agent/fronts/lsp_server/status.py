"""The state of the agent's tool calls and their locations: plain data, from which everything drawn is derived."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from lsprotocol.types import Range
from msgspec import UNSET, Struct

from acp_agent.fronts.lsp_server.documents.text_positions import split_lines
from acp_agent.legible import legible
from acp_agent.loop.prompts.review_findings import Finding
from acp_agent.schema import acp

MARKS = 200
"""Number of newest marks that are shown; a turn may have thousands of calls."""

MOST_FINDINGS = 1_000
TITLE_LENGTH = 120

LAST_LINE = 2**31 - 1
"""The greatest line number in LSP."""

Shown = Literal["waiting", "running", "done", "failed"]
SIGNS: dict[Shown, str] = {"waiting": "?", "running": "⏳", "done": "✓", "failed": "✗"}


def one_line(text: str, length: int = TITLE_LENGTH) -> str:
    """The model's `text` as one line that cannot pretend to be something else."""
    line = " ".join(legible(text).split())
    return line if len(line) <= length else line[: length - 1] + "…"


class Place(Struct):
    path: Path
    said: int
    """The line reported by the agent: repeating it does not undo the effect of edits."""
    line: int
    """Its current line, counted from 0."""


def findings_of(meta: object) -> list[Finding] | None:
    """`None` where nothing is said of any; what is not one is left out."""
    listed = meta.get("findings") if isinstance(meta, dict) else None
    if not isinstance(listed, list):
        return None
    found: list[Finding] = []
    for each in listed[:MOST_FINDINGS]:
        with suppress(msgspec.ValidationError):
            found.append(msgspec.convert(each, Finding))
    return [each for each in found if each.path.startswith("/") and each.line > 0]


class Call(Struct):
    """A tool call as last reported."""

    id: str
    title: str = "A tool"
    status: acp.ToolCallStatus = "pending"
    waiting: bool = False
    """Used to answer a question about it."""
    places: list[Place] = []
    content: Sequence[Any] = ()
    raw_input: Any = None
    raw_output: Any = None
    terminal_output: str = ""
    """Output of the terminals in its content, if the agent does not report it itself."""

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed")

    @property
    def shown(self) -> Shown:
        if self.status == "completed":
            return "done"
        if self.status == "failed":
            return "failed"
        return "waiting" if self.waiting else "running"

    @property
    def label(self) -> str:
        more = " (waits for your answer)" if self.shown == "waiting" else ""
        return f"{SIGNS[self.shown]} {one_line(self.title)}{more}"

    def take(self, update: acp.ToolCall | acp.ToolCallUpdate) -> None:
        if isinstance(update.title, str):
            self.title = update.title
        if isinstance(update.status, str):
            self.status = update.status
        if isinstance(update.content, list):
            self.content = update.content
        if isinstance(update.locations, list):
            self._take_places(update.locations)
        if update.raw_input is not UNSET:
            self.raw_input = update.raw_input
        if update.raw_output is not UNSET:
            self.raw_output = update.raw_output

    def _take_places(self, locations: Sequence[acp.ToolCallLocation]) -> None:
        before = {(place.path, place.said): place for place in self.places}
        self.places = []
        for location in locations:
            path = Path(location.path)
            if path.is_absolute():
                said = min(max(1, location.line or 1), LAST_LINE)
                self.places.append(before.get((path, said)) or Place(path, said, said - 1))


class Mark(Struct, frozen=True):
    """A call at a place in a file. `line` counts from 0."""

    line: int
    call_id: str
    label: str
    shown: Shown


class Board:
    """The calls of the running turn, or of the last one."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self.findings: list[Finding] = []
        """Of the last review."""
        self.changes = 0
        """Increased by each change, so that drawing can detect it."""

    def clear(self) -> None:
        self.calls.clear()
        self.changes += 1

    def take(self, update: acp.ToolCall | acp.ToolCallUpdate) -> Call:
        """Also accepts an unannounced call: some agents first mention a call when they ask about it."""
        call = self.calls.setdefault(update.tool_call_id, Call(update.tool_call_id))
        call.take(update)
        if (found := findings_of(update.meta)) is not None:
            self.findings, call.places = found, []
        self.changes += 1
        return call

    def forget_details(self, call_id: str) -> None:
        """Drops the details of an ended call; a turn may have thousands."""
        call = self.calls[call_id]
        call.content, call.raw_input, call.raw_output, call.terminal_output = (), None, None, ""

    def set_waiting(self, call_id: str, waiting: bool) -> None:
        if call_id in self.calls:
            self.calls[call_id].waiting = waiting
            self.changes += 1

    def end(self) -> list[Call]:
        """Ends the turn: calls not reported as ended are not running any more either. Returns those calls."""
        left = [call for call in self.calls.values() if not call.ended]
        for call in left:
            call.status = "failed"
            call.waiting = False
        self.changes += 1
        return left

    def running(self) -> Iterator[Call]:
        return (call for call in self.calls.values() if not call.ended)

    def title_for(self, path: Path) -> str:
        """Describes the change to a file, in the words of the newest call that names it."""
        for call in reversed(self.calls.values()):
            if not call.ended and any(place.path == path for place in call.places):
                return one_line(call.title)
        return f"Agent: edit {path.name}"

    def marks(self) -> dict[Path, list[Mark]]:
        """By file, in line order; at most one for each call and line, the newest `MARKS` of all."""
        found: dict[Path, list[Mark]] = {}
        count = 0
        for call in reversed(self.calls.values()):
            for place in call.places:
                marks = found.setdefault(place.path, [])
                if count < MARKS and not any(mark.line == place.line and mark.call_id == call.id for mark in marks):
                    marks.append(Mark(place.line, call.id, call.label, call.shown))
                    count += 1
            if count >= MARKS:
                break
        return {path: sorted(marks, key=lambda mark: mark.line) for path, marks in found.items() if marks}

    def edited(self, path: Path, where: Range, new: str, ours: bool) -> None:
        """Adjusts marks after an edit of a file: they move with their lines; on a line changed by the user, ended calls
        are no longer shown."""
        first, last = where.start.line, where.end.line
        grown = _line_ends(new) - (last - first)
        for call in self.calls.values():
            kept = []
            for place in call.places:
                if place.path == path and place.line >= first:
                    if place.line > last or (place.line == last and where.end.character == 0 and _leaves(where)):
                        place.line = min(place.line + grown, LAST_LINE)
                    elif call.ended and not ours:
                        self.changes += 1
                        continue
                    else:
                        place.line = min(place.line, last + grown)
                    self.changes += 1
                kept.append(place)
            call.places = kept


def _leaves(where: Range) -> bool:
    """Whether the line at whose beginning a change ends is itself unchanged."""
    return where.start.line < where.end.line or where.start.character == 0


def _line_ends(text: str) -> int:
    lines = split_lines(text)
    return len(lines) - (1 if lines and lines[-1][-1] not in "\r\n" else 0)
