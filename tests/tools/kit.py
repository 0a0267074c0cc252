"""Tools on real files, without an agent around them."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from msgspec.structs import replace

from acp_agent.config.compaction_settings import CompactionConfig
from acp_agent.config.language_settings import LspConfig
from acp_agent.config.model import BashConfig, FilesConfig, ToolsConfig
from acp_agent.credentials.redactor import Redactor
from acp_agent.errors import ToolError
from acp_agent.executors.base import Command, Commands, Files, OutputChunk, Process
from acp_agent.executors.local import LocalCommands
from acp_agent.executors.shell_state import last_cwd
from acp_agent.limits.shares import COMMANDS, PROGRAMS
from acp_agent.loop.beside.background_runs import SessionRuns
from acp_agent.loop.beside.panes import Panes
from acp_agent.loop.calls.outputs import Outputs
from acp_agent.loop.calls.redaction import Redaction
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.memory.room import Room
from acp_agent.loop.modes import MODES
from acp_agent.loop.prompts.instructions import Instructions
from acp_agent.loop.prompts.library import Library
from acp_agent.loop.prompts.skills import Skill, Skills
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.toolbox.offer import Offer
from acp_agent.loop.toolbox.relevance import Relevance
from acp_agent.lsp.base import Document, LanguageServices, LspError, NewErrors
from acp_agent.output.filters import load_filters
from acp_agent.safety.access import Access
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.protect import PathRules
from acp_agent.store.base import GoalTask
from acp_agent.store.session_store import SessionStore
from acp_agent.store.stores import sqlite_store
from acp_agent.tools.kit.registry import builtin_registry
from acp_agent.tools.kit.tool_context import Answer, Preview, Question, Task, ToolContext, ToolResult
from acp_agent.tools.net.web_access import WebAccess
from tests.executors.kit import local_files

BOUND = 60.0

REGISTRY = builtin_registry()


def _spawn_nothing(work: object) -> None:
    raise AssertionError("on the bench nothing runs in the background")


class NoServers:
    """A session whose editor has no language servers, on a machine without any."""

    config = LspConfig()

    def knows(self, path: Path) -> bool:
        return False

    def watch(self, document: Document) -> None:
        return

    async def new_errors(self, before: Document | None, after: Document) -> NewErrors:
        return NewErrors()

    async def _none(self, *asked: object) -> Any:
        raise LspError("There is no language server here.")

    diagnostics = definition = references = hover = document_symbols = workspace_symbols = rename = _none


class BenchGoals:
    """No goal; the plans that were shown."""

    drawn = True
    active = None

    def __init__(self) -> None:
        self.plans: list[Sequence[GoalTask]] = []

    async def set_plan(self, tasks: Sequence[GoalTask]) -> str:
        self.plans.append(tasks)
        return ""


def memory_of(store: SessionStore, roots: Roots) -> Memory:
    """The memory of a session without any configuration."""
    outbox: Any = SimpleNamespace(session_id="session-1", redaction=None)
    skills = {name: Skill(name, "", text, roots.cwd) for name, text in {"release": "How we release."}.items()}
    return Memory(
        outbox, store, Room(CompactionConfig(), 0.9), cast(Any, BenchGoals()),
        Instructions(roots, enabled=False, max_bytes=0), Skills(skills, roots, RunningTurn("session-1")),
        Library(roots, roots.cwd, reads=False),
    )  # fmt: skip


def full_offer() -> Offer:
    """Of all built-in tools, in a mode that may change things."""
    choices: Any = SimpleNamespace(mode=lambda: MODES["code"])
    absent: Any = SimpleNamespace(why=lambda tool: None)
    deciders: Any = SimpleNamespace(hides=lambda tool: None)
    return Offer(builtin_registry(), ToolsConfig(), choices, absent, Relevance(), deciders)


class BenchShell:
    """The working directory and variables as a session keeps them, and no sandbox."""

    def __init__(self, folder: Path, state: Path, runs: SessionRuns) -> None:
        self._folder = folder
        self.state = state
        self.runs = runs

    def cwd(self) -> Path:
        return last_cwd(self.state, self._folder)

    def limits(self) -> str:
        return ""


@dataclass
class BenchCall:
    """A call, as its tool sees it; what it asks for is written down."""

    commands: Commands
    id: str = "call-1"
    mode: str = "code"
    chunks: list[OutputChunk] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    """What the user answers, in order."""
    questions: list[Question] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    background: list[tuple[Command, float | None]] = field(default_factory=list)
    """What was handed over to run in the background, with its timeout."""

    waited: float = 0.0
    asked: bool = True

    async def set_mode(self, mode: str) -> None:
        self.modes.append(mode)

    async def start(self, command: Command) -> Process:
        process = await self.commands.run(command)
        self.processes.append(process)
        return process

    async def start_shell(self, command: Command, window: str = "", session: str = "") -> Process:
        return await self.commands.run(command)

    async def run_in(self, pane: tuple[str, str], command: Command) -> Process:
        raise AssertionError("there is no tmux")

    def show(self, chunk: OutputChunk) -> None:
        self.chunks.append(chunk)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def to_background(self, process: Process, command: Command, *, timeout: float | None = None) -> str:
        assert process in self.processes
        self.background.append((command, timeout))
        return f"run-{len(self.background)}"

    async def ask(self, question: Question) -> Answer:
        self.questions.append(question)
        return self.answers.pop(0)

    async def delegate(self, task: Task) -> ToolResult:
        self.tasks.append(task)
        return ToolResult("done")


@dataclass
class Bench:
    """A folder, and the tools on it. `call` goes the whole way of a call, permission aside."""

    folder: Path
    files: Files
    config: ToolsConfig
    memory: Memory
    shell: BenchShell
    web: WebAccess
    the_call: BenchCall
    schedules: Any
    languages: LanguageServices = field(default_factory=lambda: NoServers())
    rules: PathRules = field(default_factory=PathRules)

    @property
    def ctx(self) -> ToolContext:
        scheduler: Any = SimpleNamespace(store=self.schedules, changed=lambda: None)
        return ToolContext(
            call=self.the_call, files=self.files, roots=Roots(self.folder, rules=self.rules), config=self.config,
            shell=cast(Any, self.shell), memory=self.memory, languages=self.languages, web=self.web,
            scheduler=scheduler, offer=full_offer(), redactor=Redactor(),
        )  # fmt: skip

    @property
    def plans(self) -> list[Sequence[GoalTask]]:
        """The plans that were shown."""
        goals: Any = self.memory.goals
        return cast(BenchGoals, goals).plans

    def accesses(self, tool: Any, params: Any) -> list[Access]:
        found: list[Access] = tool.access(params, self.ctx.roots, self.shell.cwd(), self.config)
        return found

    def access(self, name: str, **arguments: Any) -> list[Access]:
        tool = REGISTRY.tool(name)
        return self.accesses(tool, tool.parse(arguments))

    async def preview(self, name: str, **arguments: Any) -> Preview:
        tool = REGISTRY.tool(name)
        params = tool.parse(arguments)
        tool.describe(params, self.ctx.roots)
        self.accesses(tool, params)
        return await tool.preview(params, self.ctx)

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        tool = REGISTRY.tool(name)
        preview = await self.preview(name, **arguments)
        return shown(await tool.run(tool.parse(arguments), self.ctx, preview), self.config)

    async def fails(self, words: str, name: str, **arguments: Any) -> None:
        """Calls a tool that has to fail in these words, an expression: what went wrong, and what to do instead."""
        with pytest.raises(ToolError) as error:
            await self.call(name, **arguments)
        assert re.search(words, said := f"{error.value} {error.value.suggestion}"), said


def shown(result: ToolResult, config: ToolsConfig) -> ToolResult:
    """With the output of a command in its text, as it came."""
    if (command := result.command) is None:
        return result
    output = f"{command.heading}\n{command.combined}".lstrip() if command.heading else command.combined
    separator = "\n" if output and result.text and not output.endswith("\n") else ""
    raw = result.raw_output or command.streams.as_json(config.bash.raw_output_chars)
    return replace(result, text=f"{output}{separator}{result.text}", raw_output=raw)


class NoCompression:
    async def shortened(self, tool: str, text: str, *, exit_code: int | None = None) -> None:
        return None


def outputs(store: SessionStore, config: ToolsConfig) -> Outputs:
    """The output pipeline, as a session without any configuration has it."""

    return Outputs(
        session_id="session-1", store=store.overflow, redaction=Redaction(Redactor()), config=config,
        filters=cast(Any, SimpleNamespace(get=lambda: load_filters()[0])), compression=cast(Any, NoCompression()),
        summary=cast(Any, NoCompression()),
    )  # fmt: skip


@asynccontextmanager
async def bench(
    tmp_path: Path, *, commands: Commands | None = None, through: Files | None = None, bash: BashConfig | None = None,
    files: FilesConfig | None = None, bound: float = BOUND,
) -> AsyncIterator[Bench]:  # fmt: skip
    (folder := tmp_path / "project").mkdir(exist_ok=True)
    config = ToolsConfig(bash=bash or BashConfig(), files=files or FilesConfig())
    rules = PathRules(deny_read=config.files.deny_read, allow_read=config.files.allow_read, bases=[folder])
    commands = commands or LocalCommands()
    store = sqlite_store(tmp_path / "store" / "sessions.db")
    runs = SessionRuns(
        config.bash, max_output_chars=10_000, spawn=_spawn_nothing, journal=cast(Any, None),
        outputs=outputs(store, ToolsConfig(bash=config.bash)), share=COMMANDS, programs=PROGRAMS,
        panes=Panes("", config.tmux, config.terminal, lambda: tmp_path, {}, (), folder, "local", _spawn_nothing, print),
    )  # fmt: skip
    made = Bench(
        folder, through or local_files(rules.hides), config, memory_of(store, Roots(folder)),
        BenchShell(folder, tmp_path / "shell-state", runs), WebAccess(ToolsConfig(), {}), BenchCall(commands),
        store.schedules, rules=rules,
    )  # fmt: skip
    with anyio.fail_after(bound):
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                for process in made.the_call.processes:
                    await process.close()
                await commands.close()
                store.close()
