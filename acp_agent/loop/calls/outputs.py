"""The output pipeline: a result on its way to the model and the user.

    redact -> sanitize (commands) -> filter (commands that ended) -> compress (while a goal is active) or summarise
        -> keep whole aside, where anything was left out -> bound

Credentials are redacted before anything is cut, so that no half of one is left. The user gets everything (up to a
limit), the model the filtered output, and both a line that says so. The model can read the rest by its reference.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec
from msgspec import Struct

from acp_agent.credentials.redactor import Redactor
from acp_agent.errors import StoreError
from acp_agent.lazy import load
from acp_agent.limits.decoding import read_json
from acp_agent.llm.base import TextPart, ToolMessage
from acp_agent.loop.calls.goal_compression import IN_A_THREAD, GoalCompression, Shortened
from acp_agent.loop.calls.output_summary import OutputSummary
from acp_agent.loop.calls.redaction import Redaction
from acp_agent.loop.calls.session_filters import SessionFilters
from acp_agent.loop.memory.history import decode_message
from acp_agent.output.envelope import ShellOutput, bounded
from acp_agent.output.observation import (
    Observation,
    ObservedResult,
    ObservedSession,
    ObservedTool,
    ResultStatus,
    observation_text,
    stamped_text,
)
from acp_agent.output.profile import TEXT_CHARS, keeps, result_chars, shortened, shortened_streams
from acp_agent.output.sanitize import sanitize_output, unlike_notes
from acp_agent.schema.acp import Content, TextContent, ToolCallContent
from acp_agent.store.base import LogEntry, OverflowEntry
from acp_agent.store.database import now
from acp_agent.store.overflow import OverflowStore
from acp_agent.tools.kit.tool_context import ToolResult

if TYPE_CHECKING:
    from acp_agent.config.model import ToolsConfig
    from acp_agent.loop.calls.call import Call
    from acp_agent.output.filters import Filtered


log = logging.getLogger(__name__)

WANTS_TERMINAL = "acp_agent.safety.lines.interactive:wants_terminal"
LAST_COMMAND = "acp_agent.safety.lines.last_command:last_command"
"""Loaded with the first command: they bring tree-sitter."""

REFERENCE_CHARS = 100
"""Characters of the line with the reference to the full text."""

NOT_KEPT = frozenset(("read_overflow",))
"""Tools whose output is already stored."""


class _Digest(Struct, frozen=True):
    """An inspected result."""

    clean: str
    """All of it, without credentials; for a command also without control sequences."""
    filtered: Filtered | None
    found: tuple[str, ...]
    """The kinds of credentials that were in it."""
    streams: ShellOutput | None
    """Of a command, without credentials."""
    lost: str = ""
    """What of the output was not kept while the command ran."""

    @property
    def view(self) -> str:
        return self.clean if self.filtered is None else self.filtered.text


class _Told(Struct, frozen=True):
    """A result as the model gets it."""

    text: str
    notes: tuple[str, ...]
    """The changes made to it, a line each."""
    reference: tuple[str, ...]
    """Where the full text is stored, if it is."""
    warning: tuple[str, ...]

    def says(self, text: str) -> bool:
        """Whether it is `text` and nothing else."""
        return self.text == text and not (self.notes or self.reference or self.warning)


class Treated(Struct, frozen=True):
    """A result on its way to the model and the user."""

    result: ToolResult
    cut: bool
    """Whether the model gets less than all of it."""


class Counts(Struct):
    """Counts of what was done to the outputs of a session so far."""

    since: str = msgspec.field(default_factory=now)
    steps: int = 0
    """Model messages that called tools."""
    commands: int = 0
    observations: int = 0
    confidences: Counter[str] = msgspec.field(default_factory=Counter)
    """Of the filters."""
    lines_left_out: int = 0
    compressed: int = 0
    """Outputs, for a goal."""
    kept_aside: int = 0
    """Outputs."""


class Outputs(Struct, eq=False):
    """Of one session."""

    session_id: str
    store: OverflowStore
    redaction: Redaction
    config: ToolsConfig
    filters: SessionFilters
    compression: GoalCompression
    summary: OutputSummary
    counts: Counts = msgspec.field(default_factory=Counts)

    @property
    def redactor(self) -> Redactor:
        return self.redaction.redactor

    def restore(self, entries: Sequence[LogEntry]) -> None:
        """Goes on counting where the last envelope of the stored session ended."""
        if self.config.observation != "envelope":
            return
        for entry in reversed(entries):
            message = decode_message(entry.payload) if entry.kind == "message" else None
            if isinstance(message, ToolMessage) and (known := _session_of(message)) is not None:
                counts = self.counts
                counts.since, counts.steps = known.started_at, known.steps
                counts.commands, counts.observations = known.executed_commands, known.observations
                return

    # --- results ----------------------------------------------------------------------------------------------

    async def treat(self, tool: str, result: ToolResult) -> Treated:
        """The result as model (`text`), user (`content`) and programs (`raw_output`) get it."""
        size = len(result.text) + (len(result.command.combined) if result.command is not None else 0)
        if size > IN_A_THREAD:
            digest = await anyio.to_thread.run_sync(self._digest, tool, result, abandon_on_cancel=True)
        else:
            digest = self._digest(tool, result)
        exit_code = result.command.streams.exit_code if result.command is not None else 0
        short = None
        if not (result.command is not None and result.command.running):
            short = await self.compression.shortened(tool, digest.view, exit_code=exit_code)
            self.counts.compressed += short is not None
            short = short or await self.summary.shortened(tool, digest.view)
        return await self._finished(tool, result, digest, short)

    async def treat_plainly(self, tool: str, result: ToolResult) -> Treated:
        """The same without compression; who is cancelled meanwhile gets to know it behind it."""
        return await self._finished(tool, result, self._digest(tool, result), None)

    def clean(self, text: str) -> str:
        """A command's output as a text may show it: without credentials and control sequences."""
        return self._clean(text)[0]

    def _clean(self, text: str) -> tuple[str, tuple[str, ...]]:
        return self._plain(*self.redactor.redact_counted(text))

    def _plain(self, redacted: str, found: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        clean = sanitize_output(redacted)
        if clean != redacted:  # What control sequences have hidden.
            clean, more = self.redactor.redact_counted(clean)
            found = tuple(dict.fromkeys((*found, *more)))
        return clean, found

    def _digest(self, tool: str, result: ToolResult) -> _Digest:
        command = result.command
        if command is None:
            text, found = self.redactor.redact_counted(result.text)
            return _Digest(text, None, found, None)
        streams = command.streams
        stdout, found = self.redactor.redact_counted(streams.stdout)
        shown = msgspec.structs.replace(streams, stdout=stdout, stderr=self.redactor.redact(streams.stderr))
        if command.combined == streams.stdout:
            clean, found = self._plain(stdout, found)
        else:
            clean, found = self._clean(command.combined)
        clean, filtered = unlike_notes(clean), None
        if self.config.filters.enabled and not command.running and clean:
            last, filters = load(LAST_COMMAND)(command.script), self.filters.get()
            if filters.matching(last.text):  # Else it need not be taken into lines.
                filtered = filters.apply(clean, last.text, exit_code=streams.exit_code, alone=last.alone)
                if len(clean) - len(filtered.text) <= len(filtered.stats(tool)) + REFERENCE_CHARS:
                    filtered = msgspec.structs.replace(filtered, text=clean, lines_after=filtered.lines_before)
        return _Digest(clean, filtered, found, shown, command.lost)

    async def _finished(self, tool: str, result: ToolResult, digest: _Digest, short: Shortened | None) -> Treated:
        told = await self._for_model(tool, digest, short)
        below, heading = "", ""
        if result.command is not None:
            below, heading = result.text, f"{result.command.heading}\n".lstrip()
        treated = msgspec.structs.replace(
            result,
            text=heading + _lines(told.text, *told.notes, *told.reference, *told.warning, below),
            command=None,
            content=self._for_user(result, digest, told, heading, below),
            raw_output=self._for_programs(result, digest),
            # A terminal does not say what we did to the command.
            notes=(*told.notes, below) if result.failed and below else told.notes,
            meta=self._meta(result, digest),
        )
        return Treated(treated, cut=bool(told.text != digest.clean or digest.lost))

    async def _for_model(self, tool: str, digest: _Digest, short: Shortened | None) -> _Told:
        """The text in its bounds, with what was done to it."""
        notes = [] if digest.filtered is None else [digest.filtered.stats(tool)]
        view = digest.view
        if short is not None:
            view = short.text
            notes.append(short.words)
        text = self._fitting(tool, view, digest)
        if text != view:
            notes.append(f"[{tool}] {len(view)} characters, cut for the model to {len(text)}")
        if digest.lost:
            notes.append(f"[not kept: {digest.lost}. To see all, write it to a file and read that]")
        reference = await self._kept(tool, digest, left_out=text != digest.clean)
        warning = [f"[credentials were redacted in this: {', '.join(digest.found)}]"] if digest.found else []
        return _Told(text, tuple(note for note in notes if note), tuple(reference), tuple(warning))

    def _for_user(
        self, result: ToolResult, digest: _Digest, told: _Told, heading: str, below: str
    ) -> tuple[ToolCallContent, ...] | None:
        """The full text, bounded; `None` if the model gets the same text."""
        if result.content is not None:
            return tuple(self.redaction.struct(block) for block in result.content)
        if result.command is None and told.says(result.text):
            return None
        shown = bounded(digest.clean, self.config.max_output_chars)
        whole = heading + _lines(shown, *told.notes, *told.warning, below)
        return (Content(content=TextContent(text=whole)),) if whole else ()

    def _for_programs(self, result: ToolResult, digest: _Digest) -> Any:
        if result.raw_output is None and digest.streams is not None:
            return digest.streams.as_json(self.config.bash.raw_output_chars)
        return self.redactor.value(result.raw_output)

    def _meta(self, result: ToolResult, digest: _Digest) -> dict[str, Any]:
        meta = dict(result.meta)
        if digest.filtered is not None and digest.filtered.confidence is not None:
            meta["outputFilter"] = self._count(digest.filtered)
        return meta

    def _count(self, filtered: Filtered) -> dict[str, Any]:
        """Counts what was filtered; the facts for programs."""
        assert filtered.confidence is not None, "a rule has matched"
        self.counts.confidences[filtered.confidence] += 1
        self.counts.lines_left_out += max(0, filtered.lines_before - filtered.lines_after)
        return {
            "rules": list(filtered.rules),
            "confidence": filtered.confidence,
            "linesBefore": filtered.lines_before,
            "linesAfter": filtered.lines_after,
        }

    def words(self) -> list[str]:
        """Lists what was done to outputs in this session so far, a line each."""
        lines = []
        if self.counts.confidences:
            counts = ", ".join(f"{name} {self.counts.confidences[name]}" for name in ("Full", "Partial", "Fallback"))
            lines.append(
                f"Output filters: {self.counts.lines_left_out} lines left out for the model; confidence: {counts}"
            )
        if self.counts.compressed:
            lines.append(f"Outputs compressed for the goal: {self.counts.compressed}")
        if self.counts.kept_aside:
            lines.append(f"Outputs stored in full: {self.counts.kept_aside}")
        return lines

    def _fitting(self, tool: str, view: str, digest: _Digest) -> str:
        """Returns the part of `view` that the model gets."""
        if self.config.profile == "short":
            if digest.streams is None or keeps(tool) == "tail":
                return shortened(view, keep=keeps(tool))
            streams = digest.streams
            if len(view) <= TEXT_CHARS:
                return view
            return shortened_streams(
                *(unlike_notes(sanitize_output(each)) for each in (streams.stdout, streams.stderr))
            )
        return bounded(view, result_chars(self.config))

    async def _kept(self, tool: str, digest: _Digest, *, left_out: bool) -> list[str]:
        """Stores the full text; returns the line with its reference."""
        clean = digest.clean
        if tool in NOT_KEPT or not (left_out or len(clean) > self.config.overflow.threshold):
            return []
        try:
            most = self.config.overflow.max_bytes
            entry: OverflowEntry = await self.store.do(self.store.keep, self.session_id, tool, clean, most)
        except StoreError as error:
            log.warning("an output could not be kept: %s", error)
            return ["[the full output could not be stored]"]
        self.counts.kept_aside += 1
        part = "all of it" if entry.complete else "its beginning and end"
        if digest.lost:
            part = "what was kept" if entry.complete else "a part"
        return [f"[{part}, {entry.chars} characters: overflow:{entry.id} (`read_overflow`)]"]

    # --- observations -----------------------------------------------------------------------------------------

    def observed(self, call: Call) -> ToolMessage:
        """The answer to a call as the model reads it: plain, or in the envelope."""
        self.counts.observations += 1
        message = call.outcome.result
        assert message is not None, "a call has a result before it is observed"
        if call.outcome.ran is not None:
            self.counts.commands += 1
        if self.config.observation == "plain":
            return message
        said = "\n".join(part.text for part in message.content if isinstance(part, TextPart))
        others = [part for part in message.content if not isinstance(part, TextPart)]
        if self.config.observation == "timestamp":
            ran, most = call.outcome.ran, self.config.envelope.output_chars
            code = ran.exit_code if ran is not None else None
            millis, stderr = time.time_ns() // 1_000_000, None
            if ran is not None and ran.stderr is not None:
                stderr = unlike_notes(sanitize_output(self.redactor.redact(ran.stderr)))
            text = stamped_text(
                said, ran=ran is not None, exit_code=code, output_chars=most, unix_millis=millis, stderr=stderr
            )
            return ToolMessage(message.call_id, message.name, (TextPart(text), *others))
        arguments: Any = call.ready.arguments if call.ready is not None else call.use.arguments
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
        script = arguments.get("command") if isinstance(arguments, dict) and call.name == "bash" else None
        ran = call.outcome.ran
        observation = Observation(
            schema="acp_coder.tool_observation.v1",
            timestamp=now(),
            session=ObservedSession(
                self.counts.since, self.counts.steps, self.counts.commands, self.counts.observations
            ),
            tool=ObservedTool(
                tool=call.name,
                call_id=call.use.id,
                command=self.redactor.redact(script) if isinstance(script, str) else None,
                workdir=ran.workdir if ran is not None else None,
                raw=self.redactor.redact(raw),
            ),
            result=ObservedResult(
                status=_status(call),
                exit_code=ran.exit_code if ran is not None else None,
                timed_out=ran is not None and ran.timed_out,
                interactive=isinstance(script, str) and load(WANTS_TERMINAL)(script) is not None,
                output=said,
            ),
        )
        envelope = self.config.envelope
        text = observation_text(observation, output_chars=envelope.output_chars, raw_chars=envelope.raw_chars)
        return ToolMessage(message.call_id, message.name, (TextPart(text), *others))


class _Envelope(Struct):
    session: ObservedSession


def _session_of(message: ToolMessage) -> ObservedSession | None:
    for part in message.content:
        if isinstance(part, TextPart):
            try:
                return read_json(part.text, type=_Envelope).session
            except msgspec.DecodeError:
                continue
    return None


def _status(call: Call) -> ResultStatus:
    if call.outcome.error is None:
        return "failed" if call.outcome.failed else "completed"
    if call.outcome.error.category == "cancelled":
        return "cancelled"
    return "denied" if call.outcome.error.category in ("policy_blocked", "confirmation_required") else "failed"


def _lines(text: str, *more: str) -> str:
    """`text` and below it each of the notes on its own line."""
    below = "\n".join(line for line in more if line)
    separator = "\n" if text and below and not text.endswith("\n") else ""
    return f"{text}{separator}{below}"
