"""The MCP servers of a session, each run by its own task; they may be added, removed and restarted meanwhile.

A failing server is reported and affects nothing else. A connected server that is lost keeps its tools: the next call
restarts it, at most three times. Nothing of a server outlives `close`.

While a server asks the user or the model for something, the time limit of its calls begins anew.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import anyio
import anyio.to_thread
import msgspec

from acp_agent.errors import NotAsTrusted
from acp_agent.lazy import load
from acp_agent.mcp.base import (
    Answer,
    Answers,
    KeeperSettings,
    McpError,
    McpPrompt,
    McpResult,
    McpTool,
    Progress,
    ServerSpec,
)
from acp_agent.mcp.link import Link

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from acp_agent.limits.shares import Share
    from acp_agent.mcp.mcp_client import Client

log = logging.getLogger(__name__)

T = TypeVar("T")

State = Literal["connecting", "ready", "lost", "failed", "closed"]
"""`lost`: the next call restarts it. `failed`: it is not restarted."""

CONNECT = "acp_agent.mcp.mcp_client:connect"

RESTARTS = 3
RELIST_PAUSE = 1.0
"""Seconds between two listings, in case a server announces a change with every answer."""
LEAVE = 0.8
"""Seconds `close` waits for servers to end by themselves."""
CANCELLED = 0.2
"""Seconds it waits for those it cancelled."""
MOST_ASKS = 8
"""Requests of a server to the user or the model that may wait; they are answered one at a time."""
MOST_TOLD = 5
"""Odd entries of a list that the user is told of."""
LOGGED = 200
"""Lines kept of what a server said."""


class ServerState(msgspec.Struct, frozen=True):
    """A server's state as shown to the user."""

    name: str
    state: State
    words: str
    """Why it failed or was lost; else empty."""
    tools: int
    prompts: int


class McpServers:
    """`run` keeps the servers until `close`, or until it is cancelled. Errors are McpError."""

    def __init__(self, specs: Iterable[ServerSpec], settings: KeeperSettings, programs: Share | None = None) -> None:
        """`programs`: what each server takes one of, as long as it is connected."""
        self._settings = settings
        self._programs = programs
        self._servers = {spec.name: _Server(spec, settings) for spec in specs}
        self._leaving: list[_Server] = []
        self._tasks: TaskGroup | None = None
        self._closed = anyio.Event()

    async def run(self) -> None:
        """Connects all servers and keeps them running. Call once."""
        async with anyio.create_task_group() as self._tasks:
            for server in self._servers.values():
                self._tasks.start_soon(server.live, self._programs)
            await self._closed.wait()

    def add(self, specs: Iterable[ServerSpec]) -> None:
        """Connects further servers; those whose names are taken are left out."""
        for spec in specs:
            if spec.name not in self._servers:
                self._put(spec)

    def _put(self, spec: ServerSpec) -> None:
        server = self._servers[spec.name] = _Server(spec, self._settings)
        if self._tasks is not None and not self._closed.is_set():
            self._tasks.start_soon(server.live, self._programs)

    def remove(self, names: Iterable[str]) -> None:
        """Ends servers, without waiting for that."""
        for name in names:
            if (server := self._servers.pop(name, None)) is not None:
                server.stop()
                self._leaving.append(server)
        self._settings.on_change()

    async def restart(self, name: str) -> None:
        """Ends a server and connects it anew, however often that failed before."""
        old = self._server(name)
        await self._end([old])
        if self._servers.get(name) is old:  # Neither removed nor restarted meanwhile.
            self._put(old.spec)
            self._servers[name].chosen = old.chosen

    async def settled(self) -> None:
        """Waits until each server is connected or has failed."""
        for server in self._servers.values():
            await server.settled.wait()

    def refresh(self) -> None:
        """Has those lists read again that are older than their servers said (`ttlMs`); nobody waits for that."""
        for server in self._servers.values():
            server.refresh()

    def spec(self, server: str) -> ServerSpec:
        return self._server(server).spec

    def offered(self, server: str) -> dict[str, bool]:
        """Each tool of a server, and whether the user lets the model have it."""
        found = self._server(server)
        return {tool.name: found.offers(tool.name) for tool in found.all_tools}

    def choose(self, server: str, pattern: str, wanted: bool) -> list[str]:
        """The user lets the model have those tools of a server, or not, whatever the lists say, until the session ends.
        Returns their names."""
        found = self._server(server)
        names = [tool.name for tool in found.all_tools if fnmatchcase(tool.name, pattern)]
        found.chosen.update(dict.fromkeys(names, wanted))
        self._settings.on_change()
        return names

    def log(self, server: str) -> list[str]:
        """The last lines that a server said on stderr or logged."""
        return list(self._server(server).log)

    def states(self) -> tuple[ServerState, ...]:
        return tuple(server.describe() for server in self._servers.values())

    def tools(self) -> tuple[McpTool, ...]:
        """Currently known tools, in the order of the servers."""
        return tuple(tool for server in self._servers.values() for tool in server.tools)

    def prompts(self) -> tuple[McpPrompt, ...]:
        return tuple(prompt for server in self._servers.values() for prompt in server.prompts)

    async def start(
        self, server: str, tool: str, arguments: Mapping[str, Any], progress: Progress = lambda line: None
    ) -> ServerCall[McpResult]:
        """Begins the call of a tool."""
        return await self._server(server).start(lambda client: client.call(tool, arguments, progress))

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> list[tuple[str, str]]:
        """Returns (role, text) of a prompt's messages."""
        return await self._server(server).do(lambda client: client.prompt(name, arguments))

    async def resources(self, server: str) -> list[tuple[str, str]]:
        """The URI (or a template of URIs) and the name of each resource that a server lists."""
        return await self._server(server).do(lambda client: client.resources())

    async def resource(self, server: str, uri: str, limit: int) -> str:
        """The text of a resource, about `limit` bytes at most."""
        return await self._server(server).do(lambda client: client.resource(uri, limit))

    async def close(self) -> None:
        """Ends all servers and their processes within about a second, including those still connecting."""
        self._closed.set()
        await self._end([*self._servers.values(), *self._leaving])

    async def _end(self, servers: Sequence[_Server]) -> None:
        for server in servers:
            server.stop()
        if self._tasks is None:
            return
        try:
            await _gone(servers, LEAVE)
            for server in servers:
                server.cancel()
            await _gone(servers, CANCELLED)
        finally:
            for server in servers:
                server.cancel()
                server.kill()

    def _server(self, name: str) -> _Server:
        try:
            return self._servers[name]
        except KeyError:
            raise McpError("not_found", f"there is no MCP server {name}") from None


async def _gone(servers: Iterable[_Server], seconds: float) -> None:
    with anyio.move_on_after(seconds):
        for server in servers:
            await server.gone.wait()


class _Connection(msgspec.Struct, frozen=True):
    """An established connection."""

    client: Client
    jobs: TaskGroup
    link: Link
    left: anyio.Event = msgspec.field(default_factory=anyio.Event)
    """Set once the reason for its end is known."""


class ServerCall(Generic[T]):
    """A request in progress, in the connection's own task group: it outlives who began it. `cancel` it in the end."""

    def __init__(self, server: _Server, connection: _Connection) -> None:
        self._server = server
        self._connection = connection
        self._scope = anyio.CancelScope()
        self._done = anyio.Event()
        self._value: list[T] = []
        self._error: McpError | None = None

    async def work(self, work: Callable[[Client], Awaitable[T]]) -> None:
        try:
            with self._scope:
                self._value.append(await work(self._connection.client))
        except McpError as error:
            self._error = error
        finally:
            self._done.set()

    async def over(self, limit: float) -> bool:
        """Waits until it has ended, at most `limit` seconds in which the server asks for nothing; whether it has."""
        server, asked = self._server, -1
        while not self._done.is_set() and (server.asks or server.asked != asked):
            asked = server.asked
            with anyio.move_on_after(limit):
                await self._done.wait()
        return self._done.is_set()

    async def result(self, limit: float, waited: float = 0.0) -> T:
        """What it returned, within `limit` seconds as for `over`, after `waited` before. Raises McpError."""
        if not await self.over(limit):
            raise McpError("transient", f"the server did not answer within {waited + limit:g} seconds")
        if self._value:
            return self._value[0]
        if self._error is not None:
            raise self._error
        connection = self._connection
        with anyio.move_on_after(LEAVE):  # The connection was lost meanwhile.
            await connection.left.wait()
        why = connection.link.lost or self._server.why or McpError("transient", "it was closed")
        raise McpError(why.code, f"the server was lost during the call: {why}", retry_after=why.retry_after)

    def cancel(self) -> None:
        """Returns immediately; the server is notified. Nothing if it has ended."""
        self._scope.cancel()


class _Server:
    def __init__(self, spec: ServerSpec, settings: KeeperSettings) -> None:
        self.all_tools: tuple[McpTool, ...] = ()
        self.prompts: tuple[McpPrompt, ...] = ()
        self.gone = anyio.Event()
        """Set once nothing of the server is left."""
        self.spec = spec
        self.chosen: dict[str, bool] = {}
        """Tools that the user lets the model have in this session, or not, whatever the lists say."""
        self.log: deque[str] = deque(maxlen=LOGGED)
        self._settings = settings
        self._state: State = "connecting"
        self.why: McpError | None = None
        self._restarts = 0
        self.asked = 0
        """How often it has asked for something."""
        self.asks = 0
        """How much of that is not answered yet."""
        self._closing = False
        self.settled = anyio.Event()
        """Set once the attempt to connect has succeeded or failed."""
        self._wanted = anyio.Event()
        """Set by a call that needs a lost server."""
        self._end = anyio.Event()
        """Set to leave the connection."""
        self._lists_changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._link: Link | None = None
        self._connection: _Connection | None = None

    @property
    def tools(self) -> tuple[McpTool, ...]:
        """Those that the user lets the model have."""
        of = self.spec.digest()
        return tuple(msgspec.structs.replace(tool, of=of) for tool in self.all_tools if self.offers(tool.name))

    def offers(self, tool: str) -> bool:
        return self.chosen.get(tool, self.spec.offers(tool))

    # --- lifetime ---------------------------------------------------------------------------------------------

    async def live(self, programs: Share | None) -> None:
        """`programs`: what it takes one of, as long as it is connected."""
        try:
            while not self._closing:
                await self._attempt(programs)
                if self._state != "lost":
                    return
                await self._wanted.wait()
        finally:
            self._state = "failed" if self._state == "failed" else "closed"
            self.settled.set()
            self.gone.set()

    async def _attempt(self, programs: Share | None) -> None:
        """Runs one connection, from the first attempt to its end."""
        self._end, self._lists_changed = anyio.Event(), anyio.Event()
        common = self._settings
        limit = common.connect_timeout
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + limit)
        link = self._link = Link(
            self.spec,
            tuple(dict.fromkeys(common.folders)),
            common.entered,
            {**common.environ, **{name: common.more[name] for name in self.spec.inherit if name in common.more}},
            common.user,
            common.max_result_bytes,
            on_end=self._end.set,
            on_lists=lambda: self._lists_changed.set(),
            log=self.log.append,
            answers=self._answers(common.answers),
        )
        why = McpError("transient", f"it was not ready after {limit:g} seconds")
        connection: _Connection | None = None
        full = "" if programs is None else programs.take()
        try:
            if full:
                raise McpError("transient", full)
            with self._scope:
                connect: Callable[[Link], AbstractAsyncContextManager[Client]]
                connect = await anyio.to_thread.run_sync(load, CONNECT, abandon_on_cancel=True)
                link.spec = await anyio.to_thread.run_sync(common.as_trusted, self.spec)
                async with connect(link) as client, anyio.create_task_group() as jobs:
                    await self._list(client)
                    connection = _Connection(client, jobs, link)
                    self._ready(connection)
                    try:
                        await self._end.wait()
                    finally:
                        self._connection, self.settled = None, anyio.Event()
                        jobs.cancel_scope.cancel()
        except McpError as error:
            why = error
        except NotAsTrusted as error:
            why = McpError("policy_blocked", str(error))
        except ImportError as error:
            why = McpError("server_error", f"the package `mcp` cannot be loaded ({error})")
        else:
            if connection is None and link.process is not None:
                why = McpError(why.code, f"{why}{link.process.said()}")
        finally:
            if connection is not None:
                connection.left.set()
            if programs is not None and not full:
                programs.give()
        if not self._closing:
            self._lost(why, known=connection is not None or self._restarts > 0)

    def _ready(self, connection: _Connection) -> None:
        self._scope.deadline = float("inf")
        self._connection = connection
        self._state, self.why = "ready", None
        self.settled.set()
        connection.jobs.start_soon(self._keep_lists, connection.client)
        self._settings.on_change()

    def _lost(self, why: McpError, *, known: bool) -> None:
        """`known`: it has been connected before, and may be reconnected."""
        self.why = why
        words = f"The MCP server {self.spec.name}"
        if not known:
            self._state = "failed"
            words = f"{words} could not be connected: {why}."
        elif self._restarts < RESTARTS:
            self._state = "lost"
            self._wanted = anyio.Event()
            words = f"{words} is gone: {why}. It is restarted when one of its tools is called."
        else:
            self._state = "failed"
            self.all_tools, self.prompts = (), ()
            words = f"{words} is gone: {why}. It was restarted {RESTARTS} times and will not be restarted again."
        log.warning("%s", words)
        self.log.append(words)
        self.settled.set()
        self._settings.on_trouble(self.spec.name, words)
        if known:
            self._settings.on_change()

    def _tell_odd(self, clauses: Iterable[str]) -> None:
        """Tells the user once of what is not as it should be in the lists."""
        news = [words for words in clauses if words not in self.log]
        self.log.extend(news)
        if news:
            more = f"; and {len(news) - MOST_TOLD} more (`/mcp log`)" if len(news) > MOST_TOLD else ""
            words = f"The MCP server {self.spec.name}: {'; '.join(news[:MOST_TOLD])}{more}."
            self._settings.on_trouble(self.spec.name, words)

    async def _list(self, client: Client) -> bool:
        """Returns whether the lists changed. A failure to list prompts counts as none: tools matter more."""
        before = self.all_tools, self.prompts
        self.all_tools = await client.tools()
        try:
            self.prompts = await client.prompts()
        except McpError as error:
            self.prompts = ()
            log.warning("the prompts of the MCP server %s could not be read: %s", self.spec.name, error)
        self._tell_odd(client.odd)
        client.odd.clear()
        return before != (self.all_tools, self.prompts)

    def refresh(self) -> None:
        if self._connection is not None and self._connection.client.fresh_until < anyio.current_time():
            self._lists_changed.set()

    async def _keep_lists(self, client: Client) -> None:
        while True:
            await self._lists_changed.wait()
            self._lists_changed = anyio.Event()
            try:
                with anyio.fail_after(self._settings.connect_timeout):
                    changed = await self._list(client)
            except (McpError, TimeoutError) as error:
                log.warning("the tools of the MCP server %s could not be read again: %s", self.spec.name, error)
            else:
                if changed:
                    self._settings.on_change()
            await anyio.sleep(RELIST_PAUSE)

    def _answers(self, answers: Answers) -> Answers:
        elicit, sample = answers.elicit, answers.sample if self.spec.allows.sampling else None
        return msgspec.structs.replace(
            answers, elicit=elicit and partial(self._asking, elicit), sample=sample and partial(self._asking, sample)
        )

    async def _asking(self, answer: Answer, name: str, params: dict[str, Any]) -> dict[str, Any]:
        if self.asks >= MOST_ASKS:
            raise McpError("rate_limited", f"{MOST_ASKS} requests of this server wait for an answer already")
        self.asked += 1
        self.asks += 1
        try:
            return await answer(name, params)
        finally:
            self.asks -= 1

    # --- requests ---------------------------------------------------------------------------------------------

    async def start(self, work: Callable[[Client], Awaitable[T]]) -> ServerCall[T]:
        """Begins the work in the connection's task group."""
        connection = await self._connected()
        call: ServerCall[T] = ServerCall(self, connection)
        connection.jobs.start_soon(call.work, work)
        return call

    async def do(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Does the work to its end. When cancelled, it returns immediately, and the server is notified."""
        call = await self.start(work)
        try:
            return await call.result(self._settings.call_timeout)
        finally:
            call.cancel()

    async def _connected(self) -> _Connection:
        """Waits for a connection; restarts a lost server once."""
        asked = False
        with anyio.move_on_after(self._settings.connect_timeout + LEAVE):
            while not self._closing and self._state != "failed":
                if self._connection is not None:
                    if self._connection.link.lost is None:
                        break
                    await self._connection.left.wait()
                    continue
                if self._state == "lost":
                    if asked:
                        break
                    asked = True
                    self._state = "connecting"
                    self._restarts += 1
                    self.settled = anyio.Event()
                    self._wanted.set()
                await self.settled.wait()
        if self._connection is None or self._closing:
            why = f": {self.why}" if self.why is not None else ""
            raise McpError("transient", f"the server {self.spec.name} is not connected{why}")
        return self._connection

    # --- shutdown ---------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Asks the server to end; a connection being made is cancelled."""
        self._closing = True
        self.all_tools, self.prompts = (), ()
        for event in (self._end, self._wanted, self.settled):
            event.set()
        if self._connection is None:
            self.cancel()

    def cancel(self) -> None:
        self._scope.cancel()

    def kill(self) -> None:
        if self._link is not None and self._link.process is not None:
            self._link.process.kill()

    def describe(self) -> ServerState:
        words = str(self.why) if self.why is not None else ""
        return ServerState(self.spec.name, self._state, words, len(self.tools), len(self.prompts))
