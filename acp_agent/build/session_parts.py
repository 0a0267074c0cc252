"""The parts of one session, each built by one function. Each gets the parts built before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from acp_agent.build.host_session import build_instructions
from acp_agent.build.open_workspaces import Grounds, Opener, Shared, Spawn, build_project, build_runs, ground
from acp_agent.build.own_credentials import outside, own_keys
from acp_agent.config.credentials import McpLogins
from acp_agent.config.model import Settings
from acp_agent.config.xdg import config_dir, state_dir
from acp_agent.executors.base import Late
from acp_agent.lazy import load
from acp_agent.limits.shares import COMMANDS, CONNECTIONS, PROGRAMS, Share, Shares
from acp_agent.loop.beside.scheduler import Scheduler
from acp_agent.loop.calls.goal_compression import GoalCompression
from acp_agent.loop.calls.output_summary import OutputSummary
from acp_agent.loop.calls.outputs import Outputs
from acp_agent.loop.calls.redaction import Redaction
from acp_agent.loop.calls.repeats import CallQuota, RepeatedFailures
from acp_agent.loop.calls.reports import Display, Reports
from acp_agent.loop.calls.runner import Calls, Conversation
from acp_agent.loop.calls.session_filters import SessionFilters
from acp_agent.loop.calls.session_rules import audit_path, home_of
from acp_agent.loop.commands import Commands
from acp_agent.loop.hooks.hooks import Hooks
from acp_agent.loop.journal import Journal
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.memory.room import Room
from acp_agent.loop.memory.session_goals import Goals
from acp_agent.loop.model.models import Models
from acp_agent.loop.model.ready_model import SessionModels
from acp_agent.loop.model.spending import Spending
from acp_agent.loop.prompts.library import Library
from acp_agent.loop.prompts.menu import Menu
from acp_agent.loop.prompts.skills import Skills, read_skills
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.session import Session
from acp_agent.loop.shell.private_folder import PrivateFolder
from acp_agent.loop.shell.session_shell import Shell
from acp_agent.loop.toolbox.absent import Absent
from acp_agent.loop.toolbox.extensions import Extensions
from acp_agent.loop.toolbox.mcp_tools import SessionServers
from acp_agent.loop.toolbox.offer import Offer
from acp_agent.loop.toolbox.relevance import Relevance
from acp_agent.loop.toolbox.server_requests import ServerRequests
from acp_agent.loop.toolbox.toolbox import Toolbox
from acp_agent.loop.toolbox.trust import has_plugins
from acp_agent.loop.turns.context_use import ContextUse
from acp_agent.loop.turns.parts import Beside, Parts
from acp_agent.loop.turns.session_prompts import Prompts
from acp_agent.loop.turns.session_turns import Turns
from acp_agent.loop.turns.suggestions import Suggestions
from acp_agent.safety.deciding.audit import AuditLog
from acp_agent.safety.environment import safe_environment
from acp_agent.safety.folders.folder_trust import SERVERS
from acp_agent.store.session_store import SessionStore
from acp_agent.tools.kit.registry import Registry, SessionRegistry
from acp_agent.tools.net.web_access import WebAccess

if TYPE_CHECKING:
    from acp_agent.executors.local import LocalCommands
    from acp_agent.executors.places.host import Host
    from acp_agent.loop.toolbox.session_plugins import SessionPlugins
    from acp_agent.loop.toolbox.trusted_programs import TrustedPrograms

TRUSTED = "acp_agent.loop.toolbox.trusted_programs:TrustedPrograms"
PLUGINS = "acp_agent.loop.toolbox.session_plugins:SessionPlugins"
UNDOING = "acp_agent.loop.undo.undoing:Undoing"
LOCAL_COMMANDS = "acp_agent.executors.local:LocalCommands"


def owners_shares(settings: Settings) -> Shares:
    """What all sessions of an owner may hold."""
    network, bash, limits = settings.network, settings.tools.bash, settings.limits
    CONNECTIONS.most, COMMANDS.most = network.max_connections_per_process, bash.max_background_runs_per_process
    PROGRAMS.most = limits.max_programs_per_process

    def owners(top: Share, key: str, most: int) -> Share:
        """Where the descriptors bound what the process may have, an owner gets two thirds of it."""
        made = Share("all of your sessions", top.what, key, most, top)
        made.parts, made.each = 2 * top.parts, 3 * top.each
        return made

    return Shares(
        owners(CONNECTIONS, "network.max_connections_per_owner", network.max_connections_per_owner),
        owners(COMMANDS, "tools.bash.max_background_runs_per_owner", bash.max_background_runs_per_owner),
        owners(PROGRAMS, "limits.max_programs_per_owner", limits.max_programs_per_owner),
    )


def sessions_shares(settings: Settings, owners: Shares) -> Shares:
    most, key = settings.limits.max_programs_per_session, "limits.max_programs_per_session"
    programs = Share("this session", PROGRAMS.what, key, most, owners.programs)
    return Shares(owners.connections, owners.commands, programs)


def build_parts(
    session: Session,
    store: SessionStore,
    tools: Registry,
    models: Models,
    redaction: Redaction,
    environ: Mapping[str, str],
    spawn: Spawn,
    host: Host | None,
    shares: Shares,
) -> Parts:
    """`host`: where the session's roots are, if not on this machine. `shares`: of the owner."""
    settings, outbox = session.config.settings, session.outbox
    outbox.redaction = redaction
    session.client.clean = redaction.struct
    turn = RunningTurn(session.id, announced=settings.tools.bash.turn_context)
    log = audit_path(session.config, environ)
    troubles: list[str] = []
    audit = AuditLog(log, settings.audit, redaction.text, troubles.append, store.audit_heads)
    journal = Journal(audit, troubles, store, outbox, session.queue, turn, session.choices, settings.tools)
    plugins: SessionPlugins | None = load(PLUGINS)(settings.plugins, environ) if has_plugins(environ) else None
    hidden, bash = own_keys(session.config), settings.tools.bash
    inherited = safe_environment(environ, bash.environment, bash.environment_extra, hidden, redaction.redactor.finds)
    if (home := home_of(environ)) is not None:
        inherited["HOME"] = str(home)  # By its own name: the sandbox knows no links to it.
    on = ground(session, session.config, session.roots, host, environ, inherited, journal, spawn)
    memory = build_memory(session, store, turn, environ, plugins, on)
    relevance = Relevance()
    outputs = build_outputs(session, store, redaction, memory, relevance, turn, environ)
    programs = build_programs(session, store, on.folder, plugins)
    hooks = build_hooks(session, turn, journal, environ, spawn, plugins, programs)
    shares = sessions_shares(settings, shares)
    runs = build_runs(session, journal, outputs, environ, spawn, shares, on.folder)
    registry = SessionRegistry(tools)
    about = registry, redaction.redactor, journal, turn, runs, shares.connections
    shared = Shared(session, store, *about, environ, inherited, spawn)
    project = build_project(shared, on, hooks, memory.instructions, memory.skills)
    workspaces = Opener(shared, on, project).workspaces()
    shell, permissions = Shell(workspaces, workspaces.own, turn, runs), project.permissions
    menu = Menu(outbox, session.queue, memory.skills, memory.library)
    own_models = SessionModels(session, models, Spending(session, store.spending), memory.room.estimator)
    requests = ServerRequests(session, own_models, journal, McpLogins(environ, redaction.redactor.learn))
    servers = build_servers(session, registry, menu, environ, inherited, shell, plugins, requests, programs)
    absent = Absent(settings.tools, memory.skills, runs, project.languages, session.roots)
    more = shell.more_parameters()
    offer = Offer(registry, settings.tools, session.choices, absent, relevance, permissions.deciders, more)
    own = settings.agent.trust

    def trusted(files: Mapping[str, bytes]) -> None:
        memory.library.trust(files)
        for words in hooks.trust(files):
            outbox.tell(words)
        servers.trust(files.get(SERVERS, b""))
        menu.show()

    extensions = Extensions(
        session.roots.clients[0], registry, store, trusted, packages=settings.tools.entry_points, own=own
    )
    toolbox = Toolbox(registry, offer, extensions, servers, relevance, plugins)
    scheduler = Scheduler(session, store.schedules)
    web = WebAccess(settings.tools, environ, session.roots.clients, permissions.refuses)
    talk = build_conversation(
        settings, shell.workspace.name, memory, own_models, toolbox, build_reports(session, shell, redaction)
    )
    calls = Calls(session, talk, shell, web, scheduler, outputs)
    suggestions = Suggestions(session, own_models.spending)
    undoing = project.recorder, shell, memory.tell, journal.notice
    return Parts(
        toolbox=toolbox,
        calls=calls,
        shell=shell,
        memory=memory,
        models=own_models,
        journal=journal,
        commands=Commands(session, lambda: load(UNDOING)(session, *undoing)),
        prompts=Prompts(session, own_models, memory, toolbox, calls, menu),
        turns=Turns(session, memory, toolbox, calls, journal, suggestions, () if plugins is None else plugins.trouble),
        context=ContextUse(session, memory, offer, own_models, hooks),
        beside=Beside(servers, scheduler if settings.tools.schedule.enabled else None, web, suggestions),
    )


def build_memory(
    session: Session,
    store: SessionStore,
    turn: RunningTurn,
    environ: Mapping[str, str],
    plugins: SessionPlugins | None,
    on: Grounds,
) -> Memory:
    settings, roots, state = session.config.settings, session.roots, Path(state_dir(environ))
    agent = settings.agent
    skills = read_skills(roots) if agent.skills else {}
    library = Library(roots, Path(config_dir(environ)), reads=agent.skills)
    if plugins is not None:
        plugins.lend(skills, library)
    return Memory(
        session.outbox,
        store,
        Room(settings.compaction, agent.context_budget, agent.context_budget_tokens),
        Goals(session.outbox, store.goals),
        build_instructions(session.config, roots, state, on.confinement.for_prompt),
        Skills(skills, roots, turn),
        library,
    )


def build_conversation(
    settings: Settings, home: str, memory: Memory, models: SessionModels, toolbox: Toolbox, reports: Reports
) -> Conversation:
    """The session's own."""
    quota, failures = settings.tools.max_tool_calls_per_session, settings.tools.repeated_failures
    used = CallQuota(quota), RepeatedFailures(failures)
    return Conversation(memory, models, toolbox, reports, *used, home)


def build_outputs(
    session: Session,
    store: SessionStore,
    redaction: Redaction,
    memory: Memory,
    relevance: Relevance,
    turn: RunningTurn,
    environ: Mapping[str, str],
) -> Outputs:
    tools = session.config.settings.tools
    return Outputs(
        session_id=session.id,
        store=store.overflow,
        redaction=redaction,
        config=tools,
        filters=SessionFilters(tools.filters, environ),
        compression=GoalCompression(tools.compression, memory, relevance, session.choices),
        summary=OutputSummary(tools, turn, memory.room.estimator),
    )


def build_programs(
    session: Session, store: SessionStore, folder: PrivateFolder, plugins: SessionPlugins | None
) -> Callable[[], TrustedPrograms]:
    """What makes sure that programs of the folder and of plugins are what the user trusts; made when it is needed."""
    folders = session.roots.clients
    is_whole = (lambda of: False) if plugins is None else plugins.is_whole
    return cache(lambda: load(TRUSTED)(folders[0], store, lambda: folder.path, is_whole, folders))


def build_hooks(
    session: Session,
    turn: RunningTurn,
    journal: Journal,
    environ: Mapping[str, str],
    spawn: Spawn,
    plugins: SessionPlugins | None,
    programs: Callable[[], TrustedPrograms],
) -> Hooks:
    settings, folders = session.config.settings, session.roots.clients
    config = settings.hooks if plugins is None else replace(settings.hooks, on=[*settings.hooks.on, *plugins.hooks])
    hidden, grace = own_keys(session.config), settings.tools.bash.terminate_grace
    run_with: Late[LocalCommands] = Late(
        lambda: load(LOCAL_COMMANDS)(
            environ=environ, hidden=hidden, terminate_grace=grace, folders=folders, entered=session.roots.here.entered
        )
    )
    hooks = Hooks(config, run_with, folders[0], session.outbox, turn, session.choices, journal, spawn, programs)
    session.client.asking = hooks.asking
    return hooks


def build_servers(
    session: Session,
    registry: SessionRegistry,
    menu: Menu,
    environ: Mapping[str, str],
    inherited: Mapping[str, str],
    shell: Shell,
    plugins: SessionPlugins | None,
    requests: ServerRequests,
    programs: Callable[[], TrustedPrograms],
) -> SessionServers:
    config, same_user = session.config.settings.mcp, not session.config.settings.tools.scope.user
    if plugins is not None:
        config = replace(config, servers={**plugins.servers, **config.servers})
    return SessionServers(
        session.mcp_servers,
        config,
        registry,
        roots=session.roots,
        environ=inherited,
        more=outside(session.config, environ),
        user=shell.confinement.sandbox.user,
        as_trusted=lambda of, spec: programs().server(of, spec, copies=same_user),
        outbox=session.outbox,
        menu=menu,
        requests=requests,
        programs=shell.runs.programs,
    )


def build_reports(session: Session, shell: Shell, redaction: Redaction) -> Reports:
    settings = session.config.settings
    display = Display(
        terminal_meta=session.client.plan.terminal_output and shell.draws_here,
        updates_per_second=settings.limits.updates_per_second,
        live_chars=settings.limits.live_output_chars,
    )
    return Reports(
        session.outbox, redaction, display, cwd=str(session.roots.cwd), max_output_chars=settings.tools.max_output_chars
    )
