"""The server: what is at which address, and the life of a connection. The one door to starlette and uvicorn."""

from __future__ import annotations

import logging
import signal
import socket
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

import anyio
import anyio.to_thread
import msgspec
import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from acp_agent import __version__
from acp_agent.config.model import Settings
from acp_agent.config.place_settings import OwnerConfig
from acp_agent.errors import AgentError, ConfigError
from acp_agent.fronts.server.entrance import Entrance, Refusal
from acp_agent.fronts.server.folder_names import NAMES, FolderNames
from acp_agent.fronts.server.garbage import collecting
from acp_agent.fronts.server.house import House
from acp_agent.fronts.server.http_form import FORM, HttpForm
from acp_agent.fronts.server.identities import Identities, Identity
from acp_agent.fronts.server.metrics import CONTENT_TYPE, Metrics
from acp_agent.fronts.server.openapi import JSON, described
from acp_agent.fronts.server.operations import NotSo, Operation, Problem, read
from acp_agent.fronts.server.owned import owned
from acp_agent.fronts.server.page import FILES, LOGIN, LOGOUT, Page, Served
from acp_agent.fronts.server.process_links import Link, Links
from acp_agent.fronts.server.relay import Introduction
from acp_agent.fronts.server.remote_agent import RemoteAgent
from acp_agent.fronts.server.stored_sessions import IN_USE, OPERATIONS, Answer, History, SessionAsked
from acp_agent.fronts.server.streams import HttpConnection
from acp_agent.limits.descriptors import fits
from acp_agent.opening import Opening, store_url
from acp_agent.protocol.codec import coalesce_updates, encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Event, Peer, RequestReceived
from acp_agent.protocol.websocket import GOING_AWAY, LIMIT, PROTOCOL_ERROR, WebSocketTransport
from acp_agent.store.session_store import SessionStore

log = logging.getLogger(__name__)
FAULTS_OF_CLIENTS = ("without completing handshake", "Invalid UTF-8 sequence", "Invalid HTTP request")
"""Uvicorn says so of every refused handshake (github.com/Kludex/uvicorn/pull/3138) and of noise, with a traceback."""
logging.getLogger("uvicorn.error").addFilter(
    lambda record: not any(words in record.getMessage() for words in FAULTS_OF_CLIENTS)
)

PATH, ALIAS, DISCOVERY = "/acp", "/acp/ws", "/.well-known/acp.json"
PROTOCOL = 1
INTERNAL, FULL, FORBIDDEN = 1011, 503, 403
CLOSE_SECONDS = 5.0
"""For what a connection has started to end."""
GOODBYE_SECONDS = 3.0
"""For all clients to get the last answers, once the server is told to stop."""
REQUEST_SECONDS = 1
"""After that for requests that are not whole, and for answers that nobody reads."""
CLIENTS = 4
"""Of `PARTS` of the descriptors of this process."""
SPARE = 50
"""Connections besides those that `server.max_connections` counts: of who only looks, or has not said what it wants."""
RENEWALS = 3
"""Of a lease, in the time that it takes."""
PINGS = 3
"""Without an answer."""

BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
KEPT = {"agent.elsewhere": "false", "agent.trust": "false", "mcp.client_programs": "false"}
"""What keeps the programs of an owner in the place that they are given."""

FRESH = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Health(Struct, frozen=True):
    status: Literal["ok", "stopping"]
    version: str
    uptime_secs: int


class Address(Struct, frozen=True):
    url: str


class Discovery(Struct, frozen=True):
    """As the draft for remote transports has it."""

    name: str
    version: str
    protocol: str
    protocol_version: int
    transports: dict[str, Address]
    authentication: dict[str, str]
    readiness: dict[str, str]


class Server:
    """`bound`: a socket that listens."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], identities: Identities, bound: socket.socket
    ) -> None:
        self._config = settings.server
        self._most = min(settings.server.max_connections, fits(CLIENTS))
        self._max_message = settings.limits.max_line_bytes
        self._environ = environ
        self._identities = identities
        self._bound = bound
        self._http = HttpForm(self._config, self._max_message, self._serve_http, self._why_none)
        self._entrance = Entrance(self._config, bound.getsockname()[0], identities.find)
        self._begun = time.monotonic()
        self._settings = settings
        self._houses: dict[str, House] = {}
        """By owner."""
        self._open: dict[Connection, tuple[WebSocketTransport | HttpConnection, Identity]] = {}
        self.process = uuid.uuid4().hex
        self._links: Links | None = None
        self._store: SessionStore | None = None
        """On a server: what the processes that share it tell each other goes by it."""
        base = Opening(environ)
        config = base.config()
        if store_url(config, environ):
            self._store = base.store(config)
        self._relayed: dict[Connection, RemoteAgent] = {}
        """Of clients of other processes."""
        self._none = anyio.Event()
        """Once no connection is open any more."""
        self._metrics = Metrics(lambda: len(self._open), self._sessions)
        self._entered: Counter[str] = Counter()
        """Connections by the name of their token."""
        self._stopping = False

    async def serve(self, cert: str = "", key: str = "", ends: int = -1) -> None:
        """Until SIGTERM or SIGINT, or `ends`, a file descriptor, can be read."""
        told = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_tell_of_signals, told)
            if ends >= 0:
                tasks.start_soon(_tell_of_end, told, ends)
            await self.until(told, cert, key)
            tasks.cancel_scope.cancel()

    async def until(self, told: anyio.Event, cert: str = "", key: str = "") -> None:
        """Serves until it is told to stop: then every turn is cancelled and answered, and every socket closed (1001).
        Raises OSError."""
        server = _Uvicorn(
            uvicorn.Config(
                self.app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                http=_bounded(self._config.initialize_timeout, self._most + SPARE),
                ws=_Frames,
                ws_max_size=self._max_message,
                timeout_graceful_shutdown=REQUEST_SECONDS,
                ws_ping_interval=self._config.ping_interval,
                ws_ping_timeout=self._config.ping_interval * (PINGS - 1),
                ssl_certfile=cert or None,
                ssl_keyfile=key or None,
            )
        )
        async with anyio.create_task_group() as tasks:
            if self._store is not None:
                self._links = Links(self._store, self._serve_link, self._runs, silence=self._config.lease)
                tasks.start_soon(self._links.run)
                await self._links.listens.wait()
                self.process = self._links.name
                self._http.links = self._links
            tasks.start_soon(self._stopping_at, told, server)
            tasks.start_soon(self._ending_the_revoked)
            tasks.start_soon(self._renewing)
            tasks.start_soon(collecting, lambda: not any(house.turns for house in self._houses.values()))
            await server.serve([self._bound])
            told.set()
            tasks.cancel_scope.cancel()

    async def _ending_the_revoked(self) -> None:
        """Connections of tokens that are revoked."""
        while True:
            await anyio.sleep(self._config.ping_interval)
            try:
                known = set(await anyio.to_thread.run_sync(self._identities.known))
            except ConfigError as error:
                log.error("%s", error)
                continue
            for connection, (transport, identity) in self._open.items():
                if identity not in known:
                    transport.code = LIMIT
                    connection.close()

    async def _renewing(self) -> None:
        """The leases of the sessions that run here."""
        while True:
            await anyio.sleep(self._config.lease / RENEWALS)
            async with anyio.create_task_group() as tasks:
                for house in self._houses.values():
                    tasks.start_soon(house.renew)
            self._metrics.look()

    async def _stopping_at(self, told: anyio.Event, server: uvicorn.Server) -> None:
        await told.wait()
        await self._stop()
        server.should_exit = True

    async def _stop(self) -> None:
        self._stopping = True
        if self._links is not None:
            self._links.refuses = True
        with anyio.move_on_after(GOODBYE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for house in self._houses.values():
                    tasks.start_soon(house.cancel_all)
            for connection in (*self._open, *self._relayed):
                await connection.flush()
        for connection, (transport, _) in self._open.items():
            transport.code = GOING_AWAY
            connection.close()
        if self._open:
            with anyio.move_on_after(CLOSE_SECONDS):
                await self._none.wait()
        with anyio.move_on_after(CLOSE_SECONDS) as scope:
            for house in self._houses.values():
                await house.end()
            if self._links is not None and self._store is not None:
                for agent in self._relayed.values():
                    agent.hand_over()
                await self._links.end()
                await self._store.do(self._store.close)
        if scope.cancelled_caught:
            log.error("not everything could be closed within %g s", CLOSE_SECONDS)

    @property
    def routes(self) -> list[BaseRoute]:
        """All that there is behind the entrance."""
        found: list[BaseRoute] = [WebSocketRoute(path, self._acp) for path in (PATH, ALIAS)]
        found += [Route(each.path, each.ask, methods=[each.method]) for each in self._operations()]
        found += [Route(each.path, self._named(each), methods=[each.method]) for each in NAMES]
        return found + [Route(each.path, self._history(each), methods=[each.method]) for each in OPERATIONS]

    @property
    def app(self) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        public = {DISCOVERY, *(each.path for each in self._operations() if each.scope is None)}
        inner = Starlette(routes=self.routes)

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            headers = Headers(scope=scope)
            if scope["path"] in public:
                refused = self._entrance.known_as(headers)
            else:
                address = (scope.get("client") or ("",))[0]
                found = self._entering(address, headers)
                refused = found if isinstance(found, Refusal) else None
                if isinstance(found, Identity) and scope["type"] == "websocket" and (words := self._why_none(found)):
                    refused = Refusal(FULL, words)
                scope["identity"] = found
            if refused is None:
                await inner(scope, receive, send)
                return
            self._metrics.refused(refused.status)
            answer = _json(Problem(refused.words), refused.status, dict(refused.headers))
            if scope["type"] == "websocket":
                await receive()  # The handshake.
                await WebSocket(scope, receive, send).send_denial_response(answer)
            else:
                await answer(scope, receive, send)

        return guarded

    def _operations(self) -> tuple[Operation, ...]:
        """All but those of stored sessions. `ask` takes a Request."""
        stopping = ((FULL, "The server is stopping."),)
        found = [
            Operation(PATH, self._http.answer, method, words, kinds=kinds, status=status, others=others, other=None)
            for method, status, kinds, words, others in FORM
        ]
        found += [Operation(ALIAS, _only_websockets, method, answer=Problem, status=426) for method, *_ in FORM]
        for path in ("/healthz", "/health"):
            found.append(Operation(path, self._health, answer=Health, others=stopping, other=Health, scope=None))
        found.append(Operation("/metrics", self._measured, kinds=(CONTENT_TYPE,)))
        found.append(Operation("/openapi.json", self._described, answer=dict[str, Any]))
        if self._config.discovery:
            found.append(Operation(DISCOVERY, self._discovery, answer=Discovery, scope=None))
        if self._config.page:
            page, file = Page(self._config.page_days), "A file of the page for browsers."
            for path, (_, kind) in FILES.items():
                found.append(Operation(path, _paged(page.file), words=file, kinds=(kind,), scope=None))
            found.append(Operation(LOGIN, _paged(page.login), "POST", page.login.__doc__ or "", status=204))
            found.append(
                Operation(LOGOUT, _paged(page.logout), "POST", page.logout.__doc__ or "", status=204, scope=None)
            )
        return tuple(found)

    def _entering(self, address: str, headers: Mapping[str, str]) -> Identity | Refusal:
        try:
            return self._entrance.enter(address, headers)
        except ConfigError as error:
            log.error("%s", error)
            return Refusal(FULL, "who may enter cannot be found out; see the server's log")

    def _why_none(self, identity: Identity) -> str:
        """Why there is no room for another connection of theirs."""
        if self._stopping:
            return "the server is stopping"
        if len(self._open) >= self._most:
            return f"there are {self._most} connections already"
        if self._entered[identity.name] >= self._config.max_connections_per_token:
            return f"this token has {self._config.max_connections_per_token} connections already"
        return ""

    # --- what is there ----------------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        """Whether the server takes requests. For probes."""
        status: Literal["ok", "stopping"] = "stopping" if self._stopping else "ok"
        health = Health(status, __version__, int(time.monotonic() - self._begun))
        return _json(health, FULL if self._stopping else 200)

    async def _measured(self, request: Request) -> Response:
        """What is counted, for Prometheus."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def _described(self, request: Request) -> Response:
        """This document."""
        return _json(self.document())

    def document(self) -> dict[str, Any]:
        """OpenAPI's."""
        return described((*self._operations(), *NAMES, *OPERATIONS))

    def _sessions(self) -> int:
        return sum(len(house.sessions.ids) for house in self._houses.values())

    async def _discovery(self, request: Request) -> Response:
        """Which protocol is spoken here, and where."""
        health, acp = "/healthz", Address(PATH)
        transports = {"http_sse": acp, "websocket": acp, "health": Address(health)}
        more = transports, {"type": "bearer"}, {"http_health_endpoint": health}
        return _json(Discovery("acp-coder", __version__, "acp", PROTOCOL, *more))

    async def _acp(self, socket: WebSocket) -> None:
        identity: Identity = socket.scope["identity"]
        self._entered[identity.name] += 1
        connection_id = str(uuid.uuid4())
        transport = WebSocketTransport(_Socket(socket), stalled=self._config.stalled_timeout)
        code = INTERNAL
        try:
            await socket.accept(headers=[(b"acp-connection-id", connection_id.encode())])
            code = await self._served(transport, identity)
        except (AgentError, OSError, WebSocketDisconnect) as error:
            log.warning("the connection of %s ended: %s", identity.name, error)
        finally:
            self._entered[identity.name] -= 1
            with suppress(OSError, RuntimeError, WebSocketDisconnect):
                await socket.close(code)

    async def _served(self, transport: WebSocketTransport, identity: Identity) -> int:
        """Returns the code to close the socket with."""
        peer = Peer(encode=encode, max_line=self._max_message)
        events: list[Event] = []
        with anyio.move_on_after(self._config.initialize_timeout):
            events = peer.receive(await transport.read())
        if not events or not _begins(events[0]):
            return PROTOCOL_ERROR
        await self._serve(transport, identity, peer, events)
        return transport.code

    async def _serve_http(self, transport: HttpConnection, identity: Identity) -> None:
        self._entered[identity.name] += 1
        try:
            await self._serve(transport, identity, Peer(encode=encode, max_line=self._max_message), ())
        except (AgentError, OSError) as error:
            log.warning("the connection of %s ended: %s", identity.name, error)
        finally:
            self._entered[identity.name] -= 1

    async def _serve(
        self, transport: WebSocketTransport | HttpConnection, identity: Identity, peer: Peer, events: Sequence[Event]
    ) -> None:
        agent = self.agent(identity)
        connection = Connection(transport, agent, peer=peer, coalesce=coalesce_updates)
        agent.attach(connection)
        self._open[connection] = transport, identity
        self._none = anyio.Event() if self._none.is_set() else self._none
        try:
            await connection.serve(events)
            if transport.deleted:
                agent.cancel_turns()
        finally:
            with anyio.CancelScope(shield=True):
                await agent.close()
            del self._open[connection]
            if not self._open:
                self._none.set()

    def agent(self, identity: Identity, *, relayed: bool = False) -> RemoteAgent:
        """For a connection of theirs; `relayed`: to another process."""
        house = self.house(identity.owner)
        return RemoteAgent(house, identity, house.opening.below(identity.folders), relayed=relayed)

    # --- other processes with the same store ------------------------------------------------------------------

    async def _serve_link(self, link: Link) -> None:
        """A client of another process, at a session that this one runs, or a request about a connection here."""
        peer, first = Peer(encode=encode, max_line=self._max_message), bytearray()
        while b"\n" not in (data := await link.read()):
            if not data:
                return
            first += data
        line, _, rest = bytes(first + data).partition(b"\n")
        about = msgspec.json.decode(line, type=Introduction)
        if about.posted is not None:
            await self._http.answer_link(link, about.posted, about.identity)
            return
        agent = self.agent(about.identity, relayed=True)
        connection = Connection(link, agent, peer=peer, coalesce=coalesce_updates)
        agent.attach(connection)
        self._relayed[connection] = agent
        try:
            await connection.serve(peer.receive(rest))
        finally:
            del self._relayed[connection]
            with anyio.CancelScope(shield=True):
                await agent.close()

    def _runs(self, told: str) -> None:
        """A process has told all that it runs a session."""
        owner, session_id, process = told.split(" ")
        if process != self.process and owner in self._houses:
            self._houses[owner].runs_elsewhere(session_id)

    def _history(self, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            identity: Identity = request.scope["identity"]
            theirs = self.opening(identity.owner).below(identity.folders)
            try:
                if operation.scope == "prompt" != identity.scope:
                    raise NotSo(FORBIDDEN, _too_little(identity))
                history = History(theirs.look, theirs.may_see)
                asked = read(operation.asked, {**request.query_params, **request.path_params})
                if isinstance(asked, SessionAsked) and request.method == "DELETE":
                    await history.session(asked)  # One of theirs.
                    if not await self.house(identity.owner).given_up_anywhere(str(asked.id), identity):
                        raise NotSo(*IN_USE)
                found: Answer = await operation.ask(history, asked)
            except NotSo as error:
                return _json(Problem(str(error)), error.status)
            more = {"Link": f'<{found.following}>; rel="next"'} if found.following else {}
            return Response(found.body, found.status, {**FRESH, **more}, found.kind)

        return answered

    def _named(self, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            identity: Identity = request.scope["identity"]
            if identity.scope != "prompt":
                return _json(Problem(_too_little(identity)), FORBIDDEN)
            try:
                asked = read(operation.asked, request.query_params)
            except NotSo as error:
                return _json(Problem(str(error)), error.status)
            if self._config.owners.get(identity.owner, OwnerConfig()).place:
                return _json([])  # Their files are elsewhere.
            names = FolderNames(self.opening(identity.owner), identity.folders)
            return _json(await operation.ask(names, asked), headers=FRESH)

        return answered

    def house(self, owner: str) -> House:
        if (house := self._houses.get(owner)) is None:
            house = self._houses[owner] = House(
                owner, self.opening(owner), self._settings, self._metrics, self.process, self._links
            )
        return house

    def opening(self, owner: str) -> Opening:
        flags = owned(owner, self._settings, self._environ)
        if not self._config.near:
            flags["agent.far"] = "true"
        theirs = self._config.owners.get(owner, OwnerConfig())
        if theirs.model:
            flags["agent.model"] = theirs.model
        if theirs.place:
            flags |= {"agent.place": theirs.place, **KEPT}
        return Opening(self._environ, flags)


def _too_little(identity: Identity) -> str:
    return f"this token may not do that (its scope is `{identity.scope}`)"


def _bounded(seconds: float, most: int) -> type[H11Protocol]:
    """HTTP connections: `most` at a time, each with `seconds` for the head of its first request."""

    class Bounded(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.abort()
            else:
                self.loop.call_later(seconds, self._give_up)

        def _give_up(self) -> None:
            if self.transport.get_protocol() is self and self.cycle is None:
                self.transport.abort()

    return Bounded


class _Frames(WebSocketsSansIOProtocol):
    """Uvicorn leaves a handshake that `websockets` cannot read without an answer, and its connection open; noise behind
    a close frame is an error to it."""

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except InvalidState:
            self.transport.close()
        if self.conn.handshake_exc is not None and not self.transport.is_closing():
            self.transport.write(b"".join(self.conn.data_to_send()) or BAD_REQUEST)
            self.transport.close()


class _Uvicorn(uvicorn.Server):
    """Signals are ours."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Socket:
    """Starlette's, as `protocol.websocket` wants it."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> str | None:
        while True:
            try:
                message = await self._socket.receive()
            except RuntimeError:  # It has gone already.
                return None
            if message["type"] == "websocket.disconnect":
                return None
            if (text := message.get("text")) is not None:
                return str(text)

    async def send(self, text: str) -> None:
        try:
            await self._socket.send_text(text)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ConnectionResetError("the client has gone") from error


async def _tell_of_end(told: anyio.Event, ends: int) -> None:
    await anyio.wait_readable(ends)
    told.set()


async def _tell_of_signals(told: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            told.set()


def _begins(event: Event) -> bool:
    return isinstance(event, RequestReceived) and event.method == "initialize" and event.id is not None


def _paged(ask: Callable[[str, Mapping[str, str], bool], Served]) -> Callable[[Request], Awaitable[Response]]:
    async def answered(request: Request) -> Response:
        found = ask(request.url.path, request.headers, request.url.scheme == "https")
        return Response(found.body, found.status, dict(found.headers))

    return answered


async def _only_websockets(request: Request) -> Response:
    """ACP over a WebSocket, as at `/acp`. Without `Upgrade: websocket` there is nothing here."""
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
    return _json(Problem("only WebSockets are served at this address"), 426, headers)


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, JSON)
