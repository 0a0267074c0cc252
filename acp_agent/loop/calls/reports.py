"""What the client and the model are told of a tool call, from its announcement to its one final status.

The order of these reports is `ToolRunner`'s business (`calls.py`); here is what each of them holds.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import UNSET, UnsetType

from acp_agent.errors import ToolError
from acp_agent.executors.base import Command, ExitStatus, Process
from acp_agent.llm.base import TextPart, ToolMessage, ToolUse
from acp_agent.loop.calls.live import ContentFeed, Feed, TerminalFeed, terminal_info
from acp_agent.loop.calls.redaction import Redaction
from acp_agent.output.envelope import ShellOutput, bounded
from acp_agent.protocol.codec import encode
from acp_agent.schema.acp import (
    Content,
    SessionUpdate,
    Terminal,
    TextContent,
    ToolCall,
    ToolCallContent,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallUpdate,
)
from acp_agent.tools.kit.failures import feedback, is_retryable
from acp_agent.tools.kit.registry import ToolEntry
from acp_agent.tools.kit.tool_context import Description, Location, Preview, RunState, ToolResult

if TYPE_CHECKING:
    from acp_agent.safety.deciding.deciders import CallFacts
    from acp_agent.tools.kit.base import Tool


LARGEST_RAW = 1_000_000
"""Bytes of JSON in `rawOutput`; the envelope of a command's output is bounded by itself."""

SMALL_RAW = 20_000
"""Bytes of `rawOutput` that are repeated in `_meta` for clients that read it there; else the text is."""

CANCELLED = "The call was cancelled by the person."


@dataclass(frozen=True)
class Display:
    """How running commands are shown."""

    terminal_meta: bool
    """Whether commands run here are drawn by the client from `_meta.terminal_output`."""
    updates_per_second: int
    live_chars: int


@dataclass(frozen=True)
class Parent:
    """The call whose sub-agent makes these calls."""

    call_id: str
    title: str


@dataclass(frozen=True)
class Ready:
    """What a reported call is run from."""

    entry: ToolEntry
    tool: Tool[Any]
    params: Any
    description: Description
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """What became of the command of a call."""

    workdir: str
    exit_code: int | None
    timed_out: bool


@dataclass
class Call:
    """One call on its way. `id` is ours: unique for the life of the session, whatever the model made up."""

    use: ToolUse
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    name: str = ""
    reported: bool = False
    ended: bool = False
    ends_turn: bool = False
    ready: Ready | None = None
    feed: Feed | None = None
    processes: list[Process] = field(default_factory=list)
    """What it started, and ends."""
    goes_on: Run | None = None
    """What it started and left to the background: neither this process nor the feed end with the call."""
    result: ToolMessage | None = None
    failed: bool = False
    error: ToolError | None = None
    """Set when it failed by an error."""
    ran: Ran | None = None
    """Set when it ran a command."""
    category: str = ""
    """Of a result that failed: why, in a word of the taxonomy."""
    cancelled: bool = False
    audited: bool = False
    facts: CallFacts | None = None
    """What was judged of it, once it is."""
    began: float | None = None
    """When it began to run, by the monotonic clock."""


@dataclass
class Run:
    """One command in the background."""

    process: Process | None
    """`None` once it has ended."""
    command: Command
    call: Call
    """The call that started it: its card shows the run."""
    reports: Reports
    timeout: float
    """Seconds."""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: float = field(default_factory=time.monotonic)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancelled to end it."""
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set once it has ended and all of it was told."""
    watched: bool = False
    ending: str = ""
    """How it ended, where the exit code does not say it."""
    exit_code: int | None = None
    text: str = ""
    """What is kept of its output, once it has ended."""
    told_text: str = ""
    """What the model is told of it, unless it asks for more."""
    seconds: float = 0.0
    """How long it ran, then."""
    told: bool = False
    """Whether the model knows of its end."""
    forgotten: bool = False
    """Whether the model has forgotten that it started it."""

    @property
    def running(self) -> bool:
        return self.process is not None

    def state(self) -> RunState:
        process = self.process
        return RunState(
            run_id=self.id,
            command=self.command.script,
            running=process is not None,
            seconds=self.seconds if process is None else time.monotonic() - self.started,
            exit_code=self.exit_code,
            text=self.text if process is None else process.combined,
            ending="" if process is not None else self.ending,
        )


class Reports:
    """Tells of calls by `emit`. `parent`: these are the calls of a sub-agent."""

    def __init__(
        self,
        emit: Callable[..., None],
        drain: Callable[[], Awaitable[None]],
        display: Display,
        *,
        cwd: str,
        max_output_chars: int,
        redact: Redaction,
        parent: Parent | None = None,
    ) -> None:
        self._redact = redact
        self._emit = emit
        self._drain = drain
        self._display = display
        self._cwd = cwd
        self._max_output_chars = max_output_chars
        self._parent = parent

    def below(self, emit: Callable[..., None], parent: Parent) -> Reports:
        """The reports of the calls of a sub-agent."""
        return Reports(
            emit,
            self._drain,
            self._display,
            cwd=self._cwd,
            max_output_chars=self._max_output_chars,
            redact=self._redact,
            parent=parent,
        )

    def emit(self, update: SessionUpdate, *, keep: bool = True, clean: bool = False) -> None:
        self._emit(update, keep=keep, clean=clean)

    def feed(self, call: Call) -> Feed:
        """Where the call's live output goes."""

        def emit(update: ToolCallProgress) -> None:
            if not call.ended or call.goes_on is not None:
                self._emit(update, keep=False, clean=True)

        kind = TerminalFeed if self._display.terminal_meta else ContentFeed
        display = self._display
        return kind(call.id, emit, self._drain, display.updates_per_second, display.live_chars, self._redact.stream)

    def show_process(self, call: Call, process: Process) -> None:
        """Shows the terminal of the editor in which the command runs."""
        assert process.view is not None
        self.update(call, content=[Terminal(terminal_id=process.view.terminal_id)], keep=False)

    def announce(self, call: Call, entry: ToolEntry | None, description: Description, arguments: object) -> None:
        call.reported = True
        meta = self._meta(call)
        content: list[ToolCallContent] = []
        if entry is not None and entry.kind == "execute" and self._display.terminal_meta:
            meta.update(terminal_info(call.id, self._cwd))
            content.append(Terminal(terminal_id=call.id))
        self.emit(
            ToolCall(
                tool_call_id=call.id,
                title=description.title,
                name=call.name,
                kind=entry.kind if entry is not None else "other",
                status="pending",
                locations=locations_of(description.locations),
                raw_input=arguments,
                content=content,
                meta=meta,
            )
        )

    def question(self, call: Call, ready: Ready, preview: Preview) -> ToolCallUpdate:
        """The call as a permission request shows it; one of a sub-agent says whose it is."""
        description = ready.description
        content = list(preview.content) or [Content(content=TextContent(text=f"```\n{description.title}\n```"))]
        title = description.title
        meta: dict[str, Any] | UnsetType = UNSET
        if self._parent is not None:
            title, meta = f"{title} (sub-agent: {self._parent.title})", self._meta(call)
        return ToolCallUpdate(
            tool_call_id=call.id,
            title=title,
            name=call.name,
            kind=ready.entry.kind,
            status="pending",
            content=content,
            locations=locations_of(preview.locations or description.locations),
            raw_input=ready.arguments,
            meta=meta,
        )

    def update(self, call: Call, *, keep: bool = True, clean: bool = False, **changed: Any) -> None:
        self.emit(ToolCallProgress(tool_call_id=call.id, **changed), keep=keep, clean=clean)

    def say(self, call: Call, text: str) -> None:
        """A line that stands in the call until something else does."""
        self.update(call, content=[Content(content=TextContent(text=text))], keep=False)

    def complete(self, call: Call, result: ToolResult, *, clean: bool = True) -> None:
        """`clean`: `result` has gone through `Outputs`, which takes credentials out."""
        text = result.text
        changed: dict[str, Any] = {}
        if result.locations is not None:
            changed["locations"] = locations_of(result.locations)
        response: Any = text
        if result.raw_output is not None:
            size = len(encode(result.raw_output))
            changed["raw_output"] = _bounded_raw(result.raw_output, size)
            response = result.raw_output if size <= SMALL_RAW else text
        content = result.content
        if content is None:
            shown = bounded(text, self._max_output_chars)
            content = (Content(content=TextContent(text=shown)),) if shown else ()
        meta: dict[str, Any] = dict(result.meta)
        told = text
        if result.failed:
            error = result.error or ToolError("")
            meta.update(_error_meta(error))
            told = f"{text.rstrip()}\n{feedback(error)}" if result.error is not None else text
        call.failed = result.failed
        status = "failed" if result.failed else "completed"
        self._end(call, status, response, list(content), meta, notes=result.notes, clean=clean, **changed)
        call.ends_turn = result.ends_turn
        call.result = ToolMessage(call.use.id, call.name, (TextPart(told), *result.parts))

    def ran_on(self, call: Call, run: Run, output: ShellOutput, text: str, *, limit: int) -> None:
        """How a command ended that had gone on in the background: the card anew, but never its status, which is final.

        `text` is what the card says where no terminal shows the output; the ending of `run` stands below either.
        """
        meta = {**self._meta(call), "background": {"run_id": run.id, "exit_code": output.exit_code}}
        raw_output = output.as_json(limit)
        meta["claudeCode"]["toolResponse"] = raw_output
        content: list[ToolCallContent] = [*_terminals(call)]
        words = run.ending if content else text
        if words:
            content.append(Content(content=TextContent(text=bounded(words, self._max_output_chars))))
        if call.feed is not None:
            meta.update(call.feed.finish(ExitStatus(output.exit_code)) or {})
        self.update(call, content=content, raw_output=raw_output, meta=meta)

    def fail(self, call: Call, error: ToolError) -> None:
        """The person reads the error itself, the model what follows from it too. Nothing for a call that has ended."""
        if call.ended or not call.reported:
            return
        call.error = error
        text = bounded(self._redact.text(str(error)), self._max_output_chars)
        told = bounded(self._redact.text(feedback(error)), self._max_output_chars)
        self._end(call, "failed", text, [Content(content=TextContent(text=text))], _error_meta(error))
        call.result = ToolMessage(call.use.id, call.name or call.use.name, (TextPart(told),))

    def _end(
        self,
        call: Call,
        status: str,
        response: Any,
        content: list[ToolCallContent],
        meta: dict[str, Any],
        *,
        notes: Sequence[str] = (),
        clean: bool = False,
        **changed: Any,
    ) -> None:
        """`response`: what clients find as `toolResponse` in `_meta`. `notes`: lines beside a terminal."""
        meta = {**self._meta(call), **meta}
        meta["claudeCode"]["toolResponse"] = response
        terminals = _terminals(call)
        if terminals:
            # The terminal already shows the output; text beside it only where it says more (a failure of ours).
            if "raw_output" in changed:
                content = [Content(content=TextContent(text="\n".join(notes)))] if notes else []
            content = [*terminals, *content]
        if call.feed is not None and call.goes_on is None:
            meta.update(call.feed.finish(_exit_status(changed.get("raw_output"))) or {})
        call.ended = True
        self.update(call, status=status, content=content, meta=meta, clean=clean, **changed)

    def _meta(self, call: Call) -> dict[str, Any]:
        claude = {"toolName": call.name}
        if self._parent is not None:
            claude["parentToolUseId"] = self._parent.call_id
        return {"tool_name": call.name, "claudeCode": claude}


def _terminals(call: Call) -> list[Terminal]:
    """The terminals in which the call's commands are shown."""
    processes = [*call.processes]
    if call.goes_on is not None and call.goes_on.process is not None:
        processes.append(call.goes_on.process)
    shown = [Terminal(terminal_id=process.view.terminal_id) for process in processes if process.view is not None]
    if isinstance(call.feed, TerminalFeed):
        shown.append(Terminal(terminal_id=call.id))
    return shown


def _exit_status(raw_output: Any) -> ExitStatus | None:
    if isinstance(raw_output, dict) and "exit_code" in raw_output:
        return ExitStatus(raw_output["exit_code"], raw_output.get("signal"))
    return None


def _error_meta(error: ToolError) -> dict[str, Any]:
    return {"toolError": {"category": error.category, "retryable": is_retryable(error.category)}}


def _bounded_raw(value: Any, size: int) -> Any:
    """JSON for programs, of `size` bytes; too much of it is cut to its beginning, as text."""
    if size <= LARGEST_RAW:
        return value
    return {"truncated": True, "bytes": size, "start": encode(value)[:LARGEST_RAW].decode("utf-8", "replace")}


def locations_of(locations: Sequence[Location]) -> list[ToolCallLocation]:
    return [ToolCallLocation(path=str(location.path), line=location.line) for location in locations]
