"""The life of a tool call, written once.

    find -> parse -> emit(tool_call, pending)                     for all calls of a message, then for each
    access -> preview -> permit -> emit(in_progress) -> run -> emit(completed | failed) -> close its processes

The first report already has title, kind, locations and rawInput. Whatever happens, a call that was reported gets
exactly one final status, and what it started is closed after that (a client shows a terminal until it is released).
Calls of one model message that only read run together; others run in the model's order.

One of the three places with `except Exception`: a tool that breaks is a failed call, never a broken turn.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread
from msgspec import UNSET

from acp_agent.errors import ConnectionClosed, ExecutorError, ToolError
from acp_agent.executors.base import Command, ExitStatus, OutputChunk, Process
from acp_agent.llm.base import TextPart, ToolMessage, ToolUse
from acp_agent.loop.gate import Gate, Permit, Refused, TurnCancelledByClient
from acp_agent.loop.live import ContentFeed, Feed, TerminalFeed, terminal_info
from acp_agent.loop.modes import Mode
from acp_agent.output.envelope import ShellOutput
from acp_agent.safety.paths import Roots
from acp_agent.schema.acp import (
    Content,
    Plan,
    PlanEntry,
    SessionUpdate,
    Terminal,
    TextContent,
    ToolCall,
    ToolCallContent,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallUpdate,
)
from acp_agent.tools.context import Answer, Description, Location, Preview, Question, Task, ToolContext, ToolResult
from acp_agent.tools.registry import Registry, ToolEntry

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_agent.tools.base import Tool

__all__ = ["CallHost", "Display", "ToolRunner", "offered"]

log = logging.getLogger(__name__)

CANCELLED = "The call was cancelled by the person."
NOT_RUN = "The call was not run: the turn was cancelled first."


class CallHost(Protocol):
    """What a call needs of its session."""

    def emit(self, update: SessionUpdate, *, keep: bool = True) -> None:
        """`keep=False`: shown now, not stored."""
        ...

    async def drain(self) -> None:
        """Waits while the client reads too slowly."""
        ...

    def mode(self) -> Mode: ...

    def set_mode(self, mode: str, *, tell: bool = True) -> None:
        """Raises InvalidParams for a mode there is not."""
        ...

    def cancel(self) -> None:
        """Ends the turn as `session/cancel` would."""
        ...


def offered(registry: Registry, mode: Mode) -> Iterator[ToolEntry]:
    """The tools of a mode."""
    for entry in registry.entries():
        if is_offered(entry, mode):
            yield entry


def is_offered(entry: ToolEntry, mode: Mode) -> bool:
    if mode.changes:
        return True
    return (entry.reads_only and entry.kind != "think") or entry.name in mode.extra_tools


@dataclass(frozen=True)
class Display:
    """How running commands are shown."""

    terminal_meta: bool
    """Whether commands run here are drawn by the client from `_meta.terminal_output`."""
    updates_per_second: int
    live_chars: int


@dataclass(frozen=True)
class _Ready:
    """What a reported call is run from."""

    entry: ToolEntry
    tool: Tool[Any]
    params: Any
    description: Description
    arguments: dict[str, Any]


@dataclass
class _Call:
    """One call on its way. `id` is ours: unique for the life of the session, whatever the model made up."""

    use: ToolUse
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    name: str = ""
    reported: bool = False
    ended: bool = False
    ready: _Ready | None = None
    feed: Feed | None = None
    processes: list[Process] = field(default_factory=list)
    result: ToolMessage | None = None


class ToolRunner:
    """`context` makes what a tool is given from the functions that belong to one call."""

    def __init__(
        self,
        registry: Registry,
        gate: Gate,
        host: CallHost,
        roots: Roots,
        context: Callable[..., ToolContext],
        display: Display,
        *,
        max_output_chars: int,
    ) -> None:
        self._registry = registry
        self._gate = gate
        self._host = host
        self._roots = roots
        self._context = context
        self._display = display
        self._max_output_chars = max_output_chars

    async def run_all(self, uses: Sequence[ToolUse], add: Callable[[ToolMessage], None]) -> None:
        """Runs the calls of one model message; `add` gets one result for each, in the model's order, in any case.

        All are reported before the first runs: the person sees what is to come.
        """
        calls = [_Call(use) for use in uses]
        try:
            for call in calls:
                await self._report(call)
            for together, group in groupby(calls, self._only_reads):
                if together:
                    async with anyio.create_task_group() as tasks:
                        for call in group:
                            tasks.start_soon(self.run, call)
                else:
                    for call in group:
                        await self.run(call)
        finally:
            for call in calls:
                self._fail(call, NOT_RUN)
                add(call.result or ToolMessage(call.use.id, call.use.name, (TextPart(NOT_RUN),)))

    def _only_reads(self, call: _Call) -> bool:
        entry = self._registry.find(call.use.name)
        return entry is not None and entry.reads_only

    async def run(self, call: _Call) -> None:
        """A call that was reported, to its last report; `call.result` is what the model gets."""
        if call.ready is None:
            return
        try:
            async with anyio.create_task_group() as tasks:
                try:
                    await self._life(call, call.ready, tasks)
                except ConnectionClosed:
                    self._fail(call, "The connection to the editor has ended.")
                except Exception as error:
                    log.exception("the tool %s broke", call.name)
                    self._fail(call, f"The tool broke: {type(error).__name__}: {error}")
                finally:
                    tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._stop(call)
            self._cancelled(call)
            raise
        finally:
            with anyio.CancelScope(shield=True):
                for process in call.processes:
                    await process.close()

    async def _stop(self, call: _Call) -> None:
        """Ends what the call started; its last output stays visible."""
        for process in call.processes:
            try:
                await process.kill()
            except ConnectionClosed:
                pass  # The editor is gone, and its terminals with it.

    async def _report(self, call: _Call) -> None:
        """Announces the call; one that cannot work has failed with that."""
        entry = self._registry.find(call.use.name)
        call.name = entry.name if entry is not None else call.use.name
        arguments = _arguments(call.use.arguments)
        if entry is None:
            self._announce(call, None, Description(f"Unknown tool {call.use.name}"), arguments)
            names = ", ".join(known.name for known in offered(self._registry, self._host.mode()))
            self._fail(call, f"There is no tool `{call.use.name}`. The tools are: {names}.")
            return
        if isinstance(arguments, str):
            self._announce(call, entry, Description(f"{entry.name} (arguments are no JSON object)"), arguments)
            self._fail(call, f"The arguments of `{entry.name}` are no JSON object. Call it again with a JSON object.")
            return
        tool = self._registry.loaded(entry.name)
        if tool is None:  # The first call of a process may come before the tools were loaded in the background.
            tool = await anyio.to_thread.run_sync(self._registry.tool, entry.name)
        try:
            params = tool.parse(arguments)
        except ToolError as error:
            self._announce(call, entry, Description(entry.name), arguments)
            self._fail(call, str(error))
            return
        description = tool.describe(params, self._roots)
        self._announce(call, entry, description, arguments)
        call.ready = _Ready(entry, tool, params, description, arguments)

    async def _life(self, call: _Call, ready: _Ready, tasks: TaskGroup) -> None:
        entry, tool, params = ready.entry, ready.tool, ready.params
        ctx = self._make_context(call, tasks)
        try:
            if not is_offered(entry, self._host.mode()):
                raise ToolError(
                    f"`{entry.name}` is not available in the mode `{self._host.mode().id}`, which only reads."
                )
            accesses = tool.access(params, ctx)
            preview = await tool.preview(params, ctx)
            match await self._gate.permit(accesses, self._question(call, ready, preview)):
                case Refused(reason):
                    raise ToolError(reason)
                case TurnCancelledByClient():
                    self._fail(call, CANCELLED)
                    self._host.cancel()
                    return
                case Permit():
                    pass
            await anyio.lowlevel.checkpoint()  # A cancel that came meanwhile counts before anything is done.
            shown = list(preview.content) or UNSET
            self._update(call, status="in_progress", content=shown)
            result = await tool.run(params, ctx, preview)
        except (ToolError, ExecutorError) as error:
            self._fail(call, str(error))
        except FileNotFoundError as error:
            self._fail(call, f"{error.filename}: no such file or directory.")
        else:
            self._complete(call, result)

    # --- what a tool is given ---------------------------------------------------------------------------------

    def _make_context(self, call: _Call, tasks: TaskGroup) -> ToolContext:
        async def start(command: Command) -> Process:
            process = await ctx.executor.run(command)
            call.processes.append(process)
            if process.view is not None:
                self._update(call, content=[Terminal(terminal_id=process.view.terminal_id)], keep=False)
            else:
                call.feed = self._feed(call)
                tasks.start_soon(call.feed.pump)
            return process

        def show_output(chunk: OutputChunk) -> None:
            if call.feed is not None:
                call.feed.add(chunk)

        def set_plan(entries: Sequence[PlanEntry]) -> None:
            self._host.emit(Plan(entries=list(entries)))

        async def ask_person(question: Question) -> Answer:
            raise ToolError("Nobody can be asked.")

        async def delegate(task: Task) -> ToolResult:
            raise ToolError("There are no sub-agents.")

        ctx = self._context(
            start=start,
            show_output=show_output,
            set_plan=set_plan,
            call_id=call.id,
            ask_person=ask_person,
            delegate=delegate,
            set_mode=self._host.set_mode,
        )
        return ctx

    def _feed(self, call: _Call) -> Feed:
        def emit(update: ToolCallProgress) -> None:
            if not call.ended:
                self._host.emit(update, keep=False)

        kind = TerminalFeed if self._display.terminal_meta else ContentFeed
        return kind(call.id, emit, self._host.drain, self._display.updates_per_second, self._display.live_chars)

    # --- reports ----------------------------------------------------------------------------------------------

    def _announce(self, call: _Call, entry: ToolEntry | None, description: Description, arguments: object) -> None:
        call.reported = True
        meta: dict[str, Any] = {"tool_name": call.name, "claudeCode": {"toolName": call.name}}
        content: list[ToolCallContent] = []
        if entry is not None and entry.kind == "execute" and self._display.terminal_meta:
            meta.update(terminal_info(call.id, str(self._roots.cwd)))
            content.append(Terminal(terminal_id=call.id))
        self._host.emit(
            ToolCall(
                tool_call_id=call.id,
                title=description.title,
                name=call.name,
                kind=entry.kind if entry is not None else "other",
                status="pending",
                locations=_locations(description.locations),
                raw_input=arguments,
                content=content,
                meta=meta,
            )
        )

    def _question(self, call: _Call, ready: _Ready, preview: Preview) -> ToolCallUpdate:
        description = ready.description
        content = list(preview.content) or [Content(content=TextContent(text=f"```\n{description.title}\n```"))]
        return ToolCallUpdate(
            tool_call_id=call.id,
            title=description.title,
            name=call.name,
            kind=ready.entry.kind,
            status="pending",
            content=content,
            locations=_locations(description.locations),
            raw_input=ready.arguments,
        )

    def _update(self, call: _Call, *, keep: bool = True, **changed: Any) -> None:
        self._host.emit(ToolCallProgress(tool_call_id=call.id, **changed), keep=keep)

    def _complete(self, call: _Call, result: ToolResult) -> None:
        text = _bounded(result.text, self._max_output_chars)
        changed: dict[str, Any] = {}
        if result.locations is not None:
            changed["locations"] = _locations(result.locations)
        if result.raw_output is not None:
            changed["raw_output"] = result.raw_output
        content = result.content
        if content is None:
            content = (Content(content=TextContent(text=text)),) if text else ()
        self._end(call, "failed" if result.failed else "completed", text, list(content), **changed)
        call.result = ToolMessage(call.use.id, call.name, (TextPart(text), *result.parts))

    def _fail(self, call: _Call, text: str) -> None:
        if call.ended or not call.reported:
            return
        text = _bounded(text, self._max_output_chars)
        self._end(call, "failed", text, [Content(content=TextContent(text=text))])
        call.result = ToolMessage(call.use.id, call.name or call.use.name, (TextPart(text),))

    def _cancelled(self, call: _Call) -> None:
        """Ends a call that was stopped; what its command had printed is kept."""
        if not call.processes or call.ended:
            self._fail(call, CANCELLED)
            return
        process = call.processes[-1]
        output = ShellOutput(process.stdout, process.stderr, None, process.truncated)
        text = f"{process.combined.rstrip()}\n[{CANCELLED}]".lstrip()
        self._complete(call, ToolResult(text, raw_output=output.as_json(), failed=True))

    def _end(self, call: _Call, status: str, text: str, content: list[ToolCallContent], **changed: Any) -> None:
        claude = {"toolName": call.name, "toolResponse": changed.get("raw_output", text)}
        meta: dict[str, Any] = {"tool_name": call.name, "claudeCode": claude}
        terminals: list[ToolCallContent] = [
            Terminal(terminal_id=process.view.terminal_id) for process in call.processes if process.view is not None
        ]
        if isinstance(call.feed, TerminalFeed):
            terminals.append(Terminal(terminal_id=call.id))
        if terminals:
            # The terminal already shows the output; text beside it only where it says more (a failure of ours).
            content = [*terminals, *([] if "raw_output" in changed else content)]
        if call.feed is not None:
            meta.update(call.feed.finish(_exit_status(changed.get("raw_output"))) or {})
        call.ended = True
        self._update(call, status=status, content=content, meta=meta, **changed)


def _exit_status(raw_output: Any) -> ExitStatus | None:
    if isinstance(raw_output, dict) and "exit_code" in raw_output:
        return ExitStatus(raw_output["exit_code"], raw_output.get("signal"))
    return None


def _arguments(text: str) -> dict[str, Any] | str:
    """The model's arguments as an object, or their text where they are none."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _locations(locations: Sequence[Location]) -> list[ToolCallLocation]:
    return [ToolCallLocation(path=str(location.path), line=location.line) for location in locations]


def _bounded(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters omitted ...]\n{text[-half:]}"
