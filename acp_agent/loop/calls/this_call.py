"""The call as its tool sees it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import anyio
from msgspec.structs import replace

from acp_agent.errors import ToolError
from acp_agent.executors.base import Command, OutputChunk, Process
from acp_agent.lazy import load
from acp_agent.loop.calls.call import Call
from acp_agent.tools.kit.tool_context import Answer, Question, Task, ToolResult

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_agent.loop.calls.runner import Calls
    from acp_agent.loop.shell.session_shell import Shell


ASK = "acp_agent.loop.ask:ask_user"
SAY_PAUSE = 0.25
"""Seconds between two lines that are shown."""
DELEGATE = "acp_agent.loop.calls.sub_agents:run_sub_agent"


class ThisCall:
    """Implements `CallHandle`. `tasks` end with the call."""

    def __init__(self, calls: Calls, call: Call, shell: Shell, tasks: TaskGroup) -> None:
        self._calls = calls
        self._call = call
        self._shell = shell
        self._tasks = tasks
        self._said = 0.0
        """When a line was shown last."""
        self.id = call.id

    @property
    def mode(self) -> str:
        return self._calls.session.choices.mode().id

    @property
    def waited(self) -> float:
        return self._call.waits.seconds

    @property
    def asked(self) -> bool:
        return self._call.waits.asked

    async def set_mode(self, mode: str) -> None:
        choices = self._calls.session.choices
        await choices.set_mode(mode, tell=True)
        choices.show()

    async def start(self, command: Command) -> Process:
        return await self._begun(self.start_shell(command, f"run-{self.id[:8]}"))

    async def start_shell(self, command: Command, window: str = "", session: str = "") -> Process:
        call, shell = self._call, self._shell
        await shell.confinement.ready()
        network = await shell.project.network.door(call, command, shell) if shell.confinement.place is None else None
        env = {**shell.turn.variables(), **command.env}
        opened = await shell.runs.panes.open(window, session) if command.terminal is not None else None
        try:
            return await shell.commands.run(replace(command, env=env, network=network, opened=opened))
        except BaseException:
            if opened is not None:
                opened.drop()
            raise

    async def run_in(self, pane: tuple[str, str], command: Command) -> Process:
        network = self._shell.project.network

        def begins(shell: Command) -> None:
            network.go_on(shell, self._call, command)

        return await self._begun(self._shell.runs.panes.run(pane, command, self.start_shell, begins))

    async def _begun(self, starts: Coroutine[Any, Any, Process]) -> Process:
        """A process of the call, as long as there is room for it. Raises ToolError."""
        call, reports, programs = self._call, self._calls.reports, self._shell.runs.programs
        if why := programs.take():
            starts.close()
            raise ToolError(f"The command was not started: {why}")
        try:
            process = await starts
        except BaseException:
            programs.give()
            raise
        call.processes.append(process)
        if process.view is not None:
            reports.show_process(call, process)
        else:
            call.feed = reports.feed(call, process)
            self._tasks.start_soon(call.feed.pump)
        return process

    def show(self, chunk: OutputChunk) -> None:
        if self._call.feed is not None:
            self._call.feed.add(chunk)

    def say(self, line: str) -> None:
        now = anyio.current_time()
        if now - self._said >= SAY_PAUSE and not self._call.outcome.ended:
            self._said = now
            self._calls.reports.say(self._call, line)

    def to_background(self, process: Process, command: Command, *, timeout: float | None = None) -> str:
        call, calls = self._call, self._calls
        call.goes_on = calls.shell.runs.adopt(
            process, command, call, calls.reports, timeout=timeout, place=self._shell.place
        )
        call.goes_on.unknown = calls.conversation.depth > 0
        if process in call.processes:
            call.processes.remove(process)
            self._shell.runs.programs.give()
        elif process.view is None:
            call.feed = calls.reports.feed(call, process)
        return call.goes_on.id

    async def ask(self, question: Question) -> Answer:
        session, config = self._calls.session, self._calls.config
        answer: Answer = await load(ASK)(session.client, self._call, question, timeout=config.ask_timeout)
        if answer.cancelled:
            session.queue.cancel()
        if answer.ends_turn:
            choices = "".join(f"\n{number}. {choice}" for number, choice in enumerate(question.choices, 1))
            session.outbox.say(f"{question.text}{choices}")
        return answer

    async def delegate(self, task: Task) -> ToolResult:
        result: ToolResult = await load(DELEGATE)(self._calls, self._call, task)
        return result
