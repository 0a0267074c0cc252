"""Reports of a tool call to the client and the model, from its announcement to its one final status.

`Calls` (`runner.py`) decides the order of these reports; here is what each contains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from acp_agent.errors import ToolError
from acp_agent.executors.base import ExitStatus, Process
from acp_agent.legible import legible, verbatim
from acp_agent.llm.base import TextPart, ToolMessage
from acp_agent.loop.calls.call import Call, Ready
from acp_agent.loop.calls.live import ContentFeed, Feed, ScreenFeed, TerminalFeed, terminal_info
from acp_agent.loop.calls.redaction import Redaction
from acp_agent.loop.outbox import ChildOutbox, Outbox
from acp_agent.output.envelope import ShellOutput, bounded
from acp_agent.protocol.codec import encode
from acp_agent.schema import acp
from acp_agent.tools.kit.failures import feedback, is_retryable
from acp_agent.tools.kit.registry import ToolEntry
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolResult

if TYPE_CHECKING:
    from acp_agent.loop.beside.background_runs import Run

LARGEST_RAW = 1_000_000
"""Bytes of JSON in `rawOutput`; the envelope of a command's output is bounded by itself."""

SMALL_RAW = 20_000
"""Bytes of `rawOutput` repeated in `_meta` for clients that read it there; if longer, the text is."""

PARENT = "parentToolUseId"

CANCELLED = "The call was cancelled by the user."


class Display(Struct, frozen=True):
    """How running commands are shown."""

    terminal_meta: bool
    """Whether commands run here are drawn by the client from `_meta.terminal_output`."""
    updates_per_second: int
    live_chars: int


class Parent:
    """The call whose sub-agent makes these calls: its card shows the current activity. `outbox`: of the sub-agent."""

    def __init__(self, call: Call, reports: Reports, title: str, kind: str, outbox: ChildOutbox) -> None:
        self.call_id = call.id
        self.outbox = outbox
        self.title = title
        self.about = {"agent_id": call.id, "agent_type": kind}
        """What hooks are told of the sub-agent."""
        self.call = call
        self._reports = reports
        self._made = 0

    def began(self, title: str) -> None:
        """The sub-agent makes a call."""
        self._made += 1
        self._reports.say(self.call, f"{self._made}. {title}")


class Reports:
    """Tells the client of calls. `parent`: these are the calls of a sub-agent."""

    def __init__(
        self,
        outbox: Outbox,
        redaction: Redaction,
        display: Display,
        *,
        cwd: str,
        max_output_chars: int,
        parent: Parent | None = None,
    ) -> None:
        self._redact = redaction
        self._outbox = outbox
        self._display = display
        self._cwd = cwd
        self._max_output_chars = max_output_chars
        self._parent = parent

    def below(self, parent: Parent) -> Reports:
        """The reports of the calls of a sub-agent."""
        about, cwd, most = (self._outbox, self._redact, self._display), self._cwd, self._max_output_chars
        return Reports(*about, cwd=cwd, max_output_chars=most, parent=parent)

    @property
    def outbox(self) -> Outbox:
        """Of the conversation whose calls these are."""
        return self._outbox if self._parent is None else self._parent.outbox

    @property
    def _own(self) -> bool:
        """Whether these are calls of a sub-agent that is shown as a session."""
        return self._parent is not None and self._parent.outbox.shown

    @property
    def agent(self) -> Mapping[str, str]:
        """What hooks are told of the sub-agent that makes the calls; empty if none does."""
        return {} if self._parent is None else self._parent.about

    def feed(self, call: Call, process: Process) -> Feed:
        """Where the call's live output goes."""

        def emit(update: acp.ToolCallProgress) -> None:
            if not call.outcome.ended or call.goes_on is not None:
                self._emit(update, keep=False, clean=True)

        drawn = self._display.terminal_meta and (call.ready is None or call.ready.entry.kind == "execute")
        kind = TerminalFeed if drawn else ContentFeed
        display = self._display
        if process.terminal is not None and not display.terminal_meta:
            text, redact = process.terminal.text, self._redact.text
            return ScreenFeed(
                call.id,
                emit,
                self._outbox.drain,
                display.updates_per_second,
                self._redact.stream,
                lambda: redact(text())[-display.live_chars :],
            )
        return kind(
            call.id, emit, self._outbox.drain, display.updates_per_second, display.live_chars, self._redact.stream
        )

    def show_process(self, call: Call, process: Process) -> None:
        """Shows the terminal of the editor in which the command runs."""
        assert process.view is not None
        self.update(call, content=[acp.Terminal(terminal_id=process.view.terminal_id)], keep=False)

    def announce(self, call: Call, entry: ToolEntry | None, description: Description, arguments: object) -> None:
        call.reported = True
        if self._own:
            self._outbox.client.hide(call.id)
        meta = self._meta(call)
        content: list[acp.ToolCallContent] = []
        if entry is not None and entry.kind == "execute" and self._display.terminal_meta:
            meta.update(terminal_info(call.id, self._cwd))
            content.append(acp.Terminal(terminal_id=call.id))
        self._emit(
            acp.ToolCall(
                tool_call_id=call.id,
                title=legible(description.title),
                name=call.name,
                kind=entry.kind if entry is not None else "other",
                status="pending",
                locations=locations_of(description.locations),
                raw_input=arguments,
                content=content,
                meta=meta,
            )
        )
        if self._parent is not None:
            self._parent.began(legible(description.title))

    def question(self, call: Call, ready: Ready, preview: Preview) -> acp.ToolCallUpdate:
        """The call as a permission request shows it; one of a sub-agent says whose it is."""
        description = ready.description
        title = legible(description.title)
        content = list(preview.content) or [acp.Content(content=acp.TextContent(text=verbatim(title)))]
        meta: dict[str, Any] | UnsetType = UNSET
        if self._parent is not None:
            title, meta = f"{title} (sub-agent: {self._parent.title})", self._meta(call)
            if self._own:
                meta["subAgent"] = {"sessionId": self._parent.outbox.session_id}
                self.update(call, content=content, keep=False)
        return acp.ToolCallUpdate(
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
        self._emit(acp.ToolCallProgress(tool_call_id=call.id, **changed), keep=keep, clean=clean)

    def _emit(self, update: acp.ToolCall | acp.ToolCallProgress, *, keep: bool = True, clean: bool = False) -> None:
        """To the session, and to the log of the sub-agent that makes the call, whose own call it is."""
        if keep or not self._own:  # It stands in the log of the session for those who see cards.
            self._outbox.emit(update, keep=keep, clean=clean)
        if self._parent is not None and (keep or self._own):
            if isinstance(meta := update.meta, dict) and "claudeCode" in meta:
                claude = {name: value for name, value in meta["claudeCode"].items() if name != PARENT}
                update = replace(update, meta={**meta, "claudeCode": claude})
            self._parent.outbox.emit(update, keep=keep, clean=clean)

    def say(self, call: Call, text: str) -> None:
        """A line shown in the call until something else replaces it."""
        self.update(call, content=[acp.Content(content=acp.TextContent(text=text))], keep=False)

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
            content = (acp.Content(content=acp.TextContent(text=shown)),) if shown else ()
        content = tuple(_as_it_stands(call, content))
        meta: dict[str, Any] = dict(result.meta)
        told = text
        if result.failed:
            error = result.error or ToolError("")
            meta.update(_error_meta(error))
            told = text if str(error) in text else f"{text.rstrip()}\n{feedback(error)}"
        call.outcome.failed = result.failed
        status = "failed" if result.failed else "completed"
        self._end(call, status, response, list(content), meta, notes=result.notes, clean=clean, **changed)
        call.outcome.ends_turn = result.ends_turn
        call.outcome.result = ToolMessage(call.use.id, call.name, (TextPart(told), *result.parts))

    def ran_on(self, call: Call, run: Run, output: ShellOutput, text: str, *, limit: int) -> None:
        """How a background command ended: updates the card, but never its status, which is final.

        `text` is what the card says where no terminal shows the output; the ending of `run` is below either.
        """
        meta = {**self._meta(call), "background": {"run_id": run.id, "exit_code": output.exit_code}}
        raw_output = output.as_json(limit)
        meta["claudeCode"]["toolResponse"] = raw_output
        content: list[acp.ToolCallContent] = [*_terminals(call)]
        words = run.ended.ending if content else text
        if words:
            shown = acp.Content(content=acp.TextContent(text=bounded(words, self._max_output_chars)))
            content += [shown] if content else _as_it_stands(call, [shown])
        if call.feed is not None:
            meta.update(call.feed.finish(ExitStatus(output.exit_code)) or {})
        self.update(call, content=content, raw_output=raw_output, meta=meta)

    def fail(self, call: Call, error: ToolError) -> None:
        """The user gets the error itself, the model also what to do about it. Nothing for a call that has ended."""
        if call.outcome.ended or not call.reported:
            return
        call.outcome.error = error
        text = bounded(self._redact.text(error.shown or str(error)), self._max_output_chars)
        told = bounded(self._redact.text(feedback(error)), self._max_output_chars)
        self._end(call, "failed", text, [acp.Content(content=acp.TextContent(text=text))], _error_meta(error))
        call.outcome.result = ToolMessage(call.use.id, call.name or call.use.name, (TextPart(told),))

    def _end(
        self,
        call: Call,
        status: str,
        response: Any,
        content: list[acp.ToolCallContent],
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
            # The terminal already shows the output; text is added only if it says more (an error of ours).
            if "raw_output" in changed:
                content = [acp.Content(content=acp.TextContent(text="\n".join(notes)))] if notes else []
            content = [*terminals, *content]
        if call.feed is not None and call.goes_on is None:
            meta.update(call.feed.finish(_exit_status(changed.get("raw_output"))) or {})
        call.outcome.ended = True
        self.update(call, status=status, content=content, meta=meta, clean=clean, **changed)

    def _meta(self, call: Call) -> dict[str, Any]:
        claude = {"toolName": call.name}
        if self._parent is not None:
            claude[PARENT] = self._parent.call_id
        return {"tool_name": call.name, "claudeCode": claude}


def _as_it_stands(call: Call, content: Sequence[acp.ToolCallContent]) -> Sequence[acp.ToolCallContent]:
    """The result's own text, which comes first, in a code block, where it is no Markdown."""
    first = content[0] if content and call.ready is not None and call.ready.tool.verbatim else None
    if not isinstance(first, acp.Content) or not isinstance(first.content, acp.TextContent):
        return content
    block = replace(first.content, text=verbatim(first.content.text))
    return (replace(first, content=block), *content[1:])


def _terminals(call: Call) -> list[acp.Terminal]:
    """The terminals in which the call's commands are shown."""
    processes = [*call.processes]
    if call.goes_on is not None and call.goes_on.process is not None:
        processes.append(call.goes_on.process)
    shown = [acp.Terminal(terminal_id=process.view.terminal_id) for process in processes if process.view is not None]
    if isinstance(call.feed, TerminalFeed):
        shown.append(acp.Terminal(terminal_id=call.id))
    return shown


def _exit_status(raw_output: Any) -> ExitStatus | None:
    if isinstance(raw_output, dict) and "exit_code" in raw_output:
        return ExitStatus(raw_output["exit_code"], raw_output.get("signal"))
    return None


def _error_meta(error: ToolError) -> dict[str, Any]:
    return {"toolError": {"category": error.category, "retryable": is_retryable(error.category)}}


def _bounded_raw(value: Any, size: int) -> Any:
    """JSON for programs, of `size` bytes; if too large, its beginning as text."""
    if size <= LARGEST_RAW:
        return value
    return {"truncated": True, "bytes": size, "start": encode(value)[:LARGEST_RAW].decode("utf-8", "replace")}


def locations_of(locations: Sequence[Location]) -> list[acp.ToolCallLocation]:
    return [acp.ToolCallLocation(path=str(location.path), line=location.line) for location in locations]
