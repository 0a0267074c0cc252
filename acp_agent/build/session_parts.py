"""The parts of one session, each built by one function. Each gets the parts built before it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from acp_agent.config.credentials import McpLogins
from acp_agent.config.load import Config
from acp_agent.config.model import ProviderConfig, Settings
from acp_agent.config.place_settings import LOCAL as THIS_MACHINE
from acp_agent.config.place_settings import Place, find_place, is_host, tmux_session
from acp_agent.config.xdg import config_dir, state_dir
from acp_agent.errors import ConfigError
from acp_agent.executors.base import Offer as EditorOffer
from acp_agent.executors.scrub import scrubbing
from acp_agent.lazy import load
from acp_agent.limits.shares import COMMANDS, CONNECTIONS, PROGRAMS, Share, Shares
from acp_agent.loop.beside.background_runs import SessionRuns
from acp_agent.loop.beside.beside import Beside
from acp_agent.loop.beside.languages import Languages
from acp_agent.loop.beside.other_places import OtherPlaces
from acp_agent.loop.beside.panes import Panes
from acp_agent.loop.beside.scheduler import Scheduler
from acp_agent.loop.calls.gate import Gate
from acp_agent.loop.calls.goal_compression import GoalCompression
from acp_agent.loop.calls.guard import Guard, audit_path, home_of, session_rules
from acp_agent.loop.calls.output_summary import OutputSummary
from acp_agent.loop.calls.outputs import Outputs
from acp_agent.loop.calls.redaction import Redaction
from acp_agent.loop.calls.repeats import CallQuota, RepeatedFailures
from acp_agent.loop.calls.reports import Display, Reports
from acp_agent.loop.calls.runner import Calls, Conversation
from acp_agent.loop.calls.session_filters import SessionFilters
from acp_agent.loop.commands import Commands
from acp_agent.loop.hooks.hooks import Hooks
from acp_agent.loop.journal import Journal
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.memory.room import Room
from acp_agent.loop.memory.session_goals import Goals
from acp_agent.loop.model.models import Models
from acp_agent.loop.model.ready_model import SessionModels
from acp_agent.loop.model.spending import Spending
from acp_agent.loop.prompts.instructions import Instructions
from acp_agent.loop.prompts.library import Library
from acp_agent.loop.prompts.menu import Menu
from acp_agent.loop.prompts.skills import Skills, read_skills
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.session import Session
from acp_agent.loop.shell.command_network import CommandNetwork
from acp_agent.loop.shell.confinement import Confinement
from acp_agent.loop.shell.private_folder import PrivateFolder
from acp_agent.loop.shell.session_shell import Shell
from acp_agent.loop.shell.workspaces import Backend, Late, Workspace, Workspaces
from acp_agent.loop.toolbox.absent import Absent
from acp_agent.loop.toolbox.extensions import Extensions
from acp_agent.loop.toolbox.mcp_tools import SessionServers
from acp_agent.loop.toolbox.offer import Offer
from acp_agent.loop.toolbox.relevance import Relevance
from acp_agent.loop.toolbox.server_requests import ServerRequests
from acp_agent.loop.toolbox.toolbox import Toolbox
from acp_agent.loop.toolbox.trust import has_plugins
from acp_agent.loop.turns.context_use import ContextUse
from acp_agent.loop.turns.parts import Parts
from acp_agent.loop.turns.session_prompts import Prompts
from acp_agent.loop.turns.session_turns import Turns
from acp_agent.loop.undo.change_recorder import ChangeRecorder
from acp_agent.safety.access import IN_PLACE, PANED, PLACE, PLACED
from acp_agent.safety.deciding.audit import AuditLog
from acp_agent.safety.environment import SECRET_NAMES, safe_environment
from acp_agent.safety.folders.folder_trust import SERVERS
from acp_agent.safety.folders.paths import Roots
from acp_agent.store.session_store import SessionStore
from acp_agent.tools.kit.registry import Registry, SessionRegistry
from acp_agent.tools.net.web_access import WebAccess

if TYPE_CHECKING:
    from acp_agent.executors.local import LocalCommands
    from acp_agent.executors.places.base import Elsewhere
    from acp_agent.executors.places.host import Host
    from acp_agent.loop.toolbox.session_plugins import SessionPlugins
    from acp_agent.loop.toolbox.trusted_programs import TrustedPrograms

TRUSTED = "acp_agent.loop.toolbox.trusted_programs:TrustedPrograms"
PLUGINS = "acp_agent.loop.toolbox.session_plugins:SessionPlugins"
UNDOING = "acp_agent.loop.undo.undoing:Undoing"
DYN_EXECUTOR = "acp_agent.executors.editor.dyn_executor:DynExecutor"
EDITOR_FILES = "acp_agent.executors.editor.editor_files:EditorFiles"
TERMINALS = "acp_agent.executors.editor.editor_terminals:EditorTerminals"
PLACES = {
    "container": "acp_agent.executors.places.container:Container",
    "devcontainer": "acp_agent.executors.places.dev_container:DevContainer",
}
"""Those whose files are this machine's; the others are a `HOST`."""
HOST = "acp_agent.executors.places.host:Host"
CONTAINER_COMMANDS = "acp_agent.executors.places.container_commands:ContainerCommands"
REMOTE_COMMANDS = "acp_agent.executors.far.remote_commands:RemoteCommands"
REMOTE_DISK = "acp_agent.executors.far.remote_disk:RemoteDisk"
LOCAL_COMMANDS = "acp_agent.executors.local:LocalCommands"
LOCAL_DISK = "acp_agent.executors.disk_files:LocalDisk"
DISK_FILES = "acp_agent.executors.disk_files:DiskFiles"

STORE_URL = "ACP_CODER_STORE_URL"
"""It may have a password."""

Spawn = Callable[[Coroutine[Any, Any, None]], None]
"""Runs something in the background until the agent closes."""


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
    home = home_of(environ) if host is None else host.home
    session.roots.rules = session_rules(session.config, session.roots, environ, home)
    turn = session.turn or RunningTurn(session.id, announced=settings.tools.bash.turn_context)
    log = audit_path(session.config, environ)
    troubles: list[str] = []
    audit = AuditLog(log, settings.audit, redaction.text, troubles.append, store.audit_heads)
    journal = Journal(audit, troubles, store, outbox, session.queue, turn, session.choices, settings.tools)
    plugins: SessionPlugins | None = load(PLUGINS)(settings.plugins, environ) if has_plugins(environ) else None
    memory = build_memory(session, store, turn, environ, plugins)
    relevance = Relevance()
    outputs = build_outputs(session, store, redaction, memory, relevance, turn, environ)
    folder = PrivateFolder(session.roots)
    programs = build_programs(session, store, folder, plugins)
    hooks = build_hooks(session, turn, journal, environ, spawn, plugins, programs)
    shares = sessions_shares(settings, shares)
    shell, inherited = build_shell(session, turn, journal, outputs, environ, spawn, host, hooks, shares, folder)
    memory.instructions.limits = shell.confinement.for_prompt
    languages = Languages(outbox, settings.lsp, session.roots, shell, inherited, session.published, spawn)
    registry = SessionRegistry(tools)
    guard = Guard(
        session.config, session.roots, environ, home, registry, store, redaction.redactor, journal, shell.confinement
    )
    menu = Menu(outbox, session.queue, memory.skills, memory.library)
    own_models = SessionModels(session, models, Spending(session, store.spending), memory.room.estimator)
    requests = ServerRequests(session, own_models, journal, McpLogins(environ, redaction.redactor.learn))
    servers = build_servers(session, registry, menu, environ, inherited, shell, plugins, requests, programs)
    absent = Absent(settings.tools, memory.skills, shell.runs, languages, session.roots)
    offer = Offer(registry, settings.tools, session.choices, absent, relevance, guard.deciders, more_parameters(shell))
    own = settings.agent.trust

    def trusted(files: Mapping[str, bytes]) -> None:
        memory.library.trust(files)
        for words in hooks.trust(files):
            outbox.tell(words)
        if session.part_of is None:
            servers.trust(files.get(SERVERS, b""))
        menu.show()

    extensions = Extensions(
        session.roots.clients[0], registry, store, trusted, packages=settings.tools.entry_points, own=own
    )
    toolbox = Toolbox(registry, offer, extensions, servers, relevance, plugins)
    scheduler = Scheduler(session, store.schedules)
    web = WebAccess(settings.tools, environ, session.roots.clients, guard.refuses)
    gate = Gate(session.client, store, session.choices, guard, redaction.redactor, shell.hooks)
    reports = build_reports(session, shell, redaction)
    network = CommandNetwork(session, gate, shell, inherited, environ, shares.connections)
    recorder = ChangeRecorder(session, store.operations, shell, settings.undo, Path(state_dir(environ)), home, spawn)
    talk = build_conversation(settings, memory, toolbox, reports)
    others = OtherPlaces(session)
    calls = Calls(session, talk, gate, shell, languages, web, scheduler, outputs, network, recorder, others)
    return Parts(
        toolbox=toolbox,
        calls=calls,
        shell=shell,
        memory=memory,
        languages=languages,
        models=own_models,
        journal=journal,
        commands=Commands(session, lambda: load(UNDOING)(session, recorder, shell, memory.tell, journal.notice)),
        prompts=Prompts(session, own_models, memory, toolbox, languages, calls, menu),
        turns=Turns(session, memory, toolbox, calls, journal, () if plugins is None else plugins.trouble),
        context=ContextUse(session, memory, offer, own_models, shell.hooks),
        beside=Beside(servers, scheduler if settings.tools.schedule.enabled else None, web, network.live),
    )


def build_memory(
    session: Session,
    store: SessionStore,
    turn: RunningTurn,
    environ: Mapping[str, str],
    plugins: SessionPlugins | None,
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
        build_instructions(session.config, roots, state),
        Skills(skills, roots, turn),
        library,
    )


def build_conversation(settings: Settings, memory: Memory, toolbox: Toolbox, reports: Reports) -> Conversation:
    """The session's own."""
    quota, failures = settings.tools.max_tool_calls_per_session, settings.tools.repeated_failures
    return Conversation(memory, toolbox, reports, CallQuota(quota), RepeatedFailures(failures), settings.agent.place)


def build_instructions(config: Config, roots: Roots, state: Path) -> Instructions:
    agent = config.settings.agent
    return Instructions(roots, enabled=agent.instruction_files, max_bytes=agent.max_instruction_bytes, state=state)


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


def build_shell(
    session: Session,
    turn: RunningTurn,
    journal: Journal,
    outputs: Outputs,
    environ: Mapping[str, str],
    spawn: Spawn,
    host: Host | None,
    hooks: Hooks,
    shares: Shares,
    folder: PrivateFolder,
) -> tuple[Shell, dict[str, str]]:
    """The shell, and the environment its commands and the language servers inherit."""
    settings, roots = session.config.settings, session.roots
    tools, bash, home = settings.tools, settings.tools.bash, home_of(environ)
    hidden = own_keys(session.config)
    inherited = safe_environment(environ, bash.environment, bash.environment_extra, hidden, outputs.redactor.finds)
    if home is not None:
        inherited["HOME"] = str(home)  # By its own name: the sandbox knows no links to it.
    confinement = Confinement(tools, roots, inherited, home, folder, journal, spawn)
    place = settings.place()
    if host is not None:
        confinement.place = host
        confinement.far = host.walls
    elif place is not None:
        confinement.place = build_place(place, session.id, roots, outside(session.config, environ), confinement)
    runs = SessionRuns(
        bash,
        max_output_chars=tools.max_output_chars,
        spawn=spawn,
        journal=journal,
        outputs=outputs,
        share=shares.commands,
        programs=shares.programs,
        panes=build_panes(session, folder, outside(session.config, environ), spawn),
    )

    def workspace(name: str, confinement: Confinement) -> Workspace:
        offer = editor_offer(session, elsewhere=confinement.place is not None, far=host is not None)
        make = partial(build_backend, session, inherited, folder, confinement, offer)
        return Workspace(
            name, confinement, offer, Late(make if host is None else partial(build_remote, session, host, environ))
        )

    def open_other(name: str) -> Workspace:
        other = find_place(name, settings.places)
        outer = outside(session.config, environ)
        made = None if other is None else build_place(other, session.id, roots, outer, confinement)
        return workspace(name, confinement.at(made))

    own, others = workspace(settings.agent.place, confinement), other_places(session.config)
    if host is not None:
        _ = own.commands  # They end the connection, which is there already.
    apart = [name for name, other in others.items() if host is not None or is_host(other)]
    if session.part_of is not None:
        others, apart = {name: other for name, other in others.items() if name not in apart}, []
    shell = Shell(Workspaces(own, list(others), apart, open_other), own, roots, turn, folder, hooks, runs)
    return shell, inherited


def build_programs(
    session: Session, store: SessionStore, folder: PrivateFolder, plugins: SessionPlugins | None
) -> Callable[[], TrustedPrograms]:
    """What makes sure that programs of the folder and of plugins are what the user trusts; made when it is needed."""
    if session.hooks is not None:
        return session.hooks.programs  # Their folder is that of the whole session.
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
    config = config if session.hooks is None else session.hooks.config
    hidden, grace = own_keys(session.config), settings.tools.bash.terminate_grace
    run_with: Late[LocalCommands] = Late(
        lambda: load(LOCAL_COMMANDS)(
            environ=environ, hidden=hidden, terminate_grace=grace, folders=folders, entered=session.roots.here.entered
        )
    )
    hooks = Hooks(config, run_with, folders[0], session.outbox, turn, session.choices, journal, spawn, programs)
    if session.part_of is None:
        session.client.asking = hooks.asking
    return hooks


def build_panes(session: Session, folder: PrivateFolder, environ: Mapping[str, str], spawn: Spawn) -> Panes:
    settings, roots = session.config.settings, session.roots
    name = tmux_session(settings.place(), settings.tools.tmux)
    name = "" if settings.tools.scope.user else name  # Another user could put a server of their own there.
    return Panes(
        name,
        settings.tools.tmux,
        settings.tools.terminal,
        lambda: folder.path / "sandbox",
        environ,
        roots.clients,
        roots.cwd,
        settings.agent.place,
        spawn,
        session.outbox.tell,
    )


def more_parameters(shell: Shell) -> dict[str, dict[str, Any]]:
    """By tool: those that name a place, where there are others, and a pane, where there is tmux."""
    found: dict[str, dict[str, Any]] = {}
    if shell.places:
        found |= {name: {PLACE: {**IN_PLACE, "enum": list(shell.places)}} for name in PLACED}
    if shell.runs.panes.on:
        found |= {name: {**found.get(name, {}), **more} for name, more in PANED.items()}
    return found


def other_places(config: Config) -> dict[str, Place | None]:
    """Those in which single calls may run besides the session's, by name."""
    found: dict[str, Place | None] = {}
    for name in (THIS_MACHINE, *config.settings.places) if config.settings.agent.elsewhere else ():
        if name != config.settings.agent.place:
            with suppress(ConfigError):  # It is half configured.
                found[name] = find_place(name, config.settings.places)
    return found


def editor_offer(session: Session, *, elsewhere: bool, far: bool) -> EditorOffer:
    """What the editor serves: its terminals and buffers are the user's, so nobody else can act there, and only on this
    machine. `elsewhere`: commands run in a place; `far`: files are on another machine."""
    tools, plan = session.config.settings.tools, session.client.plan
    own = not tools.scope.user and not far
    return EditorOffer(
        terminal=own and plan.terminals and tools.bash.editor_terminal and not elsewhere,
        read_text=own and plan.reads_files and tools.files.editor_buffers,
        write_text=own and plan.writes_files and tools.files.editor_buffers,
    )


def build_place(
    place: Place, session_id: str, roots: Roots, environ: Mapping[str, str], confinement: Confinement
) -> Elsewhere:
    """`environ`: for the program that leads there, without the agent's own keys."""
    made: Elsewhere
    if is_host(place):
        made = load(HOST)(place, roots.clients, environ)
    else:
        make, about = load(PLACES[place[1].kind]), (*place, session_id, roots.all, environ)
        made = make(*about, confinement.walls, confinement.user, confinement.policy)
    return made


def build_remote(session: Session, host: Host, environ: Mapping[str, str]) -> Backend:
    """Of another machine."""
    commands = load(REMOTE_COMMANDS)(
        host.link,
        environ=environ,
        env=host.env,
        walls=host.walls,
        terminate_grace=session.config.settings.tools.bash.terminate_grace,
    )
    files = load(DISK_FILES)(load(REMOTE_DISK)(host.link, host.walls), session.roots.rules.hides)
    return Backend(commands, files)


def build_backend(
    session: Session, environ: Mapping[str, str], folder: PrivateFolder, confinement: Confinement, offer: EditorOffer
) -> Backend:
    """Of this machine, or of a container that has its files; the editor serves what it offers."""
    settings, client, roots = session.config.settings, session.client, session.roots
    tools, bash, user = settings.tools, settings.tools.bash, confinement.user

    def scrub(own: Iterable[str]) -> str:
        return scrubbing(bash.environment, SECRET_NAMES, (*own, *bash.environment_extra))

    disk = load(LOCAL_DISK)(environ, roots.all, user)
    files = load(EDITOR_FILES)(load(DISK_FILES)(disk, roots.rules.hides), client, offer, roots.all)
    if (place := confinement.place) is not None:
        make, grace = load(CONTAINER_COMMANDS), bash.terminate_grace
        return Backend(make(place, terminate_grace=grace, ending=confinement.watched), files)
    local = load(LOCAL_COMMANDS)(
        environ=environ,
        terminate_grace=bash.terminate_grace,
        confine=confinement.confine,
        folders=roots.all,
        entered=roots.entered,
        user=user,
    )
    terminals = load(TERMINALS)(
        client,
        local,
        folder.path / "scripts",
        kill_timeout=settings.limits.kill_timeout,
        output_limit=bash.editor_output_limit,
        confine=confinement.confine if tools.sandbox.editor_terminal else None,
        scrub=scrub,
    )
    return Backend(load(DYN_EXECUTOR)(local, terminals, offer), files)


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
        user=shell.confinement.user,
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
        session.outbox,
        redaction,
        display,
        cwd=str(session.roots.cwd),
        max_output_chars=settings.tools.max_output_chars,
    )


def outside(config: Config, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the agent's own keys."""
    hidden = own_keys(config)
    return {name: value for name, value in environ.items() if name not in hidden}


def own_keys(config: Config) -> frozenset[str]:
    """The variables that hold the agent's own keys, which no command of the model needs."""
    providers = (ProviderConfig(), *config.settings.providers.values())
    credentials = config.settings.network.credentials.values()
    variables = (each.env for each in credentials if each.env)
    return frozenset(
        (
            *variables,
            *(provider.api_key_env for provider in providers),
            config.settings.tools.web.brave_key_env,
            config.settings.store.url_env,
            STORE_URL,
        )
    )
