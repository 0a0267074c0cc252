"""Commands that outlive the call that started them: `SessionRuns`, one per session.

A call hands over its running process (`adopt`) and gets its final report. From then on (`watch`) its card shows the
run: live output goes there, and at the end one more update holds the whole output. That update never has a status: the
call's is final. The end is reported twice: to the user immediately, to the model at the start of its next turn, unless
it has already seen it.

A run always ends with its session: `close` kills what is left.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct

from acp_agent.errors import AgentError, ToolError
from acp_agent.executors.base import Command, ExitStatus, Process, Terminal
from acp_agent.legible import legible
from acp_agent.llm.base import TextPart, UserMessage
from acp_agent.loop.beside.panes import Panes
from acp_agent.loop.prompts.instructions import neutral
from acp_agent.output.envelope import ShellOutput, bounded
from acp_agent.tools.kit.tool_context import CommandOutput, RunState, ToolResult

if TYPE_CHECKING:
    from acp_agent.config.model import BashConfig
    from acp_agent.limits.shares import Share
    from acp_agent.loop.calls.call import Call
    from acp_agent.loop.calls.outputs import Outputs
    from acp_agent.loop.calls.reports import Reports
    from acp_agent.loop.journal import Journal
    from acp_agent.safety.folders.paths import Roots


TIMED_OUT = 124
"""The exit code of a command that ran too long, as coreutils' `timeout` returns it."""
KEPT = 50
"""Ended runs that are still known."""
CLOSE_SECONDS = 10.0
"""Seconds that closing waits for all runs together; ending each process is bounded separately."""
TITLE_CHARS = 80


class Ended(Struct):
    """How a command in the background ended."""

    exit_code: int | None = None
    ending: str = ""
    """How, if the exit code does not say it."""
    text: str = ""
    """The part of its output that is kept."""
    lost: str = ""
    """What of it is not, in words."""
    told_text: str = ""
    """The text the model gets, unless it asks for more."""
    seconds: float = 0.0
    """How long it ran."""


class Run:
    """One command in the background. `timeout` in seconds."""

    def __init__(
        self, process: Process, command: Command, call: Call, reports: Reports, timeout: float, place: str
    ) -> None:
        self.id = str(uuid.uuid4())
        self.process: Process | None = process
        """`None` once it has ended."""
        self.command = command
        self.call = call
        """The call that started it: its card shows the run."""
        self.reports = reports
        self.timeout = timeout
        self.place = place
        """The name of that in which it runs."""
        self.started = time.monotonic()
        self.scope = anyio.CancelScope()
        """Cancelled to end it."""
        self.over = anyio.Event()
        """Set once it has ended and everything was reported."""
        self.watched = False
        self.ended = Ended()
        self.told = False
        """Whether the model knows that it ended."""
        self.unknown = False
        """Whether the model has forgotten that it started it, or a sub-agent did."""

    @property
    def running(self) -> bool:
        return self.process is not None

    def is_in(self, roots: Roots) -> bool:
        """Whether it works with the files of these folders."""
        return self.call.ready is not None and self.call.ready.shell.roots is roots

    def state(self) -> RunState:
        process = self.process
        return RunState(
            run_id=self.id,
            command=self.command.script,
            running=process is not None,
            seconds=self.ended.seconds if process is None else time.monotonic() - self.started,
            exit_code=self.ended.exit_code,
            text=self.ended.text if process is None else process.combined,
            ending="" if process is not None else self.ended.ending,
            lost=self.ended.lost if process is None else process.lost,
        )


class SessionRuns:
    """`spawn` runs something in the background of the session."""

    def __init__(
        self,
        config: BashConfig,
        *,
        max_output_chars: int,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        journal: Journal,
        outputs: Outputs,
        share: Share,
        programs: Share,
        panes: Panes,
    ) -> None:
        """`share`: the owner's, of background commands. `programs`: what each other command takes one of. `panes`:
        terminals in tmux."""
        self.programs = programs
        self.panes = panes
        self._share = share
        self._outputs = outputs
        self._config = config
        self._max_output_chars = max_output_chars
        self._spawn = spawn
        self._journal = journal
        self._runs: dict[str, Run] = {}
        self._closed = False

    @property
    def any(self) -> bool:
        """Whether there are or were any."""
        return bool(self._runs)

    @property
    def any_terminal(self) -> bool:
        """Whether there are or were any in terminals of their own."""
        return any(run.command.terminal is not None for run in self._runs.values())

    def running_call(self, roots: Roots) -> str:
        """The id of the call whose command runs in the background there, the last of them; empty if none does."""
        return next((run.call.id for run in reversed(self._runs.values()) if run.running and run.is_in(roots)), "")

    def running(self) -> list[dict[str, str]]:
        """The calls whose commands run in the background, their titles, and these."""
        clean, found = self._outputs.redactor.redact, []
        for run in self._runs.values():
            if run.running:
                title = run.command.script if run.call.ready is None else legible(run.call.ready.description.title)
                shown = {"title": clean(title), "command": clean(run.command.script)}
                found.append({"toolCallId": run.call.id, **shown})
        return found

    # --- the life of a run ------------------------------------------------------------------------------------

    def adopt(
        self, process: Process, command: Command, call: Call, reports: Reports, *, timeout: float | None, place: str
    ) -> Run:
        """Takes over what `call` started in a place. Raises ToolError if too many are running."""
        self.check_room()
        self._share.take()
        limit = self._config.background_timeout
        run = Run(process, command, call, reports, min(timeout or limit, limit), place)
        self._runs[run.id] = run
        return run

    def watch(self, run: Run) -> None:
        """The call has got its final report: its card now shows the run."""
        if not self._closed:
            run.watched = True
            self._spawn(self._watch(run))

    async def _watch(self, run: Run) -> None:
        status: ExitStatus | None = None
        try:
            with run.scope, anyio.move_on_after(run.timeout) as limit:
                status = await self._follow(run)
            if status is None and limit.cancelled_caught:
                run.ended.exit_code = TIMED_OUT
                run.ended.ending = f"killed: it ran longer than {run.timeout:g} s"
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(run, status)

    async def _follow(self, run: Run) -> ExitStatus | None:
        """Shows its output until it ends; returns `None` if it was lost."""
        process, feed = run.process, run.call.feed
        assert process is not None, "it is followed once"
        status: ExitStatus | None = None
        async with anyio.create_task_group() as tasks:
            if feed is not None:
                tasks.start_soon(feed.pump)
            try:
                async for chunk in process.output():
                    if feed is not None:
                        feed.add(chunk)
                status = await process.wait()
            except AgentError as error:
                run.ended.ending = f"lost: {error}"
            tasks.cancel_scope.cancel()
        return status

    async def _end(self, run: Run, status: ExitStatus | None) -> None:
        """Ends what is still running and reports everything; the terminal is released after the last update."""
        process = run.process
        assert process is not None, "it ends once"
        by_itself = status is not None or run.ended.exit_code == TIMED_OUT
        in_turn = self._journal.in_turn
        cut: bool | None = None
        denied: tuple[str, ...] = ()
        try:
            if status is None:
                with suppress(AgentError):  # The editor is gone, and its terminals with it.
                    await process.kill()
                run.ended.ending = run.ended.ending or "killed: its session was closed"
            else:
                run.ended.exit_code = status.exit_code
                run.ended.ending = f"killed by {status.signal}" if status.signal is not None else ""
            limit = self._config.raw_output_chars
            redact = self._outputs.redactor.redact
            output = ShellOutput(redact(process.stdout), redact(process.stderr), run.ended.exit_code, process.truncated)
            printed = CommandOutput(run.command.script, output, process.combined, lost=process.lost)
            remark = f"[{process.remark}]" if process.remark else ""
            done = await self._outputs.treat_plainly(run.call.name, ToolResult(remark, command=printed))
            run.ended.told_text = neutral(done.result.text)
            cut = done.cut or None
            if run.command.confined and (ready := run.call.ready) is not None:
                denied = ready.shell.confinement.denied(process.combined, run.command.cwd)
            text = self._outputs.clean(process.combined)
            run.ended.text = bounded(text, limit)
            run.ended.lost = process.lost or ("its middle" if run.ended.text != text else "")
            run.ended.seconds = time.monotonic() - run.started
            run.reports.ran_on(run.call, run, output, _card_text(run), limit=limit)
        finally:
            run.process = None
            try:
                await process.close()
            finally:
                run.over.set()
                self._share.give()
                words = f"Background command finished: {_quoted(run.command.script)} ({_ending(run)})."
                milliseconds = round((time.monotonic() - run.started) * 1000)
                facts = {"call_id": run.call.id, "exit_code": run.ended.exit_code, "duration_ms": milliseconds}
                self._journal.notice(words, tool=run.call.name, truncated=cut, denied_paths=denied, **facts)
        if remark:
            self._journal.warn(remark[1:-1])
        if by_itself and not in_turn:
            self._journal.run_ended(words)
        self._forget_old()

    def _forget_old(self) -> None:
        ended = [run for run in self._runs.values() if not run.running and run.told]
        for run in ended[: max(0, len(ended) - KEPT)]:
            del self._runs[run.id]

    # --- what tools see ---------------------------------------------------------------------------------------

    def check_room(self) -> None:
        limit = self._config.max_background_runs
        running = [run for run in self._runs.values() if run.running]
        if len(running) < limit and (why := self._share.full()):
            raise ToolError(f"The command was not started: {why}")
        if len(running) < limit:
            return
        if not limit:
            raise ToolError("Background commands are turned off (`tools.bash.max_background_runs`).", "policy_blocked")
        names = "".join(f"\n- {run.id}: {_quoted(run.command.script)}" for run in running)
        raise ToolError(
            f"The command was not started: the limit of {len(running)} background commands is reached:{names}",
            suggestion="Wait for one with `bash_output`, or end one with `bash_kill`.",
        )

    def states(self) -> Sequence[RunState]:
        return [run.state() for run in self._runs.values()]

    async def look(self, run_id: str, wait: float = 0.0) -> RunState:
        run = self._find(run_id)
        with anyio.move_on_after(wait):
            await run.over.wait()
        if run.process is not None:
            await run.process.look()
        if not run.running:
            run.told = True
        return run.state()

    def terminal(self, run_id: str, types_in: str = "") -> tuple[Command, Terminal]:
        """The terminal of a run that has one, and its command. `types_in`: the place whose rules hold for what is typed
        into it. Raises ToolError."""
        run = self._find(run_id)
        if types_in and types_in != run.place:
            raise ToolError(
                f"The command of {run_id} runs in the place `{run.place}`; nothing can be typed into it from "
                f"`{types_in}`, where other rules hold.",
                "policy_blocked",
            )
        if run.process is None:
            raise ToolError(
                f"The command of {run_id} has ended ({_ending(run)}), and its terminal with it.",
                "invalid_parameters",
                suggestion="`bash_output` has what its screen showed.",
            )
        if run.process.terminal is None:
            raise ToolError(
                f"The command of {run_id} has no terminal: it was started without `terminal`.",
                "invalid_parameters",
                suggestion="Look at it with `bash_output`; end it with `bash_kill` and start it again with `terminal`.",
            )
        return run.command, run.process.terminal

    def knows(self, run_id: str) -> bool:
        """Whether it is the id of a run."""
        return run_id.strip() in self._runs

    async def kill(self, run_id: str) -> RunState:
        run = self._find(run_id)
        if run.running:
            run.ended.ending = "killed by `bash_kill`"
            run.told = True
            run.scope.cancel()
            await run.over.wait()
        return run.state()

    def kill_of(self, call_id: str) -> bool:
        """Ends, for the user, the command that this call left in the background; false if none runs."""
        run = next((run for run in self._runs.values() if run.running and run.call.id == call_id), None)
        if run is not None:
            run.ended.ending = "killed by the user"
            run.scope.cancel()
        return run is not None

    def _find(self, run_id: str) -> Run:
        if (run := self._runs.get(run_id.strip())) is not None:
            return run
        known = ", ".join(self._runs) or "none"
        raise ToolError(
            f"There is no background command with the run_id {run_id!r}. Runs end with their session, so those of "
            f"earlier sessions are gone. Known are: {known}.",
            "invalid_parameters",
        )

    # --- what the model is told -------------------------------------------------------------------------------

    def notes(self) -> list[UserMessage]:
        """Returns notes on commands that ended since the last turn without the model knowing; each once."""
        notes = []
        for run in self._runs.values():
            if run.running or run.told:
                continue
            run.told = True
            state = run.state()
            command = f"[command: {run.command.script}]\n" if run.unknown else ""
            text = (
                f"[background complete] run_id={run.id} {state.words}\n{command}{run.ended.told_text or '[no output]'}"
            )
            notes.append(UserMessage((TextPart(bounded(text, self._max_output_chars)),)))
        return notes

    def forget(self) -> None:
        """The model has forgotten the conversation: ended runs are not reported, running ones are, with their
        command."""
        for run in self._runs.values():
            run.told = run.told or not run.running
            run.unknown = True

    async def close(self) -> None:
        """Kills all that are running and waits, bounded."""
        self._closed = True
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._end_all(list(self._runs.values()))
            await self.panes.close()

    async def leave(self, roots: Roots) -> None:
        """Kills those in these folders, which are left, and waits, bounded."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._end_all([run for run in self._runs.values() if run.is_in(roots)])

    async def _end_all(self, runs: Sequence[Run]) -> None:
        running = [run for run in runs if run.running]
        for run in running:
            run.scope.cancel()
        for run in running:
            if run.watched:
                await run.over.wait()
            else:
                await self._end(run, None)


def _card_text(run: Run) -> str:
    """The output, and below it how the command ended unless it succeeded."""
    text = run.ended.text
    last = "" if run.ended.exit_code == 0 and text.strip() else _ending(run)
    if last == "exit code 0":
        last = f"no output, {last}"
    separator = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{separator}[{last}]" if last else text


def _ending(run: Run) -> str:
    if run.ended.ending:
        return run.ended.ending
    return "the exit code is unknown" if run.ended.exit_code is None else f"exit code {run.ended.exit_code}"


def _quoted(command: str) -> str:
    """A command line within a sentence."""
    line = " ".join(command.split())
    line = line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"
    return f"`` {line} ``" if "`" in line else f"`{line}`"
