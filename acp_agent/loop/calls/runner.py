"""The life of a tool call.

    find -> parse (arguments repaired once) -> emit(tool_call, pending)     for all calls of a message, then for each
    known to fail? -> PreToolUse -> access -> preview -> permit -> hook -> emit(in_progress) -> cached? else run,
    retried after a temporary error -> PostToolUse -> emit(completed | failed) -> hooks -> close its processes

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from msgspec import UNSET, Struct
from msgspec.structs import replace

from acp_agent import tracing
from acp_agent.disk import HERE
from acp_agent.errors import AgentError, ConfigError, ConnectionClosed, ExecutorError, HookFailed, ToolError
from acp_agent.legible import legible
from acp_agent.llm.base import TextPart, ToolMessage, ToolUse
from acp_agent.loop.beside.scheduler import Scheduler
from acp_agent.loop.calls.call import Call, Ran, Ready
from acp_agent.loop.calls.outputs import Outputs
from acp_agent.loop.calls.repeats import CallQuota, RepeatedFailures, call_key
from acp_agent.loop.calls.reports import CANCELLED, Reports, locations_of
from acp_agent.loop.calls.result_cache import Looks, ResultCache
from acp_agent.loop.calls.this_call import ThisCall
from acp_agent.loop.judging import judged
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.prompts.instructions import neutral
from acp_agent.loop.shell.session_shell import Shell
from acp_agent.loop.shell.workspaces import Project
from acp_agent.loop.toolbox.offer import LONGEST_NAME, THOUGHTS
from acp_agent.loop.toolbox.toolbox import Toolbox
from acp_agent.loop.undo.change_recorder import Window
from acp_agent.output.envelope import NO_OUTPUT, ShellOutput
from acp_agent.output.sanitize import unlike_notes
from acp_agent.safety.access import IN_PANE, PLACE, PLACED, Access, Ask, Deny, ExecuteAccess, PathAccess
from acp_agent.safety.deciding.decide import decide
from acp_agent.safety.deciding.deciders import CallFacts, Judgement
from acp_agent.safety.deciding.subjects import touched
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, TextContent
from acp_agent.tools.kit.failures import PARAMETERS, PASSING, as_tool_error
from acp_agent.tools.kit.other_forms import in_our_form
from acp_agent.tools.kit.registry import ToolEntry
from acp_agent.tools.kit.repair import read_arguments, repair
from acp_agent.tools.kit.tool_context import CommandOutput, Description, Preview, ToolContext, ToolResult, Verbatim
from acp_agent.tools.net.web_access import WebAccess

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_agent.loop.hooks.deciding_hooks import DecidingHooks
    from acp_agent.loop.hooks.hooks import Hooks
    from acp_agent.loop.session import Session

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
        session: Session,
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

    def _cache(self, shell: Shell) -> ResultCache:
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
            for together, group in groupby(calls, self._only_reads):
                if together:
                    places = anyio.CapacityLimiter(self.config.max_parallel_calls)
                    async with anyio.create_task_group() as tasks:
                        for call in group:
                            tasks.start_soon(self._run_in_turn, places, call)
                else:
                    for call in group:
                        await self.run(call)
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

    def _only_reads(self, call: Call) -> bool:
        entry = self.toolbox.registry.find(call.use.name)
        return entry is not None and entry.reads_only

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
            await self._life(call, ready, tasks)
            span.set(error__type=call.outcome.category or None)

    async def _run_in_turn(self, places: anyio.CapacityLimiter, call: Call) -> None:
        async with places:
            await self.run(call)

    async def run(self, call: Call) -> None:
        """Runs a reported call up to its last report; `call.outcome.result` is what the model gets."""
        if call.ready is None:
            self._ended(call)
            return
        try:
            async with anyio.create_task_group() as tasks:
                try:
                    await self._traced(call, call.ready, tasks)
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
            call.ready.shell.project.recorder.closed(call)
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
            wrong = f"The arguments of `{entry.name}` are not a JSON object. Call it again with a JSON object."
            reports.fail(call, ToolError(wrong, "invalid_parameters"))
            return
        try:
            arguments, params = _parsed(tool, entry, arguments)
            shell = await self._shell_for(entry, params)
        except ToolError as error:
            reports.announce(call, entry, Description(entry.name), arguments)
            self._failed(call, arguments, error)
            return
        description = await self._described(entry, tool, arguments, params, shell)
        reports.announce(call, entry, description, arguments)
        if blocked is not None:
            reports.fail(call, blocked)
            return
        call.ready = Ready(entry, tool, params, description, arguments, shell, self.conversation.above)

    async def _described(
        self, entry: ToolEntry, tool: Any, arguments: dict[str, Any], params: Any, shell: Shell
    ) -> Description:
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
        shell, place = self.shell, self._checked_place(entry, params)
        if place == shell.place:
            return shell
        if place not in shell.workspaces.apart:
            return shell.at(place)
        try:
            return await shell.apart(place)
        except (ExecutorError, ConfigError) as error:
            raise ToolError(f"{error}. Nothing was run, here or there.", "network_error") from error

    def _checked_place(self, entry: ToolEntry, params: Any) -> str:
        """The name of the workspace that the call is for. Raises ToolError if it cannot run there."""
        shell, home = self.shell, self.conversation.home
        given = getattr(params, PLACE, None) if entry.name in PLACED else None
        place: str = given or shell.place
        if any(getattr(params, name, None) for name in ("terminal", *IN_PANE)) and place != home:
            words = f"A program in a terminal runs where the session is (`{home}`), where it is judged."
            raise ToolError(words, "invalid_parameters", suggestion="Run it without `terminal`, or without `place`.")
        apart = place in shell.workspaces.apart
        if getattr(params, "background", False) and (apart or (given and shell.project.away)):
            words = (
                f"No command can stay in the background in `{place}`: this session's background commands are its own."
            )
            raise ToolError(words, "invalid_parameters", suggestion="Run it without `background`, or without `place`.")
        if place != shell.place and not apart and place not in shell.places:
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

    async def _life(self, call: Call, ready: Ready, tasks: TaskGroup) -> None:
        tool, params, shell, project = ready.tool, ready.params, ready.shell, ready.shell.project
        hooks, away = project.hooks, project.away
        ctx = self._context(call, shell, tasks)
        if (place := shell.confinement.place) is not None:
            tasks.start_soon(place.watch, partial(self.reports.say, call))
        begun = False
        try:
            if (remedy := self.failures.remedy(call.name, ready.arguments)) is not None:
                raise remedy
            if (reason := self.toolbox.offer.why_not(ready.entry)) is not None:
                raise ToolError(reason, "policy_blocked")
            if (deciding := hooks.deciding) is not None and deciding.any("PreToolUse"):
                call.ready = ready = await self._asked_hooks(call, ready, deciding)
                params = ready.params
            accesses = await judged(ctx.roots, lambda: tool.access(params, ctx.roots, shell.cwd(), self.config))
            preview = await tool.preview(params, ctx)
            accesses = list(dict.fromkeys((*accesses, *preview.accesses)))
            runs = any(isinstance(access, ExecuteAccess) for access in accesses)
            if runs:
                await shell.confinement.ready()
            hooked = None if ready.hooked is None else ready.hooked.said
            leaves = shell.place != self.conversation.home and (runs or (away and not ready.entry.reads_only))
            written, agent = call.use.written, self.reports.agent
            call.facts = CallFacts(
                call.name, ready.arguments, accesses, call.id, written, place, leaves, away, hooked, agent
            )
            said = await project.permissions.permit(call.facts, self.reports.question(call, ready, preview))
            if said.cancelled:
                self.reports.fail(call, ToolError(CANCELLED, "cancelled"))
                self.session.queue.cancel()
                return
            if not said.allowed:
                call.outcome.ends_turn = said.ends_turn
                raise ToolError(said.reason, said.category)
            call.waits.asked = said.asked or hooks.any
            preview = replace(preview, mode=said.mode)
            await anyio.lowlevel.checkpoint()  # A cancellation that arrived in the meantime takes effect first.
            begun = True
            call.began = time.monotonic()
            project.permissions.audit.began(call.facts)
            window = await project.recorder.window(call, accesses, hooks=hooks.any)
            await hooks.before(call.name, call.id, ready.arguments)
            self.reports.update(
                call,
                status="in_progress",
                content=list(preview.content) or UNSET,
                locations=locations_of(preview.locations) or UNSET,
            )
            folder = await judged(ctx.roots, shell.cwd)
            try:
                result = await self._run(call, ready, ctx, preview, accesses)
            finally:
                await self._look_after(window)
        except (AgentError, OSError) as error:
            if isinstance(error, ConnectionClosed):
                raise
            failure = as_tool_error(error)
            self.failures.failed(call.name, ready.arguments, failure)
            self.reports.fail(call, failure)
            if begun:
                await hooks.after(call.name, call.id, "failed")
        else:
            await self._completed(call, ready, result, accesses, folder)
            if hooks.any:
                await self._look_after(window)

    async def _asked_hooks(self, call: Call, ready: Ready, deciding: DecidingHooks) -> Ready:
        """The call as the hooks want it, which is shown if they changed it; `ready.hooked` gets what they decided."""
        shell, last = ready.shell, (ready.arguments, ready.params)
        roots = shell.roots

        def seen(arguments: dict[str, Any]) -> tuple[dict[str, Any], Any, tuple[str, ...] | None]:
            given, params = _parsed(ready.tool, ready.entry, arguments)
            if getattr(params, PLACE, None) != getattr(ready.params, PLACE, None):
                raise ToolError("a hook cannot move a call to another place")
            self._checked_place(ready.entry, params)
            accesses = ready.tool.access(params, roots, shell.cwd(), self.config)
            return given, params, touched(CallFacts(call.name, given, accesses), roots)

        async def spellings(arguments: dict[str, Any]) -> tuple[str, ...] | None:
            nonlocal last
            try:
                given, params, found = await judged(roots, partial(seen, arguments))
                last = given, params
                return found
            except ToolError as error:
                if arguments == ready.arguments:
                    raise  # As without hooks.
                raise HookFailed(f"the changed input cannot be used: {error}") from error

        facts = CallFacts(call.name, ready.arguments, (), call.id, agent=self.reports.agent)
        done = await deciding.pre_tool_use(facts, spellings)
        if done.stops is not None:
            call.outcome.ends_turn = True
            raise ToolError(done.stops if done.said is None else done.said.denial, "policy_blocked")
        if done.arguments is None:
            return replace(ready, hooked=done)
        arguments, params = last
        description = await self._described(ready.entry, ready.tool, arguments, params, shell)
        locations = locations_of(description.locations)
        self.reports.update(call, title=legible(description.title), raw_input=arguments, locations=locations)
        if (remedy := self.failures.remedy(call.name, arguments)) is not None:
            raise remedy
        return replace(ready, params=params, description=description, arguments=arguments, hooked=done)

    async def _told_hooks(self, call: Call, ready: Ready, result: ToolResult) -> ToolResult:
        """The result with what the hooks add to it for the model."""
        context, ends = [] if ready.hooked is None else ready.hooked.context, False
        deciding, roots = ready.shell.hooks.deciding, ready.shell.roots
        if deciding is not None and deciding.any("PostToolUse") and call.facts is not None:
            raw = result.raw_output if isinstance(result.raw_output, dict) else {}
            response = {**raw, "content": result.text, "success": not result.failed}
            spellings = await judged(roots, partial(touched, call.facts, roots))
            done = await deciding.post_tool_use(call.facts, response, spellings)
            context, ends = [*context, *done.context], done.stops is not None
            if done.stops is not None:
                context = [*context, done.stops]
        if not context:
            return result
        text = "\n\n".join((result.text, *context))
        return replace(result, text=text, content=_shown(result), ends_turn=result.ends_turn or ends)

    async def _completed(
        self, call: Call, ready: Ready, result: ToolResult, accesses: Sequence[Access], folder: Path
    ) -> None:
        """Reports what a call returned that ran in `folder`."""
        shell, roots = ready.shell, ready.shell.roots
        if (printed := result.command) is not None and ready.entry.kind == "execute":
            confined = any(isinstance(access, ExecuteAccess) and access.confined for access in accesses)
            denied = shell.confinement.denied(printed.combined, folder) if confined else ()
            merged = any(each.view is not None or each.terminal is not None for each in call.processes)
            stderr = None if merged else printed.streams.stderr
            call.outcome.ran = Ran(str(folder), printed.streams.exit_code, printed.timed_out, denied, stderr)
        if changed := shell.project.recorder.note(call):  # Before it is put into any other form.
            text = f"{result.text.removesuffix(chr(10))}\n{changed}".lstrip("\n")
            result = replace(result, text=text, content=result.content if printed is not None else _shown(result))
        treated = await self.outputs.treat(call.name, result)
        call.outcome.cut = treated.cut
        result = replace(treated.result, text=neutral(treated.result.text))
        ours = shell.project is self.shell.project
        paths = [access.path for access in accesses if ours and isinstance(access, PathAccess)]
        more, now = "", folder
        try:
            more = await judged(roots, partial(self.memory.instructions_for, paths))
            now = await judged(roots, shell.cwd)
        except ExecutorError as error:  # What was done is done, even if the host does not answer any more.
            log.warning("after a call of %s: %s", call.name, error)
        if told := self.outputs.redactor.redact(more):
            result = replace(result, text=f"{result.text}\n\n{told}", content=_shown(result))
        result = await self._told_hooks(call, ready, result)
        if said := call.outcome.looked.uncovered:
            shown = (*_shown(result), Content(content=TextContent(text=said)))
            result = replace(result, content=shown, notes=(*result.notes, said))
        self.reports.complete(call, result)
        if not result.failed:
            self.toolbox.offer.succeeded(call.name)
        if result.error is not None:
            call.outcome.category = result.error.category
            self.failures.failed(call.name, ready.arguments, result.error)
        elif self.failures.any and _changes(accesses, roots):
            self.failures.changed()
        await _tell_hooks(shell.hooks, call, result, accesses, folder, now)

    async def _look_after(self, window: Window | None) -> None:
        """Whatever happened to the call, what it changed is recorded."""
        if window is not None:
            with anyio.CancelScope(shield=True):
                await window.look()

    # --- the run ----------------------------------------------------------------------------------------------

    async def _run(
        self, call: Call, ready: Ready, ctx: ToolContext, preview: Preview, accesses: Sequence[Access]
    ) -> ToolResult:
        """Returns the tool's result, new or cached; a repeatable call is retried after a temporary error."""
        tool, params = ready.tool, ready.params
        if not ready.entry.idempotent:
            if not ready.entry.reads_only and _changes(accesses, ready.shell.roots):
                self._cache(ready.shell).changed()
            return _marked(await tool.run(params, ctx, preview))
        cache, retry = self._cache(ready.shell), self.config.retry
        key = call_key(call.name, ready.arguments)
        if (known := await cache.find(key)) is not None:
            return known
        paths = await cache.look(accesses)
        for attempt in range(retry.attempts + 1):
            begun = anyio.current_time()
            try:
                result = _marked(await tool.run(params, ctx, preview))
            except (ToolError, OSError) as error:
                failure = as_tool_error(error)
                wait = failure.retry_after or min(retry.base_delay * 2**attempt, retry.max_delay)
                took_long = (
                    anyio.current_time() - begun > retry.max_delay
                )  # Waiting that long several times is too long.
                if failure.category not in PASSING or attempt == retry.attempts or wait > retry.max_delay or took_long:
                    raise failure from error
                self.reports.say(call, f"{failure}\nTrying again in {wait:g} s.")
                await anyio.sleep(wait)
            else:
                cache.keep(key, result, paths)
                return result
        raise AssertionError("the last attempt returns or raises")

    # --- what a tool is given ---------------------------------------------------------------------------------

    def _context(self, call: Call, shell: Shell, tasks: TaskGroup) -> ToolContext:
        return ToolContext(
            call=ThisCall(self, call, shell, tasks),
            files=shell.project.recorder.files(call, shell.files),
            roots=shell.roots,
            config=self.config,
            shell=shell,
            memory=self.memory,
            languages=shell.project.languages,
            web=self.web,
            scheduler=self.scheduler,
            toolbox=self.toolbox,
            redactor=self.outputs.redactor,
        )


def _marked(result: ToolResult) -> ToolResult:
    """With a mark before what looks like one of the agent's own lines; an output of a command gets it later."""
    as_it_is = isinstance(result.text, Verbatim) or result.command is not None
    return result if as_it_is else replace(result, text=unlike_notes(result.text))


def _shown(result: ToolResult) -> Sequence[Any]:
    return (Content(content=TextContent(text=result.text)),) if result.content is None else result.content


def _parsed(tool: Any, entry: ToolEntry, arguments: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The arguments and the parameters parsed from them. Malformed arguments are repaired once."""
    if THOUGHTS not in (entry.parameters.get("properties") or {}):
        arguments.pop(THOUGHTS, None)
    try:
        return arguments, tool.parse(arguments)
    except ToolError as error:
        if error.category not in PARAMETERS:
            raise
        ours = tool.from_other_form(arguments)
        repaired = repair(ours, entry.parameters) or ours
        if repaired is arguments:
            raise
        try:
            return repaired, tool.parse(repaired)
        except ToolError:
            raise error from None


def _changes(accesses: Sequence[Access], roots: Roots) -> bool:
    """Whether a call that touches these may have changed something: all except read-only access."""
    verdict = decide(accesses, roots, mode="code", may_change=True)
    return isinstance(verdict, Ask) and verdict.changes


async def _tell_hooks(
    hooks: Hooks, call: Call, result: ToolResult, accesses: Sequence[Access], before: Any, after: Any
) -> None:
    for access in accesses:
        if isinstance(access, PathAccess) and access.mode != "read":
            await hooks.file_changed(call.name, call.id, access.path)
    if before != after and any(isinstance(access, ExecuteAccess) for access in accesses):
        await hooks.cwd_changed(call.name, call.id, before, after)
    await hooks.after(call.name, call.id, "failed" if result.failed else "completed")
