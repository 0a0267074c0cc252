"""`[places.NAME]`: where commands may run, and files may be, besides this machine; `[server]`: clients on others
(`acp-coder serve`); `[store]`: where sessions are kept; `[network]`: commands' connections; `[worktree]`: what
worktrees get; `[tools.terminal]`, `[tools.tmux]`: terminals that can be typed into."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Literal

import msgspec

from acp_agent.config.language_settings import key
from acp_agent.errors import ConfigError

NAMES = r"^([A-Za-z0-9_-]{1,40})?$"
"""In other names tmux finds formats and targets."""


class TerminalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    columns: Annotated[int, key("Width of the terminals of `bash` with `terminal`.", ge=20, le=500, project=True)] = 120
    rows: Annotated[int, key("Their height.", ge=5, le=200, project=True)] = 40
    history: Annotated[int, key("Lines kept that have scrolled off.", ge=0, le=100_000, project=True)] = 2000
    capture_chars: Annotated[
        int, key("Characters that `capture_pane` returns at most; the last ones.", ge=500, project=True)
    ] = 8000


class TmuxConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session: Annotated[
        str,
        key("Show what runs in terminals in tmux, to which you can attach (`/place`), in a session of this name. "
            "Empty: without tmux.", pattern=NAMES),
    ] = ""  # fmt: skip
    max_sessions: Annotated[int, key("Sessions of tmux that may be there at a time.", ge=1)] = 4
    max_panes: Annotated[int, key("Panes with a shell that may be there at a time, in all of them.", ge=1)] = 8


class StoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, key("Session database. Empty: `sessions.db` in the state folder.")] = ""
    busy_timeout: Annotated[float, key("Seconds to wait for another agent that is writing to it.", gt=0)] = 1.0
    url: Annotated[
        str,
        key(
            "A PostgreSQL server for the sessions instead of a file (extra `postgres`): "
            "`postgresql://user@host:port/database`. The password is better in `store.url_env`, `PGPASSWORD` or "
            "`~/.pgpass`."
        ),
    ] = ""
    url_env: Annotated[str, key("Environment variable with that address, if `store.url` is empty.")] = ""
    schema: Annotated[str, key("Schema there. It is made if there is none.", min_length=1)] = "acp_coder"
    connections: Annotated[int, key("Connections to that server, at most.", ge=1)] = 8
    timeout: Annotated[float, key("Seconds that it may take to answer.", gt=0)] = 30.0
    away: Annotated[
        float, key("Seconds for which it is waited for where it was there and is not; then what needs it fails.", ge=0)
    ] = 5.0


class PlaceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: Annotated[Literal["container", "devcontainer", "ssh"], key("What it is.", project=True)] = "container"
    container: Annotated[
        str,
        key("A running container that has the session's folders, at the same paths or by `root`; it is left as it is.",
            project=True),
    ] = ""  # fmt: skip
    image: Annotated[
        str, key("Without such a container: an image, from which one is started for the session.", project=True)
    ] = ""
    folder: Annotated[
        str, key("Of a dev container: the folder with its `devcontainer.json`. Empty: the session's folder.")
    ] = ""
    engine: Annotated[str, key("`podman`, `docker` or `nerdctl`, or its path. Empty: the first of them found.")] = ""
    network: Annotated[str, key("Network of a started container: `none`, or the engine's name of one.")] = "none"
    landlock: Annotated[
        bool,
        key("In a container: confine each command by Landlock, too, if the kernel has it. It writes only what it may "
            "write here and does not see what `tools.files.deny_read` hides; `sudo` does not work.")
    ] = False  # fmt: skip
    env: Annotated[list[str], key("Variables of this machine that commands there get; no others.")] = []
    arguments: Annotated[
        list[str], key("More arguments for the engine's `run`, which may lift its limits, or for `ssh`.")
    ] = []
    host: Annotated[str, key("Of `ssh`: `[USER@]HOST`, as in the user's own configuration of `ssh`.")] = ""
    user: Annotated[
        str, key("The user there. Empty: as `ssh` has it, or of a container its own; yours where files are yours.")
    ] = ""
    root: Annotated[
        str,
        key("The session's folder on that host, or in a running container: files are there then. Empty: by `paths`, or "
            "its path on this machine.")
    ] = ""  # fmt: skip
    paths: Annotated[
        dict[str, str], key("Folders of this machine and where that host, or that container, has the same.")
    ] = {}
    tmux: Annotated[str, key("As `tools.tmux.session`, for sessions in this place.", pattern=NAMES)] = ""
    linger: Annotated[
        float, key("Seconds for which what runs on that host waits for a connection that was lost.", ge=15)
    ] = 600.0

    def __post_init__(self) -> None:
        if wrong := [here for here in self.paths if not here.startswith(("/", "~/")) and here != "~"]:
            raise ValueError(f"`places.NAME.paths`: {wrong[0]!r} is no absolute path of this machine")
        if self.kind == "devcontainer" and (self.root or self.paths or self.user):
            raise ValueError("a dev container has a user of its own and this machine's folders: no `root` or `paths`")


class HostCredential(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: Annotated[str, key("The host, as in its URL.")] = ""
    env: Annotated[
        str, key("Variable of the agent's environment that holds it. Empty: `acp-coder login --host HOST` stored it.")
    ] = ""
    user: Annotated[str, key("User name: sends `Basic` of both. Empty: sends it as `Bearer`.")] = ""
    header: Annotated[str, key("Header that gets it as it is, instead of `Authorization`.")] = ""
    ports: Annotated[
        list[Annotated[int, msgspec.Meta(ge=1, le=65535)]],
        key("Ports of the host at which requests get it. Empty: 443, that of https."),
    ] = []
    paths: Annotated[
        list[str], key("Only requests for these paths, and what is below them, get it (`/my-team`). Empty: all.")
    ] = []

    def __post_init__(self) -> None:
        if wrong := [path for path in self.paths if not path.startswith("/")]:
            raise ValueError(f"`network.credentials.NAME.paths`: {wrong[0]!r} does not begin with /")


class NetworkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    credentials: Annotated[
        dict[str, HostCredential],
        key(
            "Credentials, by any name, that the proxy for commands puts into their requests to a host (https), so that "
            "commands never have them."
        ),
    ] = {}

    max_connections_per_command: Annotated[
        int, key("Connections that a command may have at a time; more are refused, in words.", ge=1)
    ] = 128
    max_hosts_per_command: Annotated[
        int, key("Different hosts that a command may reach, each a line in the audit log.", ge=1)
    ] = 500
    max_connections_per_session: Annotated[
        int, key("Of all commands of a session, and to the servers that they started.", ge=1)
    ] = 256
    max_connections_per_owner: Annotated[
        int, key("Of all sessions of an owner of a server, or of an agent on stdio.", ge=1)
    ] = 512
    max_connections_per_process: Annotated[
        int, key("Of all owners of a process; fewer where it may have few descriptors (`ulimit -Hn`).", ge=1)
    ] = 2048

    max_published_ports: Annotated[
        int, key("Ports of servers of a session's commands that are published at a time.", ge=1)
    ] = 64

    def credentials_for(self, host: str, port: int) -> list[HostCredential]:
        """Those for a port of a host."""
        return [
            each for each in self.credentials.values() if each.host.lower() == host and port in (each.ports or [443])
        ]


class WorktreeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include: Annotated[
        list[str], key("Globs of ignored files that are copied into each new worktree of the agent's (`.env`).")
    ] = []


class OwnerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    place: Annotated[
        str,
        key("Where this owner's commands run, as in `agent.place`; none of them goes elsewhere. Empty: as for all."),
    ] = ""
    model: Annotated[str, key("Model of their new sessions, as in `agent.model`. Empty: as for all.")] = ""


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: Annotated[str, key("Address that `acp-coder serve` listens on.")] = "127.0.0.1"
    port: Annotated[int, key("Its port; 0: any.", ge=0, le=65535)] = 9801
    hosts: Annotated[
        list[str], key("Names that clients may call it by (`Host`), besides those of this machine's loopback.")
    ] = []
    origins: Annotated[list[str], key("Web pages that may use it (`Origin`), besides its own.")] = []
    max_connections: Annotated[int, key("Connections at a time; more are refused.", ge=1)] = 1000
    max_connections_per_token: Annotated[int, key("Of one token.", ge=1)] = 100
    initialize_timeout: Annotated[
        float, key("Seconds for a new connection to say what it wants, and to send `initialize`.", gt=0)
    ] = 10.0
    stalled_timeout: Annotated[
        float, key("Seconds after which a client that reads nothing of what it is sent is disconnected.", gt=0)
    ] = 60.0
    http_idle_timeout: Annotated[
        float, key("Seconds after which a connection over HTTP of which nothing is read or posted is ended.", gt=0)
    ] = 300.0
    ping_interval: Annotated[float, key("Seconds between pings; after three without an answer it is gone.", gt=0)] = (
        20.0
    )
    max_wrong_tokens: Annotated[
        int, key("Wrong tokens in a minute after which an address is refused for the rest of it.", ge=1)
    ] = 20
    max_sessions: Annotated[int, key("Open sessions of one owner.", ge=1)] = 100
    alone: Annotated[
        bool, key("Turns go on while no client is connected to their session; else they are cancelled then.")
    ] = True
    question_minutes: Annotated[
        float, key("Minutes that a question waits for a client who may answer; then the turn is cancelled.", gt=0)
    ] = 60.0
    idle_minutes: Annotated[
        float, key("Minutes after which a session without clients and without a turn that runs is closed.", gt=0)
    ] = 30.0
    lease: Annotated[
        float,
        key("Seconds after which the sessions of a process that has died are run by others with the same store.", gt=0),
    ] = 15.0
    discovery: Annotated[bool, key("Serve `/.well-known/acp.json`, which tells what is here to anybody.")] = True
    page: Annotated[bool, key("Serve a page for browsers at `/`.")] = True
    page_days: Annotated[
        int, key("Days after a browser's last visit until the page asks for its token again.", ge=1, le=400)
    ] = 30
    near: Annotated[
        bool, key("Clients are on this machine: their files and terminals are used. Else the agent uses its own.")
    ] = False
    owners: Annotated[dict[str, OwnerConfig], key("What holds for the sessions of an owner, by name.")] = {}


SSH = re.compile(r"((?:[^@:]*@)?(?:\[[^\]]*\]|[^:]*))(?::(.*))?", re.DOTALL)
"""`[USER@]HOST[:DIR]`; an IPv6 address in brackets."""

RELATIVE = re.compile(r"^[^:/]*:(?![0-9]+/)([.~]|[^/:]+/)")
"""A folder, in the place of an image's tag or the port of where it is from."""

LOCAL = "local"
"""The name of this machine among the places."""

Place = tuple[str, PlaceConfig]
"""Its name in words for the user, and what it is found by."""


def is_host(place: Place | None) -> bool:
    """Whether files are there, too: on another machine, or elsewhere in a container."""
    return place is not None and (place[1].kind == "ssh" or bool(place[1].root or place[1].paths))


def is_users(wanted: str) -> bool:
    """Whether only the user may name that place, a project never."""
    return wanted.startswith(("ssh:", "devcontainer:")) or (wanted.startswith("container:") and ":/" in wanted)


def find_place(wanted: str, places: Mapping[str, PlaceConfig]) -> Place | None:
    """`None`: this machine. Raises ConfigError."""
    if wanted.startswith("devcontainer:"):
        folder = wanted.removeprefix("devcontainer:")
        return PurePath(folder).name or folder, PlaceConfig(kind="devcontainer", folder=folder)
    if wanted.startswith("ssh:"):
        return _host(wanted.removeprefix("ssh:"), places)
    name, root = wanted, ""
    if wanted.startswith("container:"):
        name, root = _in_container(wanted.removeprefix("container:"))
    if wanted == LOCAL:
        return None
    if name == wanted and name not in places:
        known = ", ".join([LOCAL, *places])
        raise ConfigError(f"`agent.place`: {name!r} is not in the configuration; configured: {known}")
    place = places.get(name)
    if place is None or (name != wanted and place.kind != "container"):
        place = PlaceConfig(container=name, image=name)
    return _whole(name, msgspec.structs.replace(place, root=root, image="") if root else place)


def tmux_session(place: Place | None, tmux: TmuxConfig) -> str:
    """The name of the first one of a session in that place; empty: without tmux."""
    return (place[1].tmux if place is not None else "") or tmux.session


def can_be_named(name: str) -> bool:
    """Whether that name of a place means nothing else."""
    return name != LOCAL and ":" not in name and name.isprintable() and bool(name.strip())


def _whole(name: str, place: PlaceConfig) -> Place:
    if place.kind == "ssh" and not place.host:
        raise ConfigError(f"`places.{name}` is of the kind `ssh` and names no `host`")
    if is_host((name, place)) and place.kind == "container" and not place.container:
        words = "its files are in a container that was started already, which `container` names"
        raise ConfigError(f"`places.{name}` has `root` or `paths`: {words}")
    return name, place


def _in_container(text: str) -> tuple[str, str]:
    """What follows `--container`: a name, or NAME:DIR."""
    name, colon, folder = text.partition(":/")
    if RELATIVE.search(text):
        raise ConfigError(f"`--container`: the folder in {text!r} does not begin with /: NAME:DIR is expected")
    if not name:
        raise ConfigError(f"`--container`: {text!r} names no container: NAME or NAME:DIR is expected")
    return name, f"{colon[1:]}{folder}"


def _host(text: str, places: Mapping[str, PlaceConfig]) -> Place:
    """What follows `--ssh`: a place in the configuration, or a host."""
    found = SSH.fullmatch(text)
    assert found is not None
    host, root = found[1].replace("[", "").replace("]", ""), found[2] or ""
    if not host:
        raise ConfigError(f"`--ssh`: {text!r} names no host: [USER@]HOST[:DIR] is expected")
    known = places.get(host, PlaceConfig(kind="ssh", host=host))
    if known.kind != "ssh":
        raise ConfigError(f"`--ssh`: {host!r} is a place of the kind `{known.kind}`")
    return _whole(host, msgspec.structs.replace(known, root=root or known.root))
