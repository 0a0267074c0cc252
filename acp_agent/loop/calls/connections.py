"""The connections of one command to the network, each asked about as `tools.sandbox.network` says.

What a connection may do is decided as for a call, by the gate, as `connect`; the question is shown as a call of its
own, so that the command's card stays as it is. Questions come one at a time, and each outlives the connection that
raised it: programs give up and try again.

    connection -> proxying.answer -> find_host -> gate -> resolve once -> judged -> connect
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteStream, SocketListener, SocketStream, UNIXSocketStream

from acp_agent.errors import ExecutorError, ToolError
from acp_agent.executors.base import Command
from acp_agent.lazy import load
from acp_agent.legible import legible
from acp_agent.limits.shares import Share
from acp_agent.loop.calls.call_permissions import PermissionResult, refused
from acp_agent.proxying import Traffic, Wanted, answer, connect, serve
from acp_agent.safety.access import CONNECT, NetworkAccess
from acp_agent.safety.deciding.deciders import CallFacts
from acp_agent.safety.deciding.hosts import Host, find_host, is_registry, judged
from acp_agent.schema import acp

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_agent.executors.sandbox.proxy.injection import Header
    from acp_agent.executors.sandbox.proxy.ways import Way
    from acp_agent.loop.calls.call import Call
    from acp_agent.loop.shell.command_network import CommandNetwork

log = logging.getLogger(__name__)

INJECT = "acp_agent.executors.sandbox.proxy.injection:inject"
CONNECT_INSIDE = "acp_agent.executors.sandbox.proxy.published_ports:connect_inside"

MOST_REFUSED = 3
"""Hosts of one command that the user refuses; further ones are refused without a question."""
MOST_HOSTS = 200
"""Hosts of one command that rules or the user refuse; each is a line in the audit log."""
RESOLVE_SECONDS = 20.0
SHOWN_COMMAND = 60
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
WORTH_SAYING = 1.0
"""Seconds of waiting for an answer that the result speaks of."""
MOST_SHOWN = 5
"""Hosts in what is said of a command's connections."""


class Connections:
    """Of one command."""

    def __init__(self, network: CommandNetwork, way: Way, call: Call, command: Command, port: int) -> None:
        self.port = port
        self._network = network
        self._way = way
        self._call = call
        self._command = self._line = command
        """What it was opened for, and what runs now."""
        most = network.session.config.settings.network.max_connections_per_command
        key = "network.max_connections_per_command"
        self._share = Share("this command", "connections", key, most, network.share)
        self._scope = anyio.CancelScope()
        self._tasks: TaskGroup | None = None
        self._closed = False
        self._allowed: set[Host] = set()
        self._refused: dict[Host, str] = {}
        self._asked_in_vain = 0
        self._failed: dict[str, str] = {}
        """Host -> why there was no connection, the last time."""
        self._traffic: dict[str, Traffic] = {}
        self._waited = 0.0
        """Seconds for answers of the user."""

    def is_of(self, command: Command) -> bool:
        return self._command.script == command.script

    def go_on(self, call: Call, command: Command) -> None:
        """Another command runs in the same shell: what was decided held for the one before. `is_of` stays true for the
        shell's own."""
        self._call, self._line = call, command
        self._allowed.clear()
        self._refused.clear()
        self._asked_in_vain = 0

    async def serve(self, listener: socket.socket) -> None:
        with listener, self._scope:
            listener.setblocking(False)
            accepting = await SocketListener.from_socket(listener)
            async with accepting, anyio.create_task_group() as self._tasks:
                await serve(accepting, self._answer, self._share, self._answer)

    def close(self) -> str:
        """Ends its connections; returns what there is to say of them, once."""
        if self._closed:
            return ""
        self._closed = True
        self._scope.cancel()
        audit = self._network.permissions.audit
        for place, traffic in self._traffic.items():
            audit.connected(self._call.id, place, traffic.sent, traffic.received)
        listed = [f"{place} ({_size(each.sent)} sent)" for place, each in self._traffic.items()]
        listed[MOST_SHOWN:] = [f"{len(listed) - MOST_SHOWN} more"] if len(listed) > MOST_SHOWN else []
        failed = [f"{place}: {why}" for place, why in self._failed.items()]
        failed[MOST_SHOWN:] = [f"{len(failed) - MOST_SHOWN} more hosts."] if len(failed) > MOST_SHOWN else []
        said = [f"Connected to {', '.join(listed)}."] if listed else []
        if self._waited >= WORTH_SAYING:
            said.append(f"It waited {self._waited:.0f} s for the user's answer; a time limit of its own went on.")
        return " ".join(said + [f"Not connected to {words}" for words in failed])

    async def _answer(self, client: SocketStream, why_none: str = "") -> None:
        accepted = client.extra(anyio.abc.SocketAttribute.raw_socket)
        if not self._way.is_ours(accepted):
            await client.aclose()
            return
        await answer(client, partial(self._open, why_none=why_none))

    async def _open(self, wanted: Wanted, why_none: str) -> tuple[ByteStream, Traffic]:
        """Raises ToolError."""
        host = find_host(wanted.host, wanted.port)
        try:
            if why_none:
                raise ToolError(why_none, "network_error")
            if host.name in LOOPBACK and (address := self._way.listening().get(host.port)) is not None:
                return await load(CONNECT_INSIDE)(self._way, address, host.port), Traffic()
            headers = [] if wanted.url else self._network.credentials(host.name, host.port)
            stream = await self._connect(host)
            if headers:
                stream = await self._with_credential(stream, host, headers)
        except (ToolError, OSError, ExecutorError) as error:
            if host.place in self._failed or len(self._failed) < MOST_HOSTS:
                self._failed[host.place] = str(error)
            # Few programs show the text of an answer to CONNECT, so the result of the command has it, too.
            category = error.category if isinstance(error, ToolError) else "network_error"
            raise ToolError(f"acp-coder: no connection to {host.place}. {error}", category) from error
        return stream, self._traffic.setdefault(host.place, Traffic())

    async def _with_credential(self, server: ByteStream, host: Host, headers: Sequence[Header]) -> ByteStream:
        """A stream to the host that puts the headers into the command's requests."""
        here, there = socket.socketpair()
        here.setblocking(False)
        there.setblocking(False)
        client, inner = await UNIXSocketStream.from_socket(here), await UNIXSocketStream.from_socket(there)
        assert self._tasks is not None
        self._tasks.start_soon(load(INJECT), inner, server, host.name, host.port, headers, self._network.authority)
        return client

    async def _connect(self, host: Host) -> ByteStream:
        """Raises ToolError."""
        network = self._network
        judged(host, (), network.near)
        await self._permit(host)
        if not host.near and (upstream := network.upstream_for(host.name)):
            return await connect((host.name,), host.port, upstream)
        try:
            with anyio.fail_after(RESOLVE_SECONDS):
                addresses = tuple(dict.fromkeys(await (network.resolve or network.look_up)(host.name, host.port)))
        except (OSError, UnicodeError, TimeoutError) as error:
            raise ToolError(f"{host.name} could not be resolved: {error}.", "network_error") from error
        found = judged(host, addresses, network.near)
        if found != host:
            await self._permit(found)
        return await connect(addresses, host.port)

    async def _permit(self, host: Host) -> None:
        """Raises ToolError, unless the command may connect to the host."""
        if host in self._allowed:
            return
        if host in self._refused:
            raise ToolError(self._refused[host], "policy_blocked")
        if len(self._refused) >= MOST_HOSTS:
            raise ToolError(
                f"This command was refused {MOST_HOSTS} hosts, so it gets no further one.", "policy_blocked"
            )
        network, place = self._network, host.place
        most = network.session.config.settings.network.max_hosts_per_command
        if len(places := {each.place for each in self._allowed}) >= most and place not in places:
            words = f"This command has reached {most} hosts, the most that one may (`network.max_hosts_per_command`)."
            raise ToolError(words, "policy_blocked")
        has, what = self._has_credential(host), f"to connect to {_whole(host)}"
        registry = is_registry(host)
        access = NetworkAccess(place, what, sends=True, connects=True, registry=registry, at=host.at, credential=has)
        agent = {} if self._call.facts is None else self._call.facts.agent
        facts = CallFacts(CONNECT, {"host": host.name, "port": host.port}, [access], self._call.id, agent=agent)
        said = await network.permissions.known(facts)
        if said is None:
            async with network.asking:
                if host not in self._allowed and host not in self._refused:
                    said = await network.permissions.known(facts)
                    said = await self._ask(host, facts) if said is None else said
                elif host in self._refused:
                    said = refused(self._refused[host])
        if said is not None and not said.allowed:
            self._refused[host] = said.reason
            raise ToolError(said.reason, "policy_blocked")
        self._allowed.add(host)

    def _has_credential(self, host: Host) -> bool:
        return bool(self._network.session.config.settings.network.credentials_for(host.name, host.port))

    async def _ask(self, host: Host, facts: CallFacts) -> PermissionResult:
        network = self._network
        if self._asked_in_vain >= MOST_REFUSED:
            return refused("The user refused several hosts of this command, so they are not asked about further ones.")
        line = " ".join(self._line.script.split())
        line = line if len(line) <= SHOWN_COMMAND else line[: SHOWN_COMMAND - 1] + "…"
        words = ["Your credential for it is put into the command's requests."] if self._has_credential(host) else []
        words += [f"This is not a public host: {host.near}."] if host.near else []
        text = acp.TextContent(text=legible("\n\n".join(words)))
        content: list[acp.ToolCallContent] = [acp.Content(content=text)] if words else []
        title, call_id = legible(f"Connect to {_whole(host)} (for `{line}`)"), str(uuid.uuid4())
        outbox = network.session.outbox
        outbox.emit(acp.ToolCall(tool_call_id=call_id, title=title, kind="fetch", status="pending", content=content))
        meta = {"connect": {"host": host.name, "port": host.port, "toolCallId": self._call.id}}
        shown = acp.ToolCallUpdate(
            tool_call_id=call_id, title=title, kind="fetch", status="pending", content=content, meta=meta
        )
        said = refused(f"The user did not answer within {network.config.host_timeout:g} s.")
        began = time.monotonic()
        try:
            with anyio.move_on_after(network.config.host_timeout), self._call.waits.waiting():
                said = await network.permissions.permit(facts, shown)
        finally:
            status: acp.ToolCallStatus = "completed" if said.allowed else "failed"
            outbox.emit(acp.ToolCallProgress(tool_call_id=call_id, status=status))
            self._asked_in_vain += not said.allowed
            self._waited += time.monotonic() - began
        return said


def _whole(host: Host) -> str:
    return f"[{host.name}]:{host.port}" if ":" in host.name else f"{host.name}:{host.port}"


def _size(count: int) -> str:
    return f"{count} bytes" if count < 10_000 else f"{count // 1000} kB"
