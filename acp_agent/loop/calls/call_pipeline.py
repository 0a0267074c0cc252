"""The life of one tool call, from its first check to its last report: `CallPipeline.run` lists the steps."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from msgspec import UNSET
from msgspec.structs import replace

from acp_agent.errors import AgentError, ConnectionClosed, ExecutorError, HookFailed, ToolError
from acp_agent.legible import legible
from acp_agent.loop.calls.call import Call, Ran, Ready
from acp_agent.loop.calls.repeats import call_key
from acp_agent.loop.calls.reports import CANCELLED, locations_of
from acp_agent.loop.calls.this_call import ThisCall
from acp_agent.loop.judging import judged
from acp_agent.loop.prompts.instructions import neutral
from acp_agent.loop.toolbox.offer import THOUGHTS
from acp_agent.output.sanitize import unlike_notes
from acp_agent.safety.access import PLACE, Access, Ask, ExecuteAccess, ModeAccess, PathAccess
from acp_agent.safety.deciding.decide import decide
from acp_agent.safety.deciding.deciders import CallFacts
from acp_agent.safety.deciding.subjects import touched
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, TextContent
from acp_agent.tools.kit.failures import PARAMETERS, PASSING, as_tool_error
from acp_agent.tools.kit.registry import ToolEntry
from acp_agent.tools.kit.repair import repair
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult, Verbatim

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_agent.loop.calls.runner import Calls
    from acp_agent.loop.undo.change_recorder import Window

log = logging.getLogger(__name__)


class CancelledByClient(Exception):
    """The client answered a question with the turn's end."""


class CallPipeline:
    """Of one call, among `calls`. `tasks` end with it."""

    def __init__(self, calls: Calls, call: Call, ready: Ready, tasks: TaskGroup) -> None:
        self._calls = calls
        self._call = call
        self._ready = ready
        self._tasks = tasks
        self._shell = ready.shell
        self._project = ready.shell.project
        self._hooks = ready.shell.project.hooks
        self._roots = ready.shell.roots
        self._ctx = self._context()
        self._accesses: list[Access] = []
        self._preview = Preview()
        self._began = False
        """Whether the hooks know that it began."""
        self._window: Window | None = None
        self._folder = Path()
        """In which it runs."""
        self._result = ToolResult("")

    async def run(self) -> None:
        """The steps, in their order. What goes wrong before it has run ends it."""
        calls, call = self._calls, self._call
        if (place := self._shell.confinement.place) is not None:
            self._tasks.start_soon(place.watch, partial(calls.reports.say, call))
        try:
            for step in (
                self._check_failures,
                self._check_offer,
                self._ask_hooks,
                self._state_accesses,
                self._ask_permission,
                self._begin,
                self._run_tool,
            ):
                await step()
        except CancelledByClient:
            calls.reports.fail(call, ToolError(CANCELLED, "cancelled"))
            calls.session.queue.cancel()
        except (AgentError, OSError) as error:
            if isinstance(error, ConnectionClosed):
                raise
            failure = as_tool_error(error)
            calls.failures.failed(call.name, self._ready.arguments, failure)
            calls.reports.fail(call, failure)
            if self._began:
                await self._hooks.after(call.name, call.id, "failed")
        else:
            for step in (
                self._note_command,
                self._note_changes,
                self._treat_output,
                self._add_instructions,
                self._tell_deciding_hooks,
                self._report,
                self._learn,
                self._tell_hooks,
            ):
                await step()

    # --- before it runs ---------------------------------------------------------------------------------------

    async def _check_failures(self) -> None:
        """The same call has failed, and nothing has changed since."""
        if (remedy := self._calls.failures.remedy(self._call.name, self._ready.arguments)) is not None:
            raise remedy

    async def _check_offer(self) -> None:
        if (reason := self._calls.toolbox.offer.why_not(self._ready.entry)) is not None:
            raise ToolError(reason, "policy_blocked")

    async def _ask_hooks(self) -> None:
        """The call becomes what the hooks want, which is shown; `hooked` gets what they decided."""
        if (deciding := self._hooks.deciding) is None or not deciding.any("PreToolUse"):
            return
        calls, call, ready, roots = self._calls, self._call, self._ready, self._roots
        last = ready.arguments, ready.params

        def seen(arguments: dict[str, Any]) -> tuple[dict[str, Any], Any, tuple[str, ...] | None]:
            given, params = parsed(ready.tool, ready.entry, arguments)
            if getattr(params, PLACE, None) != getattr(ready.params, PLACE, None):
                raise ToolError("a hook cannot move a call to another place")
            calls.checked_place(ready.entry, params)
            accesses = ready.tool.access(params, roots, self._shell.cwd(), calls.config)
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

        facts = CallFacts(call.name, ready.arguments, (), call.id, agent=calls.reports.agent)
        done = await deciding.pre_tool_use(facts, spellings)
        if done.stops is not None:
            call.outcome.ends_turn = True
            raise ToolError(done.stops if done.said is None else done.said.denial, "policy_blocked")
        call.ready = self._ready = replace(ready, hooked=done)
        if done.arguments is None:
            return
        arguments, params = last
        description = await calls.described(ready.entry, ready.tool, arguments, params, self._shell)
        locations = locations_of(description.locations)
        calls.reports.update(call, title=legible(description.title), raw_input=arguments, locations=locations)
        if (remedy := calls.failures.remedy(call.name, arguments)) is not None:
            raise remedy
        call.ready = self._ready = replace(self._ready, params=params, description=description, arguments=arguments)

    async def _state_accesses(self) -> None:
        """What it will touch, and what it would do."""
        tool, params, shell, roots = self._ready.tool, self._ready.params, self._shell, self._roots
        accesses = await judged(roots, lambda: tool.access(params, roots, shell.cwd(), self._calls.config))
        self._preview = await tool.preview(params, self._ctx)
        self._accesses = list(dict.fromkeys((*accesses, *self._preview.accesses)))

    async def _ask_permission(self) -> None:
        calls, call, ready, shell = self._calls, self._call, self._ready, self._shell
        runs = any(isinstance(access, ExecuteAccess) for access in self._accesses)
        if runs:
            await shell.confinement.ready()
        hooked, away = None if ready.hooked is None else ready.hooked.said, self._project.away
        leaves = shell.place != calls.conversation.home and (runs or (away and not ready.entry.reads_only))
        about = call.use.written, shell.confinement.place, leaves, away, hooked, calls.reports.agent
        call.facts = CallFacts(call.name, ready.arguments, self._accesses, call.id, *about)
        question = calls.reports.question(call, ready, self._preview)
        goals, allowed = self._ctx.memory.goals, False
        proposes = any(isinstance(access, ModeAccess) for access in self._accesses)
        if proposes:
            goals.propose(ready.params.plan.strip())
        try:
            said = await self._project.permissions.permit(call.facts, question)
            allowed = said.allowed
        finally:
            if proposes and not allowed:
                goals.withdraw()
        if said.cancelled:
            raise CancelledByClient
        if not said.allowed:
            call.outcome.ends_turn = said.ends_turn
            raise ToolError(said.reason, said.category, suggestion=said.suggestion, shown=said.shown)
        call.waits.asked = said.asked or self._hooks.any
        self._preview = replace(self._preview, mode=said.mode)
        await anyio.lowlevel.checkpoint()  # A cancellation that arrived in the meantime takes effect first.

    async def _begin(self) -> None:
        """Everybody knows that it begins: the audit log, undo, hooks, the client."""
        call, project, preview = self._call, self._project, self._preview
        assert call.facts is not None, "it was decided about"
        self._began, call.began = True, time.monotonic()
        project.permissions.audit.began(call.facts)
        self._window = await project.recorder.window(call, self._accesses, hooks=self._hooks.any)
        await self._hooks.before(call.name, call.id, self._ready.arguments)
        self._calls.reports.update(
            call,
            status="in_progress",
            content=list(preview.content) or UNSET,
            locations=locations_of(preview.locations) or UNSET,
        )
        self._folder = await judged(self._roots, self._shell.cwd)

    # --- the run ----------------------------------------------------------------------------------------------

    async def _run_tool(self) -> None:
        try:
            self._result = await self._result_of()
        finally:
            await self._look_after()

    async def _look_after(self) -> None:
        """Whatever happened to the call, what it changed is recorded."""
        if self._window is not None:
            with anyio.CancelScope(shield=True):
                await self._window.look()

    async def _result_of(self) -> ToolResult:
        """Returns the tool's result, new or cached; a repeatable call is retried after a temporary error."""
        calls, ready, accesses, ctx, preview = self._calls, self._ready, self._accesses, self._ctx, self._preview
        tool, params = ready.tool, ready.params
        if not ready.entry.idempotent:
            if not ready.entry.reads_only and _changes(accesses, self._roots):
                calls.cache(self._shell).changed()
            return _marked(await tool.run(params, ctx, preview))
        results, retry = calls.cache(self._shell), calls.config.retry
        key = call_key(self._call.name, ready.arguments)
        if (known := await results.find(key)) is not None:
            return known
        paths = await results.look(accesses)
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
                calls.reports.say(self._call, f"{failure}\nTrying again in {wait:g} s.")
                await anyio.sleep(wait)
            else:
                results.keep(key, result, paths)
                return result
        raise AssertionError("the last attempt returns or raises")

    # --- after it has run -------------------------------------------------------------------------------------

    async def _note_command(self) -> None:
        """How its command ended."""
        printed, call = self._result.command, self._call
        if printed is None or self._ready.entry.kind != "execute":
            return
        confined = any(isinstance(access, ExecuteAccess) and access.confined for access in self._accesses)
        denied = self._shell.confinement.denied(printed.combined, self._folder) if confined else ()
        merged = any(each.view is not None or each.terminal is not None for each in call.processes)
        stderr = None if merged else printed.streams.stderr
        call.outcome.ran = Ran(str(self._folder), printed.streams.exit_code, printed.timed_out, denied, stderr)

    async def _note_changes(self) -> None:
        """What its command changed: before the text is put into any other form."""
        if changed := self._project.recorder.note(self._call):
            result = self._result
            text = f"{result.text.removesuffix(chr(10))}\n{changed}".lstrip("\n")
            content = result.content if result.command is not None else _shown(result)
            self._result = replace(result, text=text, content=content)

    async def _treat_output(self) -> None:
        treated = await self._calls.outputs.treat(self._call.name, self._result)
        self._call.outcome.cut = treated.cut
        self._result = replace(treated.result, text=neutral(treated.result.text))

    async def _add_instructions(self) -> None:
        """Those of the folders that it touched, which the model has not seen."""
        calls = self._calls
        paths = [access.path for access in self._accesses if isinstance(access, PathAccess)]
        if not paths or self._project is not calls.shell.project:
            return
        more = ""
        try:
            more = await judged(self._roots, partial(calls.memory.instructions_for, paths))
        except ExecutorError as error:  # What was done is done, even if the host does not answer any more.
            log.warning("after a call of %s: %s", self._call.name, error)
        if told := calls.outputs.redactor.redact(more):
            result = self._result
            self._result = replace(result, text=f"{result.text}\n\n{told}", content=_shown(result))

    async def _tell_deciding_hooks(self) -> None:
        """Who may add something for the model."""
        call, ready, result = self._call, self._ready, self._result
        context, ends = [] if ready.hooked is None else ready.hooked.context, False
        deciding, roots = self._hooks.deciding, self._roots
        if deciding is not None and deciding.any("PostToolUse") and call.facts is not None:
            raw = result.raw_output if isinstance(result.raw_output, dict) else {}
            response = {**raw, "content": result.text, "success": not result.failed}
            spellings = await judged(roots, partial(touched, call.facts, roots))
            done = await deciding.post_tool_use(call.facts, response, spellings)
            context, ends = [*context, *done.context], done.stops is not None
            if done.stops is not None:
                context = [*context, done.stops]
        if context:
            text = "\n\n".join((result.text, *context))
            ends = result.ends_turn or ends
            self._result = replace(result, text=text, content=_shown(result), ends_turn=ends)

    async def _report(self) -> None:
        result = self._result
        if said := self._call.outcome.looked.uncovered:
            shown = (*_shown(result), Content(content=TextContent(text=said)))
            result = self._result = replace(result, content=shown, notes=(*result.notes, said))
        self._calls.reports.complete(self._call, result)

    async def _learn(self) -> None:
        """What it means for the next calls."""
        calls, call, result = self._calls, self._call, self._result
        if not result.failed:
            calls.toolbox.offer.succeeded(call.name)
        if result.error is not None:
            call.outcome.category = result.error.category
            calls.failures.failed(call.name, self._ready.arguments, result.error)
        elif calls.failures.any and _changes(self._accesses, self._roots):
            calls.failures.changed()

    async def _tell_hooks(self) -> None:
        hooks, call, before = self._hooks, self._call, self._folder
        for access in self._accesses:
            if isinstance(access, PathAccess) and access.mode != "read":
                await hooks.file_changed(call.name, call.id, access.path)
        if hooks.config.cwd_changed and any(isinstance(access, ExecuteAccess) for access in self._accesses):
            now = await self._folder_now()
            if before != now:
                await hooks.cwd_changed(call.name, call.id, before, now)
        await hooks.after(call.name, call.id, "failed" if self._result.failed else "completed")
        if hooks.any:
            await self._look_after()

    async def _folder_now(self) -> Path:
        try:
            return await judged(self._roots, self._shell.cwd)
        except ExecutorError as error:
            log.warning("after a call of %s: %s", self._call.name, error)
            return self._folder

    # --- what a tool is given ---------------------------------------------------------------------------------

    def _context(self) -> ToolContext:
        calls, shell = self._calls, self._shell
        return ToolContext(
            call=ThisCall(calls, self._call, shell, self._tasks),
            files=shell.project.recorder.files(self._call, shell.files),
            roots=shell.roots,
            config=calls.config,
            shell=shell,
            memory=calls.memory,
            languages=shell.project.languages,
            web=calls.web,
            scheduler=calls.scheduler,
            offer=calls.toolbox.offer,
            redactor=calls.outputs.redactor,
        )


def _marked(result: ToolResult) -> ToolResult:
    """With a mark before what looks like one of the agent's own lines; an output of a command gets it later."""
    as_it_is = isinstance(result.text, Verbatim) or result.command is not None
    return result if as_it_is else replace(result, text=unlike_notes(result.text))


def _shown(result: ToolResult) -> Sequence[Any]:
    return (Content(content=TextContent(text=result.text)),) if result.content is None else result.content


def _changes(accesses: Sequence[Access], roots: Roots) -> bool:
    """Whether a call that touches these may have changed something: all except read-only access."""
    verdict = decide(accesses, roots, mode="code", may_change=True)
    return isinstance(verdict, Ask) and verdict.changes


def parsed(tool: Any, entry: ToolEntry, arguments: dict[str, Any]) -> tuple[dict[str, Any], Any]:
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
