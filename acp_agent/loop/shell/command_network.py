"""The way of a session's commands to the network: a proxy that asks about each new host (`tools.sandbox.network`).

Each command has a port of its own, so that each connection belongs to a call (`loop/calls/connections.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import anyio

from acp_agent.config.credentials import host_key
from acp_agent.errors import ExecutorError, ToolError
from acp_agent.executors.base import Command, Network
from acp_agent.lazy import load
from acp_agent.limits.shares import Share
from acp_agent.proxying import Lookups

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_agent.executors.sandbox.proxy.injection import Authority, Header
    from acp_agent.executors.sandbox.proxy.published_ports import Published
    from acp_agent.executors.sandbox.proxy.ways import Way
    from acp_agent.loop.calls.call import Call
    from acp_agent.loop.calls.call_permissions import Permissions
    from acp_agent.loop.calls.connections import Connections
    from acp_agent.loop.session_state import SessionState
    from acp_agent.loop.shell.folder_sandbox import FolderSandbox
    from acp_agent.loop.shell.session_shell import Shell
    from acp_agent.proxying import Resolver

log = logging.getLogger(__name__)

CONNECTIONS = "acp_agent.loop.calls.connections:Connections"
VARIABLES = "acp_agent.executors.sandbox.proxy.proxy_environment:variables"
TRUSTED = "acp_agent.executors.sandbox.proxy.proxy_environment:TRUSTED"
AUTHORITY = "acp_agent.executors.sandbox.proxy.injection:Authority"
HEADER = "acp_agent.executors.sandbox.proxy.injection:header_of"
LEND = "acp_agent.executors.sandbox.proxy.published_ports:lend"
PUBLISHED = "acp_agent.executors.sandbox.proxy.published_ports:Published"

UPSTREAM = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY")
"""Variables of the user's own proxy, the first that is set."""


class CommandNetwork:
    """Of one project."""

    resolve: Resolver | None = None
    """Replaced by tests, instead of `look_up`."""

    def __init__(
        self,
        session: SessionState,
        permissions: Permissions,
        sandbox: FolderSandbox,
        environ: Mapping[str, str],
        own_environ: Mapping[str, str],
        share: Share,
    ) -> None:
        """`environ`: the environment that commands inherit; `own_environ`: the agent's, with credentials for hosts.
        `share`: the owner's, of connections."""
        most, key = session.config.settings.network.max_connections_per_session, "network.max_connections_per_session"
        self.share = Share("this session", "connections of commands", key, most, share)
        self.look_up = Lookups().resolve
        self._own_environ = own_environ
        settings = session.config.settings
        self.session = session
        self.permissions = permissions
        self.config = settings.tools.sandbox
        proxies = (environ.get(name, "") for name in UPSTREAM)
        self._upstream = settings.tools.web.proxy or next(filter(None, proxies), "")
        listed = environ.get("no_proxy") or environ.get("NO_PROXY", "")
        self._direct = tuple(name.strip().lower().removeprefix(".") for name in listed.split(",") if name.strip())
        self.asking = anyio.Lock()
        self._sandbox = sandbox
        self._environ = environ
        self._making = anyio.Lock()
        self._way: Way | None = None
        self._told = False
        self._runs: set[Connections] = set()
        self._published: Published | None = None
        self._lives = anyio.Event()
        self._scope = anyio.CancelScope()
        self._tasks: TaskGroup | None = None

    @property
    def near(self) -> Sequence[str]:
        """Hosts of this network that may be reached."""
        return self.session.config.settings.tools.web.private_hosts

    def upstream_for(self, host: str) -> str:
        """The user's own proxy, if it is to be used for a host (`NO_PROXY`); else empty."""
        direct = any(name in ("*", host) or host.endswith(f".{name}") for name in self._direct)
        return "" if direct else self._upstream

    async def live(self) -> None:
        """Serves the connections until it is closed."""
        try:
            with self._scope:
                async with anyio.create_task_group() as self._tasks:
                    self._lives.set()
                    await anyio.sleep_forever()
        finally:
            self._tasks = None
            if self._way is not None:
                self._way.close()

    async def close(self) -> None:
        self._scope.cancel()

    @cached_property
    def authority(self) -> Authority | None:
        """What ends the TLS of commands where a credential is put in; `None` where there is none."""
        if not self.session.config.settings.network.credentials:
            return None
        made: Authority = load(AUTHORITY)(folder := self._sandbox.folder.path / "sandbox", folder / "certificates.pem")
        return made

    def credentials(self, host: str, port: int) -> list[Header]:
        """What is put into requests to a host. Raises ToolError if it is configured but missing."""
        made: list[Header] = []
        for each in self.session.config.settings.network.credentials_for(host, port):
            value = host_key(host, each.env, self._own_environ)
            if not value:
                where = f"the variable {each.env} is not set" if each.env else "it is not stored"
                words = f"The credential for {host} is missing: {where} (`acp-coder login --host {host}`)."
                raise ToolError(words, "policy_blocked")
            made.append(load(HEADER)(value, each.user, each.header, each.paths))
        return made

    async def door(self, call: Call, command: Command, shell: Shell) -> Callable[[], Network] | None:
        """What opens the way of a command of this shell; `None` if it has all of the network, or none."""
        if self.config.network in ("allow", "deny") or not shell.confines(command):
            return None
        way = await self._ready()
        return None if way is None else lambda: self._open(way, call, command)

    async def _ready(self) -> Way | None:
        await self._lives.wait()
        async with self._making:
            if self._way is not None and not self._way.works():
                self._way.close()
                self._way = self._published = None
            if self._way is None and not self._told:
                why = "this sandbox cannot hold them to a proxy"
                try:
                    self._way = await self._sandbox.way()
                except ExecutorError as error:
                    why = str(error)
                if self._way is not None and self._way.own:
                    self._lend(self._way)
                if self._way is None:
                    self._told = True
                    told = '`tools.sandbox.network = "allow"` gives them all of it'
                    self._warn(f"Commands have no network here, since {why}; {told}.")
            return self._way

    def _lend(self, way: Way) -> None:
        """Opens this machine's services that the configuration names."""
        for port in dict.fromkeys(self.config.loopback_ports):
            try:
                self.spawn(load(LEND), way.listen(port), port, self.share)
            except ExecutorError as error:
                self._warn(f"Port {port} of `tools.sandbox.loopback_ports` is not open to commands: {error}.")

    def spawn(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        """Runs beside the session's turns."""
        assert self._tasks is not None
        self._tasks.start_soon(function, *arguments)

    def _warn(self, words: str) -> None:
        self.permissions.audit.journal.warn(words)

    def _open(self, way: Way, call: Call, command: Command) -> Network:
        """Raises ExecutorError."""
        listener = way.listen()
        port = listener.getsockname()[1]
        run: Connections = load(CONNECTIONS)(self, way, call, command, port)
        assert self._tasks is not None
        self._runs.add(run)
        if way.own and self.config.publish_ports:
            most = self.session.config.settings.network.max_published_ports
            self._published = self._published or load(PUBLISHED)(way, self._taken, self.share, most)
            self._tasks.start_soon(self._published.keep, self._ports)
        self._tasks.start_soon(run.serve, listener)

        def closed() -> str:
            self._runs.discard(run)
            return run.close()

        env = load(VARIABLES)(port, self._environ, own_loopback=way.own)
        trusted = self.authority.bundle if self.authority is not None else None
        if trusted is not None:
            env |= dict.fromkeys(load(TRUSTED), str(trusted))
        return Network(env, closed, (trusted,) if trusted is not None else (), way.doors(), 0 if way.own else port)

    def go_on(self, shell: Command, call: Call, command: Command) -> None:
        """A command runs in a shell that was started before: it is asked about as any other."""
        for run in self._runs:
            if run.is_of(shell):
                run.go_on(call, command)

    def _ports(self) -> Collection[int] | None:
        """The proxy's own; `None` while no command runs."""
        return {*self.config.loopback_ports, *(run.port for run in self._runs)} if self._runs else None

    def _taken(self, port: int) -> None:
        self._warn(
            f"A command listens on port {port}, which is taken on this machine: only other commands reach it there."
        )
