"""Tools on real files, without an agent around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from acp_agent.config.language_settings import LspConfig
from acp_agent.config.model import BashConfig, FilesConfig, ToolsConfig
from acp_agent.credentials.redactor import Redactor
from acp_agent.executors.base import Command, Executor, OutputChunk, Process
from acp_agent.executors.local import LocalExecutor
from acp_agent.executors.shell_state import last_cwd
from acp_agent.loop.beside.background_runs import SessionRuns
from acp_agent.loop.calls.outputs import Outputs
from acp_agent.loop.calls.redaction import Redaction
from acp_agent.lsp.base import Document, LspError, NewErrors
from acp_agent.output.filters import load_filters
from acp_agent.safety.access import Access
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.protect import PathRules
from acp_agent.store.base import GoalTask
from acp_agent.store.session_store import SessionStore
from acp_agent.tools.kit.registry import builtin_registry
from acp_agent.tools.kit.tool_context import Answer, Ledger, Preview, Question, Services, Task, ToolContext, ToolResult
from acp_agent.tools.net.browser_session import BrowserSession
from acp_agent.tools.net.web_client import GuardedClient

BOUND = 20.0

REGISTRY = builtin_registry()


SKILLS = {"release": "How we release."}


def _spawn_nothing(work: object) -> None:
    raise AssertionError("on the bench nothing runs in the background")


class NoServers:
    """A session whose editor has no language servers, on a machine without any."""

    def knows(self, path: Path) -> bool:
        return False

    def watch(self, document: Document) -> None:
        return

    async def new_errors(self, before: Document | None, after: Document) -> NewErrors:
        return NewErrors()

    async def _none(self, *asked: object) -> Any:
        raise LspError("There is no language server here.")

    diagnostics = definition = references = hover = document_symbols = workspace_symbols = rename = _none


def services(store: SessionStore, bash: BashConfig) -> Services:
    """What the tools share, as a session without any configuration has it."""
    web = GuardedClient(ToolsConfig().web)
    return Services(
        web=web,
        browser=BrowserSession(web, ToolsConfig().browser),
        secret=lambda name: None,
        skill=SKILLS.get,
        skills=lambda: list(SKILLS),
        memories=store.memories,
        schedules=store.schedules,
        schedules_changed=lambda: None,
        mode=lambda: "code",
        runs=SessionRuns(
            bash,
            max_output_chars=10_000,
            spawn=_spawn_nothing,
            ended=_spawn_nothing,
            outputs=outputs(store, ToolsConfig(bash=bash)),
        ),
        redact=Redactor().redact,
        overflow=partial(store.overflow.read, "session-1"),
        sandbox=lambda: "",
        language=NoServers(),
        lsp=LspConfig(),
        plans_are_drawn=True,
    )


@dataclass
class Bench:
    """A folder, and the tools on it. `call` goes the whole way of a call, permission aside."""

    folder: Path
    executor: Executor
    config: ToolsConfig
    services: Services
    shell_state: Path | None = None
    ledger: Ledger = field(default_factory=Ledger)
    chunks: list[OutputChunk] = field(default_factory=list)
    plans: list[Sequence[GoalTask]] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    """What the person answers, in order."""
    questions: list[Question] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    rules: PathRules = field(default_factory=PathRules)
    background: list[tuple[Command, float | None]] = field(default_factory=list)
    """What was handed over to run in the background, with its timeout."""

    @property
    def ctx(self) -> ToolContext:
        return ToolContext(
            executor=self.executor,
            roots=Roots(self.folder, rules=self.rules),
            config=self.config,
            ledger=self.ledger,
            start=self._start,
            show_output=self.chunks.append,
            to_background=self._to_background,
            set_plan=self._set_plan,
            services=self.services,
            call_id="call-1",
            caller_id="session-1",
            ask_person=self._ask,
            delegate=self._delegate,
            set_mode=self.modes.append,
            shell_state=self.shell_state,
            shell_cwd=lambda: last_cwd(self.shell_state, self.folder),
        )

    def _set_plan(self, tasks: Sequence[GoalTask]) -> str:
        self.plans.append(tasks)
        return ""

    async def _start(self, command: Command) -> Process:
        process = await self.executor.run(command)
        self.processes.append(process)
        return process

    def _to_background(self, process: Process, command: Command, *, timeout: float | None = None) -> str:
        assert process in self.processes
        self.background.append((command, timeout))
        return f"run-{len(self.background)}"

    async def _ask(self, question: Question) -> Answer:
        self.questions.append(question)
        return self.answers.pop(0)

    async def _delegate(self, task: Task) -> ToolResult:
        self.tasks.append(task)
        return ToolResult("done")

    def access(self, name: str, **arguments: Any) -> list[Access]:
        tool = REGISTRY.tool(name)
        return tool.access(tool.parse(arguments), self.ctx)

    async def preview(self, name: str, **arguments: Any) -> Preview:
        tool = REGISTRY.tool(name)
        params = tool.parse(arguments)
        tool.describe(params, self.ctx.roots)
        tool.access(params, self.ctx)
        return await tool.preview(params, self.ctx)

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        tool = REGISTRY.tool(name)
        preview = await self.preview(name, **arguments)
        return shown(await tool.run(tool.parse(arguments), self.ctx, preview), self.config)


def shown(result: ToolResult, config: ToolsConfig) -> ToolResult:
    """With the output of a command in its text, as it came."""
    if (command := result.command) is None:
        return result
    output = f"{command.heading}\n{command.combined}".lstrip() if command.heading else command.combined
    separator = "\n" if output and result.text and not output.endswith("\n") else ""
    raw = result.raw_output or command.streams.as_json(config.bash.raw_output_chars)
    return replace(result, text=f"{output}{separator}{result.text}", raw_output=raw)


def outputs(store: SessionStore, config: ToolsConfig) -> Outputs:
    """The output pipeline, as a session without any configuration has it."""

    async def compress(tool: str, text: str, *, exit_code: int | None) -> None:
        return None

    return Outputs(
        session_id="session-1",
        store=store.overflow,
        redaction=Redaction(Redactor()),
        config=config,
        filters=lambda: load_filters()[0],
        compress=compress,
    )


@asynccontextmanager
async def bench(
    tmp_path: Path,
    *,
    executor: Executor | None = None,
    bash: BashConfig | None = None,
    files: FilesConfig | None = None,
) -> AsyncIterator[Bench]:
    folder = tmp_path / "project"
    folder.mkdir(exist_ok=True)
    config = ToolsConfig(bash=bash or BashConfig(), files=files or FilesConfig())
    rules = PathRules(deny_read=config.files.deny_read, allow_read=config.files.allow_read, bases=[folder])
    local = LocalExecutor(hides=rules.hides)
    store = SessionStore(tmp_path / "store" / "sessions.db")
    made = Bench(folder, executor or local, config, services(store, config.bash), tmp_path / "shell-state")
    made.rules = rules
    with anyio.fail_after(BOUND):
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                for process in made.processes:
                    await process.close()
                await local.close()
                store.close()
