"""Shows a turn outside an editor: as a live terminal, plain lines, or JSON."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TextIO

import anyio
import msgspec
from msgspec import UNSET, Struct

from acp_agent.output.sanitize import sanitize_output
from acp_agent.schema import acp

OUTPUT_LINES = 12
"""Lines of a tool's output that are shown."""
OMITTED = "characters omitted ...]"
"""Length of the mark where the middle of an output is missing."""

DIFF_LINES = 60
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1

DIM, RED, GREEN, CYAN, BOLD, RESET = "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[1m", "\x1b[0m"
CLEAR_LINE = "\r\x1b[2K"


CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
CONTROLS |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Replaces characters that could move the cursor, hide text or reverse it by their numbers: a title must not lie."""


def plain(text: str) -> str:
    """`text` from the model or a program, safe for a terminal."""
    return text.replace("\r\n", "\n").translate(CONTROLS)


class View(Protocol):
    def update(self, session_id: str, update: acp.SessionUpdate) -> None: ...

    def ask(self, question: str, diffs: Sequence[acp.Diff] = ()) -> None:
        """Asks a user, after showing the changes in question; the user types the answer."""
        ...

    def asked(self, request: acp.RequestPermissionRequest, answer: str) -> None:
        """Reports that a permission request was answered with the words `answer`."""
        ...

    def end(self, stop_reason: str, message: str = "", *, session_id: str = "") -> None: ...

    async def animate(self) -> None:
        """Runs until cancelled."""
        ...


class _Tool(Struct):
    """A tool call as last reported."""

    title: str
    started: float
    content: list[Any]
    raw_output: Any = None
    status: str = "pending"


class JsonView:
    """Writes every session update as one JSON line, then one with the stop reason."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def update(self, session_id: str, update: acp.SessionUpdate) -> None:
        self._line(acp.SessionNotification(session_id=session_id, update=update))

    def ask(self, question: str, diffs: Sequence[acp.Diff] = ()) -> None:
        self._line({"question": question, "diffs": diffs})

    def asked(self, request: acp.RequestPermissionRequest, answer: str) -> None:
        self._line({"permission": request, "answer": answer})

    def end(self, stop_reason: str, message: str = "", *, session_id: str = "") -> None:
        ending = {"stopReason": stop_reason} if not message else {"error": message}
        self._line({**ending, "sessionId": session_id} if session_id else ending)

    async def animate(self) -> None:
        return

    def _line(self, value: object) -> None:
        self._out.write(msgspec.json.encode(value).decode() + "\n")
        self._out.flush()


class PlainView:
    """Writes lines of text without control characters of our own: for pipes, files and logs."""

    def __init__(self, out: TextIO, *, colour: bool = False) -> None:
        self._out = out
        self._colour = colour
        self._tools: dict[str, _Tool] = {}
        self._at_line_start = True
        self._kind = ""

    # --- the contract -----------------------------------------------------------------------------------------

    def update(self, session_id: str, update: acp.SessionUpdate) -> None:
        match update:
            case acp.AgentMessageChunk(content=acp.TextContent(text=text)):
                self._say(plain(text), "message")
            case acp.AgentThoughtChunk(content=acp.TextContent(text=text)):
                self._say(self._paint(DIM, plain(text)), "thought")
            case acp.ToolCall():
                content = [] if update.content is UNSET else update.content
                tool = _Tool(plain(update.title), time.monotonic(), list(content))
                self._tools[update.tool_call_id] = tool
                self._began(tool)
            case acp.ToolCallProgress():
                self._progress(update)
            case acp.Plan(entries=entries):
                marks = {"pending": " ", "in_progress": "~", "completed": "x"}
                self._lines(f"  [{marks[entry.status]}] {plain(entry.content)}" for entry in entries)
            case _:
                pass

    def ask(self, question: str, diffs: Sequence[acp.Diff] = ()) -> None:
        self._lines([*(line for diff in diffs for line in self._diff(diff)), *question.split("\n")])

    def asked(self, request: acp.RequestPermissionRequest, answer: str) -> None:
        self._lines([self._paint(DIM, f"  permission: {answer}")])

    def end(self, stop_reason: str, message: str = "", *, session_id: str = "") -> None:
        if message:
            self._lines([self._paint(RED, f"error: {message}")])
        elif stop_reason != "end_turn":
            self._lines([self._paint(DIM, f"stopped: {stop_reason}")])
        else:
            self._lines([])

    async def animate(self) -> None:
        return

    # --- tool calls -------------------------------------------------------------------------------------------

    def _progress(self, update: acp.ToolCallProgress) -> None:
        tool = self._tools.get(update.tool_call_id)
        if tool is None:
            return
        if isinstance(update.title, str):
            tool.title = plain(update.title)
        if update.content is not UNSET and update.content is not None:
            tool.content = list(update.content)
        if update.raw_output is not UNSET:
            tool.raw_output = update.raw_output
        if isinstance(update.status, str):
            tool.status = update.status
            if update.status in ("completed", "failed"):
                del self._tools[update.tool_call_id]
                self._ended(tool)

    def _began(self, tool: _Tool) -> None:
        self._lines([f"* {tool.title}"])

    def _ended(self, tool: _Tool) -> None:
        ok = tool.status == "completed"
        mark = self._paint(GREEN, "+ done") if ok else self._paint(RED, "- failed")
        seconds = time.monotonic() - tool.started
        which = f": {tool.title}" if self._tools else ""  # Others are still running: say which one this is.
        self._lines([*self._details(tool), f"  {mark} ({seconds:.1f} s){which}"])

    def _details(self, tool: _Tool) -> Iterator[str]:
        for item in tool.content:
            match item:
                case acp.Diff():
                    yield from self._diff(item)
                case acp.Content(content=acp.TextContent(text=text)):
                    yield from self._some(text)
                case acp.Terminal() if isinstance(tool.raw_output, dict):
                    yield from self._some("".join(str(tool.raw_output.get(k) or "") for k in ("stdout", "stderr")))

    def _some(self, text: str) -> Iterator[str]:
        lines = plain(sanitize_output(text).rstrip()).split("\n")
        if len(lines) > OUTPUT_LINES:
            more = "more than " if OMITTED in text else ""
            yield self._paint(DIM, f"  | ... {more}{len(lines) - OUTPUT_LINES} lines before")
        for line in lines[-OUTPUT_LINES:]:
            yield self._paint(DIM, f"  | {line}")

    def _diff(self, diff: acp.Diff) -> Iterator[str]:
        yield f"  {plain(diff.path)}"
        old = plain(diff.old_text or "").splitlines()
        lines = list(difflib.unified_diff(old, plain(diff.new_text).splitlines(), lineterm="", n=1))[2:]
        for line in lines[:DIFF_LINES]:
            colour = {"+": GREEN, "-": RED, "@": CYAN}.get(line[:1], DIM)
            yield f"  {self._paint(colour, line)}"
        if len(lines) > DIFF_LINES:
            yield self._paint(DIM, f"  ... {len(lines) - DIFF_LINES} more lines")

    # --- writing ----------------------------------------------------------------------------------------------

    def _paint(self, colour: str, text: str) -> str:
        return f"{colour}{text}{RESET}" if self._colour else text

    def _say(self, text: str, kind: str) -> None:
        if kind != self._kind and not self._at_line_start:
            self._write("\n")
        self._kind = kind
        self._write(text)

    def _lines(self, lines: Iterator[str] | list[str]) -> None:
        if not self._at_line_start:
            self._write("\n")
        self._kind = ""
        for line in lines:
            self._write(line + "\n")

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
            self._at_line_start = text.removesuffix(RESET).endswith("\n")


class TerminalView(PlainView):
    """Adds colours, and a spinner line for running calls."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        super().__init__(out, colour=True)
        self._spinner_shown = False
        self._paused = False

    def ask(self, question: str, diffs: Sequence[acp.Diff] = ()) -> None:
        super().ask(question, diffs)
        self._paused = True  # The user types where the spinner would be.

    def asked(self, request: acp.RequestPermissionRequest, answer: str) -> None:
        self._paused = False
        super().asked(request, answer)

    async def animate(self) -> None:
        frame = 0
        while True:
            self._draw(FRAMES[frame % len(FRAMES)])
            frame += 1
            await anyio.sleep(FRAME_SECONDS)

    def _began(self, tool: _Tool) -> None:
        self._lines([])
        self._draw(FRAMES[0])

    def _ended(self, tool: _Tool) -> None:
        ok = tool.status == "completed"
        mark = self._paint(GREEN, "✓") if ok else self._paint(RED, "✗")
        seconds = time.monotonic() - tool.started
        head = f"{mark} {self._paint(BOLD, tool.title)} {self._paint(DIM, f'{seconds:.1f} s')}"
        self._lines([head, *self._details(tool)])

    def _draw(self, frame: str) -> None:
        """Draws the spinner line, if nothing else is on the line."""
        if self._paused or not self._tools or (not self._at_line_start and not self._spinner_shown):
            return
        tool = next(iter(self._tools.values()))
        more = f" and {len(self._tools) - 1} more" if len(self._tools) > 1 else ""
        seconds = time.monotonic() - tool.started
        waits = " (waits for permission)" if tool.status == "pending" else ""
        title = tool.title.splitlines()[0][:80] if tool.title else ""
        self._out.write(f"{CLEAR_LINE}{CYAN}{frame}{RESET} {title}{more}{waits} {DIM}{seconds:.0f} s{RESET}")
        self._out.flush()
        self._spinner_shown = True

    def _write(self, text: str) -> None:
        if self._spinner_shown:
            self._spinner_shown = False
            self._out.write(CLEAR_LINE)
        super()._write(text)
