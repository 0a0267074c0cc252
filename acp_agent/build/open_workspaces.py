"""The workspaces of a session: its own, those of its other places, and worktrees."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from acp_agent.build.host_session import HOST, build_instructions, reached
from acp_agent.build.own_credentials import outside
from acp_agent.config.load import Config
from acp_agent.config.place_settings import LOCAL as THIS_MACHINE
from acp_agent.config.place_settings import Place, find_place, is_host, tmux_session
from acp_agent.config.xdg import state_dir
from acp_agent.credentials.redactor import Redactor
from acp_agent.errors import ConfigError
from acp_agent.executors.base import Late
from acp_agent.executors.base import Offer as EditorOffer
from acp_agent.executors.scrub import scrubbing
from acp_agent.lazy import load
from acp_agent.limits.shares import Share, Shares
from acp_agent.loop.beside.background_runs import SessionRuns
from acp_agent.loop.beside.languages import Languages
from acp_agent.loop.beside.panes import Panes
from acp_agent.loop.calls.call_permissions import Permissions
from acp_agent.loop.calls.outputs import Outputs
from acp_agent.loop.calls.session_rules import home_of, session_rules
from acp_agent.loop.hooks.hooks import Hooks
from acp_agent.loop.journal import Journal
from acp_agent.loop.prompts.instructions import Instructions
from acp_agent.loop.prompts.skills import Skills, read_skills
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.session import Session
from acp_agent.loop.shell.command_network import CommandNetwork
from acp_agent.loop.shell.confinement import Confinement
from acp_agent.loop.shell.folder_sandbox import FolderSandbox
from acp_agent.loop.shell.private_folder import PrivateFolder
from acp_agent.loop.shell.workspaces import Backend, Project, Workspace, Workspaces
from acp_agent.loop.undo.change_recorder import ChangeRecorder
from acp_agent.safety.environment import SECRET_NAMES
from acp_agent.safety.folders.paths import Roots
from acp_agent.store.session_store import SessionStore
from acp_agent.tools.kit.registry import SessionRegistry

if TYPE_CHECKING:
    from acp_agent.executors.places.base import Elsewhere
    from acp_agent.executors.places.host import Host

DYN_EXECUTOR = "acp_agent.executors.editor.dyn_executor:DynExecutor"
EDITOR_FILES = "acp_agent.executors.editor.editor_files:EditorFiles"
TERMINALS = "acp_agent.executors.editor.editor_terminals:EditorTerminals"
PLACES = {
    "container": "acp_agent.executors.places.container:Container",
    "devcontainer": "acp_agent.executors.places.dev_container:DevContainer",
}
"""Those whose files are this machine's; the others are a `HOST`."""
CONTAINER_COMMANDS = "acp_agent.executors.places.container_commands:ContainerCommands"
REMOTE_COMMANDS = "acp_agent.executors.far.remote_commands:RemoteCommands"
REMOTE_DISK = "acp_agent.executors.far.remote_disk:RemoteDisk"
LOCAL_COMMANDS = "acp_agent.executors.local:LocalCommands"
LOCAL_DISK = "acp_agent.executors.disk_files:LocalDisk"
DISK_FILES = "acp_agent.executors.disk_files:DiskFiles"

Spawn = Callable[[Coroutine[Any, Any, None]], None]
"""Runs something in the background until the agent closes."""


class Shared(Struct, frozen=True):
    """What the workspaces of a session share. `connections`: the session's share of them. `environ`: the agent's own
    environment, of which commands and language servers inherit `inherited`."""

    session: Session
    store: SessionStore
    registry: SessionRegistry
    redactor: Redactor
    journal: Journal
    turn: RunningTurn
    runs: SessionRuns
    connections: Share
    environ: Mapping[str, str]
    inherited: Mapping[str, str]
    spawn: Spawn


class Grounds(Struct, frozen=True):
    """Where a project is, before anything works there. `config`: of the session in its place."""

    config: Config
    roots: Roots
    folder: PrivateFolder
    sandbox: FolderSandbox
    confinement: Confinement
    host: Host | None
    home: Path | None


def ground(
    session: Session,
    config: Config,
    roots: Roots,
    host: Host | None,
    environ: Mapping[str, str],
    inherited: Mapping[str, str],
    journal: Journal,
    spawn: Spawn,
) -> Grounds:
    """Of these folders, which get their rules. `host`: where they are, if not on this machine."""
    tools, local = config.settings.tools, home_of(environ)
    home = local if host is None else host.home
    roots.rules = session_rules(config, roots, environ, home)
    folder = PrivateFolder(roots)
    sandbox = FolderSandbox(tools, roots, inherited, local, folder, journal, spawn)
    place: Elsewhere | None = host
    if host is None and (found := config.settings.place()) is not None:
        place = build_place(found, session.id, roots, outside(config, environ), sandbox)
    confinement = Confinement(tools, roots, sandbox, journal, place, None if host is None else host.walls)
    return Grounds(config, roots, folder, sandbox, confinement, host, home)


def build_project(
    shared: Shared, on: Grounds, hooks: Hooks, instructions: Instructions, skills: Skills, *, away: bool = False
) -> Project:
    session, settings, spawn = shared.session, on.config.settings, shared.spawn
    own = shared.registry, shared.store, shared.redactor, shared.journal, on.sandbox
    asks = session.client, session.choices, hooks
    permissions = Permissions(on.config, on.roots, shared.environ, on.home, *own, *asks)
    means = permissions, on.sandbox, shared.inherited, shared.environ, shared.connections
    kept = settings.undo, Path(state_dir(shared.environ)), on.home, spawn
    recorder = ChangeRecorder(session, on.roots, shared.store.operations, on.sandbox, shared.turn, shared.runs, *kept)
    about = on.roots, on.sandbox, shared.runs.programs, shared.inherited, session.published, spawn
    return Project(
        roots=on.roots,
        folder=on.folder,
        hooks=hooks,
        instructions=instructions,
        skills=skills,
        permissions=permissions,
        network=CommandNetwork(session, *means),
        recorder=recorder,
        languages=Languages(session.outbox, settings.lsp, *about),
        away=away,
    )


def start(project: Project, spawn: Spawn) -> None:
    """Lets run what does beside the turns."""
    spawn(project.network.live())
    spawn(project.languages.live())  # Separate: a failing language server must not affect the others.


class Opener:
    """Opens the workspaces of a project, its own first. `only_these`: none with other files."""

    def __init__(self, shared: Shared, on: Grounds, project: Project, *, only_these: bool = False) -> None:
        self._shared = shared
        self._on = on
        self._project = project
        self._only_these = only_these

    def workspaces(self) -> Workspaces:
        config, host = self._on.config, self._on.host
        others = other_places(config)
        apart = [name for name, other in others.items() if host is not None or is_host(other)]
        if self._only_these:
            others, apart = {name: other for name, other in others.items() if name not in apart}, []
        own = self._workspace(config.settings.agent.place, self._on.confinement)
        if host is not None:
            _ = own.commands  # They end the connection, which is there already.
        return Workspaces(own, list(others), apart, self)

    def _workspace(self, name: str, confinement: Confinement) -> Workspace:
        session, on, host = self._shared.session, self._on, self._on.host
        offer = editor_offer(session, elsewhere=confinement.place is not None, far=host is not None)
        make = partial(build_backend, session, on, confinement, offer, self._shared.inherited)
        remote = partial(build_remote, session, host, on.roots, self._shared.environ) if host is not None else make
        return Workspace(name, self._project, confinement, offer, Late(remote))

    def with_these_files(self, name: str) -> Workspace:
        on, shared = self._on, self._shared
        other = find_place(name, on.config.settings.places)
        outer = outside(on.config, shared.environ)
        made = None if other is None else build_place(other, shared.session.id, on.roots, outer, on.sandbox)
        tools = on.config.settings.tools
        return self._workspace(name, Confinement(tools, on.roots, on.sandbox, shared.journal, made))

    async def with_other_files(self, name: str) -> Workspaces:
        config = self._on.config.in_place(name)
        roots, host = await reached(config, self._shared.session.roots, self._shared.environ)
        try:
            return self._opened(config, roots, host, self._project.hooks, away=True)
        except BaseException:
            if host is not None:
                await host.end()
            raise

    async def in_worktree(self, name: str, worktree: Path) -> Workspaces:
        """`name`: of the place where it is."""
        hooks = self._project.hooks.within(worktree)
        return self._opened(self._on.config.in_place(name), Roots(worktree), None, hooks, away=self._project.away)

    def _opened(self, config: Config, roots: Roots, host: Host | None, hooks: Hooks, *, away: bool) -> Workspaces:
        shared = self._shared
        about = shared.environ, shared.inherited, shared.journal, shared.spawn
        on = ground(shared.session, config, roots, host, *about)
        skills = Skills(read_skills(roots) if config.settings.agent.skills else {}, roots, shared.turn)
        state = Path(state_dir(shared.environ))
        instructions = build_instructions(config, roots, state, on.confinement.for_prompt)
        project = build_project(shared, on, hooks, instructions, skills, away=away)
        workspaces = Opener(shared, on, project, only_these=True).workspaces()
        start(project, shared.spawn)
        return workspaces


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
    place: Place, session_id: str, roots: Roots, environ: Mapping[str, str], sandbox: FolderSandbox
) -> Elsewhere:
    """`environ`: for the program that leads there, without the agent's own keys."""
    made: Elsewhere
    if is_host(place):
        made = load(HOST)(place, roots.clients, environ)
    else:
        make, about = load(PLACES[place[1].kind]), (*place, session_id, roots.all, environ)
        made = make(*about, sandbox.walls, sandbox.user, sandbox.policy)
    return made


def build_remote(session: Session, host: Host, roots: Roots, environ: Mapping[str, str]) -> Backend:
    """Of another machine."""
    commands = load(REMOTE_COMMANDS)(
        host.link,
        environ=environ,
        env=host.env,
        walls=host.walls,
        terminate_grace=session.config.settings.tools.bash.terminate_grace,
    )
    files = load(DISK_FILES)(load(REMOTE_DISK)(host.link, host.walls), roots.rules.hides)
    return Backend(commands, files)


def build_backend(
    session: Session, on: Grounds, confinement: Confinement, offer: EditorOffer, environ: Mapping[str, str]
) -> Backend:
    """Of this machine, or of a container that has its files; the editor serves what it offers."""
    settings, client, roots, sandbox = on.config.settings, session.client, on.roots, on.sandbox
    tools, bash, user = settings.tools, settings.tools.bash, sandbox.user

    def scrub(own: Iterable[str]) -> str:
        return scrubbing(bash.environment, SECRET_NAMES, (*own, *bash.environment_extra))

    disk = load(LOCAL_DISK)(environ, roots.all, user)
    files = load(EDITOR_FILES)(load(DISK_FILES)(disk, roots.rules.hides), client, offer, roots.all)
    if (place := confinement.place) is not None:
        make, grace = load(CONTAINER_COMMANDS), bash.terminate_grace
        return Backend(make(place, terminate_grace=grace, ending=sandbox.watched), files)
    local = load(LOCAL_COMMANDS)(
        environ=environ,
        terminate_grace=bash.terminate_grace,
        confine=sandbox.confine,
        folders=roots.all,
        entered=roots.entered,
        user=user,
    )
    terminals = load(TERMINALS)(
        client,
        local,
        on.folder.path / "scripts",
        kill_timeout=settings.limits.kill_timeout,
        output_limit=bash.editor_output_limit,
        confine=sandbox.confine if tools.sandbox.editor_terminal else None,
        scrub=scrub,
    )
    return Backend(load(DYN_EXECUTOR)(local, terminals, offer), files)


def build_runs(
    session: Session,
    journal: Journal,
    outputs: Outputs,
    environ: Mapping[str, str],
    spawn: Spawn,
    shares: Shares,
    folder: PrivateFolder,
) -> SessionRuns:
    tools = session.config.settings.tools
    return SessionRuns(
        tools.bash,
        max_output_chars=tools.max_output_chars,
        spawn=spawn,
        journal=journal,
        outputs=outputs,
        share=shares.commands,
        programs=shares.programs,
        panes=build_panes(session, folder, outside(session.config, environ), spawn),
    )


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
