"""Shows a turn outside an editor: as a live terminal, plain lines, or JSON."""

from __future__ import annotations

import difflib
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TextIO

import anyio
import msgspec
from msgspec import UNSET, Struct, field

from acp_agent.lazy import pattern
from acp_agent.legible import legible, not_verbatim
from acp_agent.loop.options import AUTO_MODEL
from acp_agent.output.sanitize import sanitize_output
from acp_agent.schema import acp

OUTPUT_LINES = 12
"""Lines of a tool's output that are shown."""
OMITTED = "characters omitted ...]"
"""Length of the mark where the middle of an output is missing."""

LIVE_LINES = 6
"""Lines of a running command's output that are shown below its spinner."""
LIVE_CHARS = 4_000
"""Characters at the end of a running command's output in which those lines are looked for."""

DIFF_LINES = 60
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1
STALL_SECONDS = 2.0
"""A line of text that does not go on for so long is ended, and the spinner is shown below it."""
CHARS_PER_TOKEN = 4
"""Estimates the tokens of text that the model has not reported yet."""

REFUSED = "confirmation_required"
"""Category of a call that the user did not allow: the text is for the model."""
FENCED = pattern(r"^```[^\n]*\n(.*?)\n?```$", re.DOTALL)

DIM, RED, GREEN, CYAN, BOLD, RESET = "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[1m", "\x1b[0m"
CLEAR_BELOW = "\x1b[J"
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"
"""A long line is cut at the edge of the window: the lines to clear are then those that were drawn."""

Facts = Mapping[str, Any]
NO_FACTS: Facts = {}

Tail = Callable[[str], str]
"""The end of the output of the terminal with this id."""


def command_of(raw_input: Any) -> str:
    """The command line that a call runs, if its input has one."""
    command = raw_input.get("command") if isinstance(raw_input, dict) else None
    if isinstance(command, list):
        return shlex.join(str(part) for part in command)
    return command if isinstance(command, str) else ""


class Out(Protocol):
    """Where text goes."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class PipeOut:
    """A stream whose reader may go away: what is written then goes nowhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str, /) -> None:
        with suppress(BrokenPipeError):
            self._out.write(text)

    def flush(self) -> None:
        with suppress(BrokenPipeError):
            self._out.flush()


class View(Protocol):
    def update(self, session_id: str, update: acp.SessionUpdate) -> None: ...

    def begin(self, options: Sequence[acp.SessionConfigOption]) -> None:
        """The session is open, and the prompt is sent."""
        ...

    def ask(self, question: str, diffs: Sequence[acp.Diff] = ()) -> None:
        """Asks a user, after showing the whole changes in question; the user types the answer behind the last line."""
        ...

    def asked(self, request: acp.RequestPermissionRequest, answer: str) -> None:
        """Reports that a permission request was answered with the words `answer`."""
        ...

    def end(self, stop_reason: str, message: str = "", *, session_id: str = "", facts: Facts = NO_FACTS) -> None: ...

    async def animate(self, tail: Tail) -> None:
        """Runs until cancelled."""
        ...


class ShownCall(Struct):
    """A call as last reported."""

    id: str
    title: str
    kind: str = "other"
    parent: str = ""
    """The call of the sub-agent that makes it."""
    status: str = "pending"
    started: float = field(default_factory=time.monotonic)
    content: list[Any] = field(default_factory=list)
    raw_input: Any = None
    raw_output: Any = None
    category: str = ""
    """Why it failed."""
    asked: bool = False
    """Whether the question that it asks was shown with its answer."""

    def take(self, update: acp.ToolCall | acp.ToolCallProgress) -> None:
        if isinstance(update.title, str):
            self.title = legible(update.title)
        if isinstance(update.kind, str):
            self.kind = update.kind
        if isinstance(update.content, list):
            self.content = update.content
        if update.raw_input is not UNSET:
            self.raw_input = update.raw_input
        if update.raw_output is not UNSET:
            self.raw_output = update.raw_output
        if isinstance(update.status, str):
            if self.status == "pending":  # It begins now, or ends without having run.
                self.started = time.monotonic()
            self.status = update.status
        if isinstance(update.meta, dict) and isinstance(claude := update.meta.get("claudeCode"), dict):
            self.parent = str(claude.get("parentToolUseId") or self.parent)
        if isinstance(update.meta, dict) and isinstance(error := update.meta.get("toolError"), dict):
            self.category = str(error.get("category", ""))

    @property
    def text(self) -> str:
        """What it has put out."""
        texts = [
            item.content.text
            for item in self.content
            if isinstance(item, acp.Content) and isinstance(item.content, acp.TextContent)
        ]
        if self.kind == "execute" and isinstance(self.raw_output, dict):
            streams = [self.raw_output.get(name) for name in ("stdout", "stderr")]
            texts = [each for each in streams if isinstance(each, str)] or texts
        text = "\n".join(texts).strip("\n")
        found = FENCED.match(text)
        return legible(sanitize_output(found[1] if found else text)).rstrip()

    @property
    def diffs(self) -> list[acp.Diff]:
        return [item for item in self.content if isinstance(item, acp.Diff)]


class JsonView:
    """Writes every session update as one JSON line, then one with the stop reason."""

    def __init__(self, out: Out) -> None:
        self._out = out

    def update(self, session_id: str, update: acp.SessionUpdate) -> None:
        self._line(acp.SessionNotification(session_id=session_id, update=update))

    def begin(self, options: Sequence[acp.SessionConfigOption]) -> None:
        return

    def ask(self, question: str, diffs: Sequence[acp.Diff] = ()) -> None:
        self._line({"question": question, "diffs": diffs})

    def asked(self, request: acp.RequestPermissionRequest, answer: str) -> None:
        self._line({"permission": request, "answer": answer})

    def end(self, stop_reason: str, message: str = "", *, session_id: str = "", facts: Facts = NO_FACTS) -> None:
        ending = {"stopReason": stop_reason} if not message else {"error": message}
        self._line({**ending, **({"sessionId": session_id} if session_id else {}), **facts})

    async def animate(self, tail: Tail) -> None:
        return

    def _line(self, value: object) -> None:
        self._out.write(msgspec.json.encode(value).decode() + "\n")
        self._out.flush()


class PlainView:
    """Writes lines of text without control characters of our own: for pipes, files and logs."""

    def __init__(self, out: Out, *, colour: bool = False) -> None:
        self._out = out
        self._colour = colour
        self._tools: dict[str, ShownCall] = {}
        self._asked: list[acp.Diff] = []
        """The changes that questions have shown."""
        self._asked_at = 0.0
        self._at_line_start = True
        self._kind = ""

    # --- the contract -----------------------------------------------------------------------------------------

    def update(self, session_id: str, update: acp.SessionUpdate) -> None:
        match update:
            case acp.AgentMessageChunk(content=acp.TextContent(text=text)):
                self._say(legible(text), "message")
            case acp.AgentThoughtChunk(content=acp.TextContent(text=text)):
                self._say(self._paint(DIM, legible(text)), "thought")
            case acp.ToolCall():
                self._tools[update.tool_call_id] = tool = ShownCall(update.tool_call_id, "")
                tool.take(update)
                self._began(tool)
            case acp.ToolCallProgress():
                self._progress(update)
            case acp.Notice(title=title, description=more):
                self._lines(
                    [self._paint(DIM, f"  {line}") for line in legible(f"{title}\n{more or ''}").split("\n") if line]
                )
            case acp.Plan(entries=entries):
                marks = {"pending": " ", "in_progress": "~", "completed": "x"}
                self._lines(f"  [{marks[entry.status]}] {legible(entry.content)}" for entry in entries)
            case _:
                pass

    def begin(self, options: Sequence[acp.SessionConfigOption]) -> None:
        return

    def ask(self, question: str, diffs: Sequence[acp.Diff] = ()) -> None:
        self._asked_at = self._asked_at or time.monotonic()
        *lines, last = question.split("\n")
        self._lines([*(line for diff in diffs for line in self._diff(diff, most=None)), *lines])
        self._out.write(last)  # The user's Enter ends this line.
        self._out.flush()
        self._asked += diffs

    def asked(self, request: acp.RequestPermissionRequest, answer: str) -> None:
        tool = self._tools.get(request.tool_call.tool_call_id)
        if tool is not None and self._asked_at:
            tool.started += time.monotonic() - self._asked_at
        self._asked_at = 0.0
        self._lines([self._paint(DIM, f"  {answer}")])

    def end(self, stop_reason: str, message: str = "", *, session_id: str = "", facts: Facts = NO_FACTS) -> None:
        if message:
            self._lines([self._paint(RED, f"error: {message}")])
        elif stop_reason != "end_turn":
            self._lines([self._paint(DIM, f"stopped: {stop_reason}")])
        else:
            self._lines([])

    async def animate(self, tail: Tail) -> None:
        return

    # --- tool calls -------------------------------------------------------------------------------------------

    def _progress(self, update: acp.ToolCallProgress) -> None:
        tool = self._tools.get(update.tool_call_id)
        if tool is None:
            return
        tool.take(update)
        if tool.status in ("completed", "failed"):
            del self._tools[update.tool_call_id]
            self._ended(tool)

    def _began(self, tool: ShownCall) -> None:
        self._lines([f"* {tool.title}"])

    def _ended(self, tool: ShownCall) -> None:
        ok = tool.status == "completed"
        mark = self._paint(GREEN, "+ done") if ok else self._paint(RED, "- failed")
        seconds = time.monotonic() - tool.started
        which = f": {tool.title}" if self._tools else ""  # Others are still running: say which one this is.
        self._lines([*self._details(tool), f"  {mark} ({seconds:.1f} s){which}"])

    def _details(self, tool: ShownCall) -> Iterator[str]:
        for item in () if tool.category == REFUSED else tool.content:
            match item:
                case acp.Diff():
                    if item not in self._asked:
                        yield from self._diff(item)
                case acp.Content(content=acp.TextContent(text=text)):
                    yield from self._some(text)
                case acp.Terminal() if isinstance(tool.raw_output, dict):
                    yield from self._some("".join(str(tool.raw_output.get(k) or "") for k in ("stdout", "stderr")))

    def _some(self, text: str) -> Iterator[str]:
        lines = legible(sanitize_output(not_verbatim(text)).rstrip()).split("\n")
        if len(lines) > OUTPUT_LINES:
            more = "more than " if OMITTED in text else ""
            yield self._paint(DIM, f"  | ... {more}{len(lines) - OUTPUT_LINES} lines before")
        for line in lines[-OUTPUT_LINES:]:
            yield self._paint(DIM, f"  | {line}")

    def _diff(self, diff: acp.Diff, most: int | None = DIFF_LINES) -> Iterator[str]:
        yield f"  {legible(diff.path)}"
        old = legible(diff.old_text or "").splitlines()
        lines = list(difflib.unified_diff(old, legible(diff.new_text).splitlines(), lineterm="", n=1))[2:]
        for line in lines[:most]:
            colour = {"+": GREEN, "-": RED, "@": CYAN}.get(line[:1], DIM)
            yield f"  {self._paint(colour, line)}"
        if most is not None and len(lines) > most:
            yield self._paint(DIM, f"  ... {len(lines) - most} more lines")

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


class AnswerView(PlainView):
    """The answer goes to one stream as it comes, everything else to another."""

    def __init__(self, answer: Out, progress: Out, *, colour: bool = False) -> None:
        super().__init__(progress, colour=colour)
        self._answer = answer
        self._line_open = False
        """Whether the answer's last line is not ended."""
        self._message: str | None = None
        """The message that it is of."""

    def update(self, session_id: str, update: acp.SessionUpdate) -> None:
        if isinstance(update, acp.AgentMessageChunk) and isinstance(update.content, acp.TextContent):
            if update.message_id != self._message:
                self._message = update.message_id
                self._end_line()
            self._hear(legible(update.content.text))
            return
        if isinstance(update, acp.ToolCall):
            self._end_line()
        super().update(session_id, update)

    def end(self, stop_reason: str, message: str = "", *, session_id: str = "", facts: Facts = NO_FACTS) -> None:
        self._end_line()
        super().end(stop_reason, message, session_id=session_id, facts=facts)

    def _hear(self, text: str) -> None:
        if text:
            self._answer.write(text)
            self._answer.flush()
            self._line_open = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._line_open:
            self._hear("\n")


class ResultView(AnswerView):
    """One JSON object at the end."""

    def __init__(self, out: Out, progress: Out) -> None:
        super().__init__(out, progress)
        self._text: list[str] = []
        """Since the last call."""
        self._spent: list[float | None] = []
        """Cost of the session, as reported."""
        self._denied: list[str] = []

    def update(self, session_id: str, update: acp.SessionUpdate) -> None:
        if isinstance(update, acp.ToolCall):
            self._text.clear()
        elif isinstance(update, acp.UsageUpdate):
            self._spent.append(None if update.cost is None else update.cost.amount)
        super().update(session_id, update)

    def _hear(self, text: str) -> None:
        self._text.append(text)

    def asked(self, request: acp.RequestPermissionRequest, answer: str) -> None:
        if answer.startswith("rejected"):
            self._denied.append(str(request.tool_call.title))
        super().asked(request, answer)

    def end(self, stop_reason: str, message: str = "", *, session_id: str = "", facts: Facts = NO_FACTS) -> None:
        cost = self._spent[-1] if self._spent else 0.0
        result = {
            "text": "".join(self._text), "stopReason": stop_reason, **({"error": message} if message else {}),
            "sessionId": session_id, "usage": None, "cost": cost, "files": [], "failedCalls": 0, "denied": self._denied,
        }  # fmt: skip
        self._answer.write(msgspec.json.encode({**result, **facts}).decode() + "\n")
        self._answer.flush()


class TerminalView(PlainView):
    """Adds colours, and a spinner line for the model and for running calls, with the end of their output."""

    def __init__(self, out: Out = sys.stdout, *, colour: bool = True) -> None:
        super().__init__(out, colour=colour)
        self._drawn = 0
        """Lines of the spinner and the output below it, which the next text replaces."""
        self._paused = False
        self._tail: Tail = lambda terminal_id: ""
        self._model = ""
        self._tokens = 0
        self._chars = 0
        """Those the model has written since it last reported its tokens."""
        self._wrote = self._since = time.monotonic()
        """When the last text was written, and when the model began to work."""

    # --- the contract -----------------------------------------------------------------------------------------

    def begin(self, options: Sequence[acp.SessionConfigOption]) -> None:
        for option in options:
            if option.id == "model":
                name = str(option.current_value).partition("/")[2]
                self._model = "" if name == AUTO_MODEL else legible(name)

    def update(self, session_id: str, update: acp.SessionUpdate) -> None:
        match update:
            case acp.UsageUpdate(used=used):
                self._tokens, self._chars = used, 0
            case acp.ConfigOptionUpdate(config_options=options):
                self.begin(options)
            case acp.AgentMessageChunk(content=acp.TextContent(text=text)):
                self._chars += len(text)
            case acp.AgentThoughtChunk(content=acp.TextContent(text=text)):
                self._chars += len(text)
        super().update(session_id, update)

    def ask(self, question: str, diffs: Sequence[acp.Diff] = ()) -> None:
        self._clear()
        super().ask(question, diffs)
        self._paused = True  # The user types where the spinner would be.

    def asked(self, request: acp.RequestPermissionRequest, answer: str) -> None:
        self._paused = False
        super().asked(request, answer)

    async def animate(self, tail: Tail) -> None:
        self._tail = tail
        frame = 0
        try:
            while True:
                self._draw(FRAMES[frame % len(FRAMES)])
                frame += 1
                await anyio.sleep(FRAME_SECONDS)
        finally:
            self._clear()

    # --- the spinner ------------------------------------------------------------------------------------------

    def _began(self, tool: ShownCall) -> None:
        self._lines([])
        self._draw(FRAMES[0])

    def _ended(self, tool: ShownCall) -> None:
        ok = tool.status == "completed"
        mark = self._paint(GREEN, "✓") if ok else self._paint(RED, "✗")
        self._since = time.monotonic()
        seconds = self._since - tool.started
        head = f"{mark} {self._paint(BOLD, tool.title)} {self._paint(DIM, f'{seconds:.1f} s')}"
        self._lines([head, *self._details(tool)])

    def _draw(self, frame: str) -> None:
        """Draws the spinner, if nothing else is on the line."""
        now = time.monotonic()
        if self._paused or (not self._at_line_start and now - self._wrote < STALL_SECONDS):
            return
        self._lines([])
        words, since, live = self._model or "the model", self._since, ""
        if self._tools:
            tool = next(iter(self._tools.values()))
            more = f" and {len(self._tools) - 1} more" if len(self._tools) > 1 else ""
            words, since, live = tool.title.partition("\n")[0] + more, tool.started, self._live(tool)
        tokens = self._tokens + self._chars // CHARS_PER_TOKEN
        used = f", {tokens} tokens" if tokens and not self._tools else ""
        lines = [f"{self._paint(CYAN, frame)} {words} {self._paint(DIM, f'{now - since:.0f} s{used}')}"]
        lines += [self._paint(DIM, f"  | {line}") for line in live.split("\n")[-LIVE_LINES:] if live]
        self._clear()
        self._out.write(NO_WRAP + "\n".join(lines) + WRAP)
        self._out.flush()
        self._drawn = len(lines)

    def _live(self, tool: ShownCall) -> str:
        """The end of what a running call has put out."""
        text = ""
        for item in tool.content:
            match item:
                case acp.Terminal(terminal_id=terminal_id):
                    text = self._tail(terminal_id)
                case acp.Content(content=acp.TextContent(text=text)):
                    pass
        return legible(sanitize_output(text[-LIVE_CHARS:]).strip("\n"))

    def _clear(self) -> None:
        """Takes away what was drawn."""
        if self._drawn:
            up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
            self._out.write(f"\r{up}{CLEAR_BELOW}")
            self._out.flush()
            self._drawn = 0

    def _write(self, text: str) -> None:
        self._clear()
        self._wrote = time.monotonic()
        super()._write(text)
