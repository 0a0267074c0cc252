"""What a turn of one session needs, put together: tools, permission gate, executors, limits, sub-agents.

Made by `build.Builder` for each session, in the background, once the session has been answered. Providers are shared
and come from the builder; everything else here belongs to one session and ends with it.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread

from acp_agent.config.load import Config
from acp_agent.config.model import ProviderConfig
from acp_agent.confinement import Confinement
from acp_agent.errors import AgentError, StoreError, ToolError
from acp_agent.executors.dyn import DynExecutor, route
from acp_agent.executors.dyn import Offer as EditorOffer
from acp_agent.executors.editor import EditorExecutor
from acp_agent.executors.local import LocalExecutor
from acp_agent.executors.scrub import scrubbing
from acp_agent.executors.shell_state import forget_state, last_cwd
from acp_agent.lazy import load
from acp_agent.llm.base import Message, ModelSettings, Provider, TextPart, ThoughtLevel, UserMessage
from acp_agent.loop.ask import ask_person, ask_trust
from acp_agent.loop.background import SessionRuns
from acp_agent.loop.cache import ResultCache, fingerprint_with
from acp_agent.loop.calls import Surroundings, ToolRunner
from acp_agent.loop.checking import check_call
from acp_agent.loop.checking import words as check_words
from acp_agent.loop.commands import Commands, commands_update, sets_goal, split_command
from acp_agent.loop.compression import GoalCompression
from acp_agent.loop.context import SessionContext
from acp_agent.loop.delegate import Own, SubAgents
from acp_agent.loop.diagnostics import diagnostics_block, mentions_diagnostics
from acp_agent.loop.extensions import Extensions
from acp_agent.loop.failures import RepeatedFailures
from acp_agent.loop.filtering import SessionFilters
from acp_agent.loop.gate import Gate
from acp_agent.loop.goals import PROMPT, Goals, goal_words, mentions
from acp_agent.loop.history import History
from acp_agent.loop.hooks import Hooks, TurnContext
from acp_agent.loop.host import SessionHost
from acp_agent.loop.instructions import Instructions, read_skills
from acp_agent.loop.language import SessionLanguage
from acp_agent.loop.limits import CallQuota
from acp_agent.loop.links import with_linked_pages
from acp_agent.loop.offer import Offer
from acp_agent.loop.outputs import Outputs
from acp_agent.loop.prompt import leading_text, parts_of, system_prompt, title_of, with_command_text
from acp_agent.loop.redaction import Redaction
from acp_agent.loop.relevance import Relevance
from acp_agent.loop.replay import rebuild_history
from acp_agent.loop.reports import Call, Display, Reports
from acp_agent.loop.room import Room
from acp_agent.loop.safety import SessionSafety, home_of, session_rules
from acp_agent.loop.scheduler import Scheduler
from acp_agent.loop.servers import SessionServers
from acp_agent.loop.session import Model, Session
from acp_agent.loop.turn import run_turn
from acp_agent.lsp.base import Report
from acp_agent.models import ReadyModel
from acp_agent.safety.deciding.deciders import EXAMINE
from acp_agent.safety.environment import SECRET_NAMES, safe_environment
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.schema.acp import (
    AvailableCommand,
    AvailableCommandsUpdate,
    ContentBlock,
    StopReason,
    TextContent,
    UnstructuredCommandInput,
)
from acp_agent.store.base import Schedule, SessionStore
from acp_agent.tools.browser_session import BrowserSession, missing_browser
from acp_agent.tools.context import Answer, Ledger, Question, Services, ToolContext
from acp_agent.tools.registry import Registry, SessionRegistry
from acp_agent.tools.web_client import GuardedClient

__all__ = ["SessionEngine"]

if TYPE_CHECKING:
    from acp_agent.executors.sandbox.probe import Found

log = logging.getLogger(__name__)

CHECK_EXAMPLE = '`/policy check bash {"command": "ls"}` is an example.'

THOUGHT_LEVELS: dict[str, ThoughtLevel] = {"off": "off", "low": "low", "medium": "medium", "high": "high"}

OTHER_FOLDERS = ("/var/tmp", "/dev/shm")

SAFE_FOLDER = "/tmp"
"""For script files where the system's temporary folder has a name that a shell would split."""


NOT_REDACTED = (
    "Credentials are not taken out of what the model, the editor, the log and the database get "
    "(`secrets.redact = false`)."
)


class Shared(Protocol):
    """What all sessions of the process share (`build.Builder`)."""

    environ: Mapping[str, str]

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None: ...

    async def model(self, session: Session, choice: str) -> ReadyModel: ...

    def redaction(self, session: Session) -> Redaction:
        """Takes out credentials, the agent's own keys among them."""
        ...

    def provider_settings(self, config: Config, name: str) -> ProviderConfig: ...


class SessionEngine:
    """Provider, tools, permission gate and executors of one session."""

    def __init__(self, session: Session, store: SessionStore, registry: Registry, builder: Shared) -> None:
        settings = session.config.settings
        client = session.client
        self._session = session
        self._builder = builder
        self._settings = settings
        self.registry = SessionRegistry(registry)
        self.extensions = Extensions(session.roots.cwd, self.registry, store, packages=settings.tools.entry_points)
        self.commands = Commands(store, self.extensions)
        self._folder = _private_folder(session.roots)
        self.redaction = builder.redaction(session)
        bash, sandbox = settings.tools.bash, settings.tools.sandbox
        home = home_of(builder.environ)
        session.roots.rules = session_rules(session.config, session.roots, builder.environ, home)
        inherited = safe_environment(
            builder.environ,
            bash.environment,
            bash.environment_extra,
            _own_keys(session.config),
            lambda value: self.redaction.text(value) != value,
        )
        if home is not None:
            inherited["HOME"] = str(home)  # By its own name: the sandbox knows no links to it.
        self.confinement = Confinement(
            settings.tools,
            session.roots,
            inherited,
            home,
            self._folder,
            self._sandbox_found,
            self._repository_made,
            builder.spawn,
        )
        self._local = LocalExecutor(
            environ=inherited,
            terminate_grace=bash.terminate_grace,
            confine=self.confinement.confine,
            user=self.confinement.user,
            hides=lambda path: session.roots.rules.hides(path),
        )
        self._hooks_executor = LocalExecutor(
            environ=builder.environ, hidden=_own_keys(session.config), terminate_grace=bash.terminate_grace
        )
        editor = EditorExecutor(
            client,
            self._local,
            self._folder / "scripts",
            kill_timeout=settings.limits.kill_timeout,
            output_limit=bash.editor_output_limit,
            confine=self.confinement.confine if sandbox.editor_terminal else None,
            scrub=lambda own: scrubbing(bash.environment, SECRET_NAMES, (*own, *bash.environment_extra)),
        )
        offer = EditorOffer(
            # The editor's terminals are the person's: whoever else commands are to run as cannot be had there.
            terminal=client.has_terminals and bash.editor_terminal and not settings.tools.scope.run_as_user,
            read_text=client.reads_files and settings.tools.files.editor_buffers,
            write_text=client.writes_files and settings.tools.files.editor_buffers,
        )
        self._executor = DynExecutor(editor, self._local, offer)
        self._ledger = Ledger()
        agent = settings.agent
        self._instructions = Instructions(
            session.roots, enabled=agent.instruction_files, max_bytes=agent.max_instruction_bytes
        )
        self._skills = read_skills(session.roots) if agent.skills else {}
        web = GuardedClient(settings.tools.web)
        self._browser = BrowserSession(web, settings.tools.browser, proxy=settings.tools.web.proxy)
        self._relevance = Relevance()
        session.redaction = self.redaction
        client.clean = self.redaction.struct
        self._overflow = store.overflow
        self.goals = Goals(session.id, store.goals, session.emit)
        self._filters = SessionFilters(settings.tools.filters, builder.environ)
        outputs = Outputs(
            session_id=session.id,
            store=store.overflow,
            redaction=self.redaction,
            config=settings.tools,
            filters=self._filters.get,
            compress=GoalCompression(settings.tools.compression, self.goals, self._relevance, self._tokens),
        )
        self._runs = SessionRuns(
            settings.tools.bash,
            max_output_chars=settings.tools.max_output_chars,
            spawn=builder.spawn,
            ended=self._run_ended,
            outputs=outputs,
        )
        self.language = SessionLanguage(
            client,
            settings.lsp,
            session.roots,
            launch=partial(self.confinement.launch, unconfined=settings.lsp.unconfined),
            ready=self.confinement.ready,
            forbidden=partial(self.confinement.no_servers, unconfined=settings.lsp.unconfined),
            environ=inherited,
            published=session.published,
            spawn=builder.spawn,
            tell=session.tell,
        )
        self._services = Services(
            language=self.language,
            lsp=settings.lsp,
            plans_are_drawn=client.plan.plans,
            web=web,
            browser=self._browser,
            secret=builder.environ.get,
            skill=self._use_skill,
            skills=lambda: list(self._skills),
            memories=store.memories,
            schedules=store.schedules,
            schedules_changed=lambda: self.scheduler.changed(),
            mode=lambda: session.mode().id,
            runs=self._runs,
            redact=self.redaction.text,
            overflow=partial(store.overflow.read, session.id),
            sandbox=self.confinement.limits,
        )
        self.servers = SessionServers(
            session.mcp_servers,
            settings.mcp,
            self.registry,
            cwd=session.roots.cwd,
            folders=session.roots.all,
            environ=builder.environ,
            hidden=_own_keys(session.config),
            tell=session.tell,
            changed=self._commands_changed,
        )
        self.scheduler = Scheduler(str(session.roots.cwd), store.schedules, run=self._run_schedule, tell=session.say)
        self._scope = anyio.CancelScope()
        self._turn = 0
        self._skill = ""
        self._told = False
        self._turn_context = TurnContext("", session.id, 0)
        self._model: ReadyModel | None = None
        self.safety = SessionSafety(
            config=session.config,
            roots=session.roots,
            environ=builder.environ,
            home=home,
            store=store,
            session_id=session.id,
            own_name=lambda name: entry.name if (entry := self.registry.find(name)) is not None else None,
            redact=self.redaction.text,
            tell=session.tell,
            turn=lambda: self._turn_context.turn_id,
            sandbox=lambda: self.confinement.kind,
        )
        self.offer = Offer(
            self.registry, settings.tools, session.mode, self._missing(), self._relevance, self.safety.deciders.hides
        )
        self.quota = CallQuota(settings.tools.max_tool_calls_per_session)
        self._reads_buffers = offer.read_text
        self._cache = self._new_cache()
        display = Display(
            terminal_meta=client.shows_terminal_output and route("run", offer) == "local",
            updates_per_second=settings.limits.updates_per_second,
            live_chars=settings.limits.live_output_chars,
        )
        self.room = Room(settings.compaction, settings.agent.context_budget)
        self._context_of = SessionContext(
            session, self.room, lambda: self.model(session.model), self.settings, self.offer.definitions
        )
        sub_agents = SubAgents(
            around=lambda: self._around,
            provider=self._model_of_turn,
            max_depth=settings.tools.delegate.max_depth,
            doom_loop=settings.agent.doom_loop,
            room=self._room_below,
            redact=self.redaction.message,
            repeated_failures=settings.tools.repeated_failures,
            definitions=self.offer.definitions_of,
            entries=self.offer.sent,
            own=self._own_of,
        )
        self._around = Surroundings(
            registry=self.registry,
            gate=Gate(client, store, session.roots, session.mode, self.safety, self.redaction.text),
            safety=self.safety,
            sandbox_ready=self.confinement.ready,
            host=session,
            roots=session.roots,
            context=self._context,
            reports=Reports(
                session.emit,
                session.drain,
                display,
                cwd=str(session.roots.cwd),
                max_output_chars=settings.tools.max_output_chars,
                redact=self.redaction,
            ),
            offers=self.offer.why_not,
            names=self.offer.names,
            succeeded=self.offer.succeeded,
            failures=RepeatedFailures(settings.tools.repeated_failures),
            cache=self._cache,
            hooks=Hooks(
                settings.hooks,
                self._hooks_executor,
                session.roots.cwd,
                session.say,
                self._variables,
                self.redaction.text,
            ),
            quota=self.quota,
            retry=settings.tools.retry,
            ask_person=self._ask_person,
            delegate=sub_agents.run,
            variables=self._variables,
            runs=self._runs,
            outputs=outputs,
            set_plan=self.goals.set_plan,
            instructions=self._instructions.for_paths,
        )
        self._runner = ToolRunner(self._around)

    # --- what tools are given ---------------------------------------------------------------------------------

    def _own_of(self, call_id: str) -> Own:
        """What a sub-agent has for itself: its shell, what it has read and been given, what it was told of folders."""
        state = self._folder / "state" / f"shell-{self._turn}-{call_id}"
        context = partial(self._context, state=state, ledger=Ledger())
        return Own(context, self._instructions.for_sub_agent().for_paths, self._new_cache())

    def _new_cache(self) -> ResultCache:
        config = self._settings.tools.result_cache
        fingerprint = fingerprint_with(self._executor, buffers=self._reads_buffers)
        return ResultCache(fingerprint, enabled=config.enabled, ttl=config.ttl)

    def _context(self, *, state: Path | None = None, ledger: Ledger | None = None, **of_the_call: Any) -> ToolContext:
        state = state or self._shell_state
        return ToolContext(
            executor=self._executor,
            roots=self._session.roots,
            config=self._settings.tools,
            ledger=self._ledger if ledger is None else ledger,
            services=self._services,
            shell_state=state,
            shell_cwd=partial(last_cwd, state, self._session.roots.cwd),
            **of_the_call,
        )

    async def _ask_person(self, call: Call, question: Question) -> Answer:
        answer = await ask_person(self._session.client, call, question, timeout=self._settings.tools.ask_timeout)
        if answer.cancelled:
            self._session.cancel()
        if answer.ends_turn:
            choices = "".join(f"\n{number}. {choice}" for number, choice in enumerate(question.choices, 1))
            self._session.say(f"{question.text}{choices}")
        return answer

    def _without_runs(self) -> str | None:
        if self._runs.any:
            return None
        return (
            "Nothing was started in the background in this session (`bash` with `background`). "
            "A run ends with its session, so one of an earlier session is gone."
        )

    def _run_ended(self, words: str) -> None:
        """Within a turn the command's own card is enough."""
        self.safety.noticed(words, tool="bash")
        if not self._session.busy and not self._session.closed:
            self._session.say(f"{words}\n\n")

    def _missing(self) -> dict[str, Callable[[], str | None]]:
        """Tools that are not always there."""
        depth = self._settings.tools.delegate.max_depth
        browser = cache(lambda: missing_browser(self._settings.tools.browser))
        return {
            "browser": browser,
            **dict.fromkeys(("definition", "references", "symbols", "hover", "rename"), self.language.missing),
            **dict.fromkeys(("bash_output", "bash_kill", "bash_list"), self._without_runs),
            "delegate": lambda: None if depth else "Sub-agents are switched off (`tools.delegate.max_depth`).",
            "skill": lambda: None if self._skills else "This project has no skills (`.agents/skills/NAME/SKILL.md`).",
        }

    def _use_skill(self, name: str) -> str | None:
        if (skill := self._skills.get(name)) is None:
            return None
        self._turn_context = replace(self._turn_context, skill=name)
        return skill.text(self._session.roots)

    def _variables(self) -> dict[str, str]:
        return self._turn_context.variables() if self._settings.tools.bash.turn_context else {}

    # --- the model --------------------------------------------------------------------------------------------

    async def model(self, choice: str) -> ReadyModel:
        return await self._builder.model(self._session, choice)

    def _model_of_turn(self) -> tuple[Provider, ModelSettings, int | None]:
        assert self._model is not None, "a sub-agent runs within a turn"
        return self._model.provider, self.settings(self._model), self._model.known_window

    def _tokens(self, chars: int) -> int:
        return self.room.estimator.tokens(self._session.model, chars)

    def _room_below(self) -> Room:
        """What makes room for a sub-agent: it learns from, and teaches, the session's."""
        return replace(self.room)

    async def compact(self) -> str:
        return await self._context_of.compact()

    async def context(self) -> Sequence[str]:
        if not self._turn:  # What is sent depends on the model, and on the prompt.
            with suppress(AgentError):
                await self.offer.aim("", (await self.model(self._session.model)).known_window)
        return await self._context_of.lines()

    def plan(self, word: str) -> str:
        goals = self.goals
        if (goal := goals.current) is None:
            return "There is no goal. `/plan GOAL` sets one."
        if word in ("done", "clear"):
            goals.end(reached=word == "done")
            return f"The goal is {'reached' if word == 'done' else 'given up'}: {goal.text}"
        if word:
            goals.pause(word == "pause")
        goal = goals.current or goal
        goals.show(goal.tasks)
        return goal_words(goal)

    def history(self) -> tuple[History, list[Message]]:
        history, mended = rebuild_history(self._session.stored())
        self.quota.used = CallQuota.used_by(history.messages)
        return history, mended

    def status(self) -> Sequence[str]:
        lines = self._around.outputs.words()
        if (goal := self.goals.current) is not None:
            lines.append(f"Goal ({goal.status}): {goal.text}")
        for server in self.servers.states():
            counts = f"{server.tools} tools, {server.prompts} prompts" if server.state == "ready" else server.words
            lines.append(f"MCP server `{server.name}`: {server.state}{f' ({counts})' if counts else ''}")
        return [*lines, *self.language.states()]

    async def warm(self) -> None:
        await anyio.to_thread.run_sync(load, EXAMINE)
        await self.confinement.ready()

    async def doctor(self) -> Sequence[str]:
        return [*await self.confinement.lines(), self.safety.audit_words()]

    async def policy_status(self) -> Sequence[str]:
        return [*self.safety.status(), *await self.confinement.lines()]

    async def policy_check(self, text: str) -> str:
        name, _, arguments = text.partition(" ")
        if not name:
            return f"Which call? {CHECK_EXAMPLE}"
        check = partial(check_call, self.registry, self._settings.tools, self.safety.deciders, self._session.mode())
        try:
            return check_words(check(name, arguments))  # Here: what was learned is read from the store.
        except ToolError as error:
            return f'{error} `/policy check bash {{"command": "ls"}}` is an example.'

    def _sandbox_found(self, found: Found) -> None:
        """The person is told where commands are not confined although they should be, and where less well."""
        if found.disabled or not (found.trouble or found.sandbox.kind == "none"):
            return
        words = "\n".join([f"Commands run with: {found.words}.", *found.trouble])
        log.warning("%s", words)
        self.safety.noticed(words, sandbox=found.sandbox.kind)
        self._session.tell(words)

    def _repository_made(self, folder: Path) -> None:
        words = (
            f"A command made the git repository {folder}, and its configuration names programs or has submodules. Look "
            "at its `.git/config` before you run git there, or in a repository above it."
        )
        self.safety.noticed(words)
        if not self._session.closed:
            self._session.tell(words)

    async def start(self) -> Sequence[str]:
        """What must be there before the first turn; whoever comes later finds it done."""
        if not self._told:
            self._expire()
        told = [*await self.extensions.project(), *await self.extensions.packages()]
        if not self._told:
            self._told = True
            if not self._settings.secrets.redact:
                told.append(NOT_REDACTED)
            told += [*self.redaction.redactor.trouble, *self._filters.trouble()]
            unknown = ", ".join(f"`{name}`" for name in self.offer.unknown_names())
            told += self.safety.deciders.rules.trouble
            told += self.safety.unknown_tools()
            told += [self._session.config.trouble] if self._session.config.trouble else []
            told += self.servers.trouble
            told += [f"The configuration names tools that there are not: {unknown}."] if unknown else []
        return told

    def _expire(self) -> None:
        """Removes what was kept aside long ago, of all sessions."""
        try:
            self._overflow.expire(self._settings.tools.overflow.retention_days)
        except StoreError as error:
            log.warning("old outputs could not be removed: %s", error)

    async def live(self) -> None:
        """What runs beside the turns, until `close`."""
        with self._scope:
            async with anyio.create_task_group() as tasks:
                if self.servers.any:
                    tasks.start_soon(self.servers.run)
                if self._settings.tools.schedule.enabled:
                    tasks.start_soon(self.scheduler.live)
                tasks.start_soon(self._browser.live)

    async def _run_schedule(self, schedule: Schedule) -> None:
        words = f"Scheduled (`{schedule.timing}`): {schedule.prompt}\n\n"
        await self._session.prompt_unasked([TextContent(text=schedule.prompt)], schedule.mode, words)

    # --- prompts ----------------------------------------------------------------------------------------------

    def command_list(self) -> AvailableCommandsUpdate:
        """What begins with `/`: our commands, the project's skills."""
        skills = [
            AvailableCommand(
                name=skill.name,
                description=skill.description or "A skill of this project",
                input=UnstructuredCommandInput(hint="what to apply it to"),
            )
            for skill in self._skills.values()
        ]
        return commands_update([*skills, *self.servers.commands()])

    def _commands_changed(self) -> None:
        if not self._session.closed:
            self._session.emit(self.command_list(), keep=False)

    async def expand(self, blocks: Sequence[ContentBlock]) -> Sequence[ContentBlock] | str:
        expanded = await self._expand(blocks)
        if isinstance(expanded, str) or not mentions_diagnostics(blocks):
            return expanded
        lsp = self._session.config.settings.lsp
        return [
            *expanded,
            await diagnostics_block(
                client=self._session.client,
                cache=self._session.diagnostics,
                roots=self._session.roots,
                files=lsp.max_diagnostic_files,
                per_file=lsp.max_diagnostics_per_file,
                own=self._own_diagnostics if self.language.missing() is None else None,
            ),
        ]

    async def _own_diagnostics(self) -> Report:
        seen = self._ledger.seen_below(self._session.roots.real[0])
        return await self.language.of_project(seen, self._executor, self._settings.tools.files)

    async def _expand(self, blocks: Sequence[ContentBlock]) -> Sequence[ContentBlock] | str:
        name, rest = split_command(blocks)
        if sets_goal(name, rest):
            if (earlier := self.goals.current) is not None:
                self._session.tell(f"The goal before it is given up: {earlier.text}")
            goal = self.goals.begin(self._session.clean(rest))
            return with_command_text(blocks, PROMPT.format(goal=goal.text))
        if name and (skill := self._skills.get(name)) is not None:
            self._skill = name
            return with_command_text(blocks, skill.text(self._session.roots, rest))
        if name and ":" in name:
            await self.servers.ready()
            if (prompt := self.servers.find_prompt(name)) is not None:
                text, usable = await self.servers.text_of(prompt, rest)
                return with_command_text(blocks, text) if usable else text
        return await with_linked_pages(
            blocks,
            client=self._services.web,
            roots=self._session.roots,
            reports=self._around.reports,
            entry=self.offer.find("fetch"),
            max_chars=self._settings.limits.max_link_chars,
        )

    def notes(self) -> Sequence[Message]:
        notes: list[Message] = [*self._runs.notes()]
        goal = self.goals.active
        if goal is not None and not any(mentions(message, goal.text) for message in self._session.messages()):
            notes.append(UserMessage((TextPart(f"[The goal of this session, set by /plan]\n{goal_words(goal)}"),)))
        return notes

    def forget(self) -> None:
        self.quota.reset()
        self._instructions.forget()
        self._ledger.clear()
        self._cache.clear()
        self._runs.forget()

    def user_message(self, blocks: Sequence[ContentBlock], choice: str) -> Message:
        provider = self._builder.provider_settings(self._session.config, choice.partition(":")[0])
        parts = parts_of(
            blocks,
            images=provider.images,
            audio=provider.audio,
            max_resource_bytes=self._settings.limits.max_prompt_bytes,
        )
        return UserMessage(parts)

    def title(self, blocks: Sequence[ContentBlock]) -> str:
        return title_of(blocks)

    def settings(self, model: Model) -> ModelSettings:
        session = self._session
        agent = self._settings.agent
        return ModelSettings(
            model=model.id,
            system=self.redaction.text(
                system_prompt(
                    session.roots,
                    session.mode(),
                    f"{agent.instructions}\n{self._instructions.text}".strip(),
                    {skill.name: skill.description for skill in self._skills.values()},
                )
            ),
            thought_level=THOUGHT_LEVELS.get(session.thought_level),
            max_output_tokens=agent.max_output_tokens or None,
            cache_key=session.id,
        )

    # --- turns ------------------------------------------------------------------------------------------------

    async def turn(self, model: ReadyModel, blocks: Sequence[ContentBlock]) -> StopReason:
        agent = self._settings.agent
        self._turn += 1  # A new turn's shell starts from the session's folder, with nothing exported.
        now = time.time_ns() // 1_000_000
        goal = self.goals.active
        self._turn_context = TurnContext(
            str(uuid.uuid4()), self._session.id, now, self._skill, goal.id if goal is not None else ""
        )
        self._skill = ""
        self._model = model
        self._around.failures.changed()
        for told in [
            *await self.start(),
            *await self.extensions.ask(partial(ask_trust, self._session), self.safety.noticed),
        ]:
            self._session.tell(told)
        await self.servers.ready()
        self._relevance.use(model.embed)
        window = self.room.known(model.name, model.known_window)
        await self.offer.aim(self.redaction.text(leading_text(blocks)), window)
        host = SessionHost(self._session, model, self.room, lambda: self.settings(model), self.offer.definitions)
        try:
            return await run_turn(
                model.provider,
                host,
                self._runner.run_all,
                max_iterations=agent.max_tool_iterations,
                doom_loop=agent.doom_loop,
            )
        finally:
            forget_state(self._shell_state)

    @property
    def _shell_state(self) -> Path:
        return self._folder / "state" / f"shell-{self._turn}"

    async def close(self) -> None:
        await self._runs.close()
        await self.servers.close()
        self._scope.cancel()
        await self.language.close()
        await self._local.close()
        await self._hooks_executor.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _may_hold(folder: str, roots: Roots) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and not roots.contains(real_path(Path(folder)))


def _own_keys(config: Config) -> frozenset[str]:
    """The variables that hold the agent's own keys: no command the model runs needs them."""
    providers = (ProviderConfig(), *config.settings.providers.values())
    return frozenset((*(provider.api_key_env for provider in providers), config.settings.tools.web.brave_key_env))


def _private_folder(roots: Roots) -> Path:
    """For script files and shell state; only we can look into it. Not below a folder of the session, if that can be."""
    parents = [parent for parent in (tempfile.gettempdir(), SAFE_FOLDER, *OTHER_FOLDERS) if _may_hold(parent, roots)]
    parent = parents[0] if parents else tempfile.gettempdir()
    if not parent.replace("/", "").replace("_", "").replace("-", "").replace(".", "").isalnum():
        parent = SAFE_FOLDER
    return Path(tempfile.mkdtemp(prefix="acp-coder-", dir=parent))
