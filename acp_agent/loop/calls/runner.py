"""The calls of one message of the model: each is found, parsed and reported, then each runs (`call_pipeline.py`).

The first report already has title, kind, locations and rawInput. Whatever happens, a reported call gets exactly one
final status, and what it started is closed after that (a client shows a terminal until it is released). A background
command then belongs to the session (`background_runs.py`), and so does the call's card. Read-only calls of one model
message run concurrently; others run in the model's order.

One of the few places with `except Exception`: a tool that breaks is a failed call, never a broken turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from acp_agent import tracing
from acp_agent.disk import HERE
from acp_agent.errors import ConfigError, ConnectionClosed, ExecutorError, ToolError
from acp_agent.llm.base import TextPart, ToolMessage, ToolUse
from acp_agent.loop.beside.scheduler import Scheduler
from acp_agent.loop.calls.call import Call, Ready
from acp_agent.loop.calls.call_pipeline import CallPipeline, parsed
from acp_agent.loop.calls.outputs import Outputs
from acp_agent.loop.calls.repeats import CallQuota, RepeatedFailures
from acp_agent.loop.calls.reports import CANCELLED, Reports
from acp_agent.loop.calls.result_cache import Looks, ResultCache
from acp_agent.loop.judging import judged
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.model.ready_model import SessionModels
from acp_agent.loop.shell.session_shell import Shell
from acp_agent.loop.shell.workspaces import Project
from acp_agent.loop.toolbox.offer import LONGEST_NAME
from acp_agent.loop.toolbox.toolbox import Toolbox
from acp_agent.output.envelope import NO_OUTPUT, ShellOutput
from acp_agent.safety.access import IN_PANE, PLACE, PLACED, Deny
from acp_agent.safety.deciding.deciders import CallFacts, Judgement
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.failures import wrong_arguments
from acp_agent.tools.kit.other_forms import in_our_form
from acp_agent.tools.kit.registry import OF_CONVERSATION, ToolEntry
from acp_agent.tools.kit.repair import read_arguments
from acp_agent.tools.kit.tool_context import CommandOutput, Description, ToolResult
from acp_agent.tools.net.web_access import WebAccess

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_agent.loop.session_state import SessionState

log = logging.getLogger(__name__)

NOT_RUN = "The call was not run: the turn was cancelled first."

NOT_ANSWERED = "The call was not run: the user has not answered an earlier question."


class RoundResult(Struct, frozen=True):
    """The outcome of running the calls of one message."""

    ends_turn: bool
    """The user has to continue."""
    progress: bool
    """Something was changed."""


class Conversation(Struct, frozen=True):
    """One history with a model, of a session or of a sub-agent, and what belongs to it wherever its calls run."""

    memory: Memory
    models: SessionModels
    toolbox: Toolbox
    reports: Reports
    quota: CallQuota
    """Of the session, with its sub-agents."""
    failures: RepeatedFailures
    home: str
    """The place where the session is."""
    above: tuple[str, ...] = ()
    """The calls that it works for, the outermost first; of the session itself none."""

    @property
    def depth(self) -> int:
        return len(self.above)


class Calls:
    """The calls of a conversation: a session's own, or (`of`) that of a sub-agent in it. `shell`: where they run unless
    they say otherwise."""

    def __init__(
        self,
        session: SessionState,
        conversation: Conversation,
        shell: Shell,
        web: WebAccess,
        scheduler: Scheduler,
        outputs: Outputs,
    ) -> None:
        self.session = session
        self.config = session.config.settings.tools
        self.conversation = conversation
        self.toolbox = conversation.toolbox
        self.memory = conversation.memory
        self.reports = conversation.reports
        self.quota = conversation.quota
        self.failures = conversation.failures
        self.shell = shell
        self.web = web
        self.scheduler = scheduler
        self.outputs = outputs
        self._caches: dict[Project, ResultCache] = {}

    def cache(self, shell: Shell) -> ResultCache:
        """Of results that read the files of the shell's project."""
        if (known := self._caches.get(shell.project)) is None:
            looks = Looks(shell.files, buffers=shell.offer.read_text, here=shell.roots.disk.here)
            enabled, ttl = self.config.result_cache.enabled, self.config.result_cache.ttl
            known = self._caches[shell.project] = ResultCache(looks, enabled=enabled, ttl=ttl)
        return known

    def of(self, conversation: Conversation, shell: Shell) -> Calls:
        """Those of another conversation in the same session."""
        return Calls(self.session, conversation, shell, self.web, self.scheduler, self.outputs)

    def forget(self) -> None:
        """The model has forgotten the conversation: resets what depends on it."""
        self.quota.reset()
        self._caches.clear()

    async def run_all(self, uses: Sequence[ToolUse], add: Callable[[ToolMessage], None]) -> RoundResult:
        """Runs the calls of one model message; `add` gets one result for each, in the model's order, in any case.

        All are reported before the first one runs, so the user sees what is coming.
        """
        calls = [Call(use) for use in uses]
        outputs = self.outputs
        outputs.counts.steps += 1
        blocked = self.quota.take()
        not_run = NOT_RUN
        try:
            for call in calls:
                await self._report(call, blocked)
            for together, group in groupby(calls, self._together):
                if together:
                    places = anyio.CapacityLimiter(self.config.max_parallel_calls)
                    async with anyio.create_task_group() as tasks:
                        for call in group:
                            tasks.start_soon(self._run_in_turn, places, call)
                else:
                    for call in group:
                        await self.run(call)
                        if call.outcome.ends_turn:
                            break
                if any(call.outcome.ends_turn for call in calls):
                    not_run = NOT_ANSWERED
                    break
        finally:
            for call in calls:
                self.reports.fail(call, ToolError(not_run, "cancelled"))
                call.outcome.result = call.outcome.result or ToolMessage(
                    call.use.id, call.use.name, (TextPart(not_run),)
                )
                self._audit(call)
                add(outputs.observed(call))
        return RoundResult(any(call.outcome.ends_turn for call in calls), any(self._progressed(call) for call in calls))

    def _together(self, call: Call) -> bool:
        """Whether it runs beside others: it only reads, and asks the user nothing."""
        entry = self.toolbox.registry.find(call.use.name)
        return entry is not None and entry.reads_only and entry.name not in OF_CONVERSATION

    def _progressed(self, call: Call) -> bool:
        """Whether a call changed something, or succeeded without output."""
        if (
            call.outcome.error is not None
            or call.outcome.result is None
            or call.ready is None
            or call.ready.entry.reads_only
        ):
            return False
        said = "".join(part.text for part in call.outcome.result.content if isinstance(part, TextPart))
        return call.ready.entry.kind != "execute" or said.strip() == NO_OUTPUT

    async def _traced(self, call: Call, ready: Ready, tasks: TaskGroup) -> None:
        about = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": call.name}
        with tracing.span(f"execute_tool {call.name}", **about, gen_ai__tool__call__id=call.id) as span:
            await CallPipeline(self, call, ready, tasks).run()
            span.set(error__type=call.outcome.category or None)

    async def _run_in_turn(self, places: anyio.CapacityLimiter, call: Call) -> None:
        async with places:
            await self.run(call)

    async def run(self, call: Call) -> None:
        """Runs a reported call up to its last report; `call.outcome.result` is what the model gets."""
        if call.ready is None:
            self._ended(call)
            return
        with self.session.queue.call(call.id):
            await self._run(call, call.ready)

    async def _run(self, call: Call, ready: Ready) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                try:
                    await self._traced(call, ready, tasks)
                except ConnectionClosed:
                    self.reports.fail(call, ToolError("The connection to the editor was closed.", "cancelled"))
                except Exception as error:
                    log.exception("the tool %s crashed", call.name)
                    self.reports.fail(call, ToolError(f"The tool crashed: {type(error).__name__}: {error}"))
                finally:
                    tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._stop(call)
            await self._cancelled(call)
            raise
        finally:
            self._ended(call)
            ready.shell.project.recorder.closed(call)
            if call.goes_on is not None:
                self.shell.runs.watch(call.goes_on)
            with anyio.CancelScope(shield=True):
                try:
                    for process in call.processes:
                        await process.close()
                finally:
                    for _ in call.processes:
                        self.shell.runs.programs.give()
            call.processes.clear()  # The call may be collected much later, and the output is large.

    def _ended(self, call: Call) -> None:
        self._audit(call)
        seen = (call.ready.shell if call.ready is not None else self.shell).project.recorder.enabled
        self.shell.turn.facts.ended(call, seen=seen, below=self.conversation.depth > 0)

    def _audit(self, call: Call) -> None:
        """Logs the outcome of a call; a refused one was logged with the decision."""
        audit = (call.ready.shell if call.ready is not None else self.shell).project.permissions.audit
        facts, known = call.facts, call.facts is not None
        if call.outcome.audited or not call.reported or (known and call.began is None and not call.outcome.cancelled):
            return
        call.outcome.audited = True
        if facts is None:
            facts = CallFacts(call.name, {"arguments": call.use.arguments}, (), call.id)
        text = (
            "".join(part.text for part in call.outcome.result.content if isinstance(part, TextPart))
            if call.outcome.result
            else ""
        )
        category = call.outcome.error.category if call.outcome.error is not None else call.outcome.category
        if not known and category == "policy_blocked":
            refused = Judgement(Deny(str(call.outcome.error), "the tool refuses"))
            facts = CallFacts(call.name, call.ready.arguments if call.ready else facts.arguments, (), call.id)
            audit.refused(facts, refused, "the tool refuses", str(call.outcome.error))
            return
        cancelled = call.outcome.cancelled or category == "cancelled"
        failed = call.outcome.failed or call.outcome.error is not None
        audit.ended(
            facts,
            "cancelled" if cancelled else "failed" if failed else "completed",
            error=category,
            arguments=None if known else call.use.arguments,
            broke=call.outcome.error is not None or category == "timeout",
            failed=failed,
            exit_code=call.outcome.ran.exit_code if call.outcome.ran is not None else None,
            denied_paths=call.outcome.ran.denied if call.outcome.ran is not None else None,
            truncated=call.outcome.cut or None,
            duration_ms=None if call.began is None else round((time.monotonic() - call.began) * 1000),
            output=text,
        )

    async def _stop(self, call: Call) -> None:
        """Ends what the call started; its last output stays visible."""
        for process in call.processes:
            try:
                await process.kill()
            except ConnectionClosed:
                pass  # The editor is gone, and its terminals with it.

    async def _cancelled(self, call: Call) -> None:
        """Ends a call that was stopped; what its command had printed is kept."""
        call.outcome.cancelled = True
        if not call.processes or call.outcome.ended:
            self.reports.fail(call, ToolError(CANCELLED, "cancelled"))
            return
        process = call.processes[-1]
        streams = ShellOutput(process.stdout, process.stderr, None, process.truncated)
        printed = CommandOutput(call.use.name, streams, process.combined, running=True, lost=process.lost)
        error = ToolError(CANCELLED, "cancelled")
        result = ToolResult(f"[{CANCELLED}]", command=printed, failed=True, error=error)
        treated = await self.outputs.treat_plainly(call.name, result)
        call.outcome.cut = treated.cut
        self.reports.complete(call, treated.result)

    # --- before it runs ---------------------------------------------------------------------------------------

    async def _report(self, call: Call, blocked: ToolError | None) -> None:
        """Announces the call; one that cannot work fails right away, also if the tool itself is broken."""
        try:
            await self._look(call, blocked)
        except Exception as error:
            log.exception("the tool %s crashed before it ran", call.name)
            if not call.reported:
                self.reports.announce(call, None, Description(call.name[:LONGEST_NAME]), call.use.arguments)
            self.reports.fail(call, ToolError(f"The tool crashed: {type(error).__name__}: {error}"))

    async def _look(self, call: Call, blocked: ToolError | None) -> None:
        registry, reports = self.toolbox.registry, self.reports
        given = read_arguments(call.use.arguments)
        name = call.use.name
        try:
            name, arguments = in_our_form(name, given, known=registry.find(name) is not None)
        except ToolError as error:
            reports.announce(call, None, Description(call.use.name[:LONGEST_NAME]), given)
            reports.fail(call, error)
            return
        entry = registry.find(name)
        call.name = entry.name if entry is not None else call.use.name
        if entry is None:
            reports.announce(call, None, Description(f"Unknown tool {call.use.name[:LONGEST_NAME]}"), given)
            reports.fail(call, self.toolbox.offer.unknown(call.use.name))
            return
        tool = registry.loaded(entry.name)
        if tool is None:  # The first call of a process may come before the tools were loaded in the background.
            tool = await anyio.to_thread.run_sync(registry.tool, entry.name)
        if not isinstance(arguments, dict):
            arguments = (tool.from_text(arguments) if isinstance(arguments, str) else None) or call.use.arguments
        if isinstance(arguments, str):
            reports.announce(call, entry, Description(f"{entry.name} (arguments are not a JSON object)"), arguments)
            wrong = f"The arguments of `{entry.name}` are not a JSON object."
            reports.fail(call, wrong_arguments(wrong, suggestion="Call it again with a JSON object."))
            return
        try:
            arguments, params = parsed(tool, entry, arguments)
            shell = await self._shell_for(entry, params)
        except ToolError as error:
            reports.announce(call, entry, Description(entry.name), arguments)
            self._failed(call, arguments, error)
            return
        description = await self.described(entry, tool, arguments, params, shell)
        reports.announce(call, entry, description, arguments)
        if blocked is not None:
            reports.fail(call, blocked)
            return
        call.ready = Ready(entry, tool, params, description, arguments, shell, self.conversation.above)

    async def described(
        self, entry: ToolEntry, tool: Any, arguments: dict[str, Any], params: Any, shell: Shell
    ) -> Description:
        """What its tool says of it, and where it runs, if that is not where the user expects it."""
        roots, place = shell.roots, shell.confinement.place
        description = await judged(roots, partial(self._describe, tool, arguments, params, roots))
        other = shell is not self.shell or shell.project.away
        named = entry.kind == "execute" or other or (not roots.disk.here and description.locations)
        if named and (place is not None or other):
            where = HERE.where if place is None else place.where
            description = replace(description, title=f"{description.title} ({where})")
        return description

    async def _shell_for(self, entry: ToolEntry, params: Any) -> Shell:
        """That of the workspace that the call names, if it does. Raises ToolError."""
        shell, place = self.shell, self.checked_place(entry, params)
        if place == shell.place:
            return shell
        if place not in shell.workspaces.apart:
            return shell.at(place)
        try:
            return await shell.apart(place)
        except (ExecutorError, ConfigError) as error:
            raise ToolError(f"{error}. Nothing was run, here or there.", "network_error") from error

    def checked_place(self, entry: ToolEntry, params: Any) -> str:
        """The name of the workspace that the call is for. Raises ToolError if it cannot run there."""
        shell, home = self.shell, self.conversation.home
        place: str = (getattr(params, PLACE, None) if entry.name in PLACED else None) or shell.place
        if any(getattr(params, name, None) for name in ("terminal", *IN_PANE)) and place != home:
            words = f"A program in a terminal runs where the session is (`{home}`), where it is judged."
            raise ToolError(words, "invalid_parameters", suggestion="Run it without `terminal`, or without `place`.")
        if place not in (shell.place, *shell.places):
            known = ", ".join(f"`{name}`" for name in (shell.place, *shell.places))
            raise ToolError(f"No single call can run in the place `{place}`; it can in {known}.", "invalid_parameters")
        return place

    def _describe(self, tool: Any, arguments: dict[str, Any], params: Any, roots: Roots) -> Description:
        """From redacted arguments, since titles are often cut."""
        plain = self.outputs.redactor.value(arguments)
        if plain is not arguments:
            with suppress(ToolError):
                params = tool.parse(plain)
        description: Description = tool.describe(params, roots)
        return description

    def _failed(self, call: Call, arguments: object, error: ToolError) -> None:
        remedy = self.failures.remedy(call.name, arguments)
        self.failures.failed(call.name, arguments, error)
        self.reports.fail(call, remedy or error)
