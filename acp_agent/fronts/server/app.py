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
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from acp_agent import __version__
from acp_agent.config.model import Settings
from acp_agent.config.xdg import state_dir
from acp_agent.errors import AgentError, ConfigError
from acp_agent.fronts.server.entrance import Entrance, Refusal
from acp_agent.fronts.server.garbage import collecting
from acp_agent.fronts.server.house import House
from acp_agent.fronts.server.http_form import HttpForm
from acp_agent.fronts.server.identities import Identities, Identity
from acp_agent.fronts.server.metrics import CONTENT_TYPE, Metrics
from acp_agent.fronts.server.page import FILES, LOGIN, LOGOUT, PUBLIC, Page, Served
from acp_agent.fronts.server.stored_sessions import Answer, History, NotSo
from acp_agent.fronts.server.streams import HttpConnection
from acp_agent.opening import Opening
from acp_agent.protocol.codec import coalesce_updates, encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Event, Peer, RequestReceived
from acp_agent.protocol.websocket import GOING_AWAY, LIMIT, PROTOCOL_ERROR, WebSocketTransport
from acp_agent.store.stores import schema_of

log = logging.getLogger(__name__)
logging.getLogger("uvicorn.error").addFilter(lambda record: "without completing handshake" not in record.getMessage())
"""It says so of every refused handshake (github.com/Kludex/uvicorn/pull/3138)."""

PATH, ALIAS = "/acp", "/acp/ws"
PROTOCOL = 1
INTERNAL, FULL, FORBIDDEN, IN_USE = 1011, 503, 403, 409
CLOSE_SECONDS = 5.0
"""For what a connection has started to end."""
GOODBYE_SECONDS = 3.0
"""For all clients to get the last answers, once the server is told to stop."""
SPARE = 50
"""Connections besides those that `server.max_connections` counts: of who only looks, or has not said what it wants."""
PINGS = 3
"""Without an answer."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asks = Callable[[History, str, dict[str, str]], Awaitable[Answer]]
"""Of a history, the id of a session and the query."""


class Server:
    """`bound`: a socket that listens."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], identities: Identities, bound: socket.socket
    ) -> None:
        self._config = settings.server
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
        self._none = anyio.Event()
        """Once no connection is open any more."""
        self._metrics = Metrics(lambda: len(self._open), self._sessions)
        self._entered: Counter[str] = Counter()
        """Connections by the name of their token."""
        self._stopping = False

    async def serve(self, cert: str = "", key: str = "") -> None:
        """Until SIGTERM or SIGINT."""
        told = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_tell_of_signals, told)
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
                http=_bounded(self._config.initialize_timeout, self._config.max_connections + SPARE),
                ws="websockets-sansio",
                ws_max_size=self._max_message,
                ws_ping_interval=self._config.ping_interval,
                ws_ping_timeout=self._config.ping_interval * (PINGS - 1),
                ssl_certfile=cert or None,
                ssl_keyfile=key or None,
            )
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stopping_at, told, server)
            tasks.start_soon(self._ending_the_revoked)
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

    async def _stopping_at(self, told: anyio.Event, server: uvicorn.Server) -> None:
        await told.wait()
        await self._stop()
        server.should_exit = True

    async def _stop(self) -> None:
        self._stopping = True
        with anyio.move_on_after(GOODBYE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for house in self._houses.values():
                    tasks.start_soon(house.cancel_all)
            for connection in tuple(self._open):
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
        if scope.cancelled_caught:
            log.error("not everything could be closed within %g s", CLOSE_SECONDS)

    @property
    def app(self) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        routes: list[BaseRoute] = [WebSocketRoute(path, self._acp) for path in (PATH, ALIAS)]
        routes.append(Route(PATH, self._http.answer, methods=["GET", "POST", "DELETE"]))
        routes.append(Route(ALIAS, _only_websockets, methods=["GET", "POST", "DELETE"]))
        routes += [Route(path, self._health) for path in ("/healthz", "/health")]
        routes.append(Route("/metrics", self._measured))
        if self._config.discovery:
            routes.append(Route("/.well-known/acp.json", self._discovery))
        rows: tuple[tuple[str, str, Asks], ...] = (
            ("", "GET", lambda history, _, asked: history.sessions(asked)),
            ("/{id}", "GET", lambda history, name, _: history.session(name)),
            ("/{id}", "DELETE", lambda history, name, _: history.delete(name)),
            ("/{id}/messages", "GET", History.messages),
            ("/{id}/export", "GET", History.export),
        )
        routes += [Route(f"/sessions{path}", self._history(ask), methods=[method]) for path, method, ask in rows]
        routes.append(Route("/search", self._history(lambda history, _, asked: history.search(asked))))
        public: tuple[str, ...] = ("/healthz", "/health", "/.well-known/acp.json")
        if self._config.page:
            page = Page(self._config.page_days)
            routes += [Route(path, _paged(page.file)) for path in FILES]
            routes += [Route(LOGIN, _paged(page.login), methods=["POST"])]
            routes += [Route(LOGOUT, _paged(page.logout), methods=["POST"])]
            public += PUBLIC
        inner = Starlette(routes=routes)

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
            answer = JSONResponse({"error": refused.words}, refused.status, dict(refused.headers))
            if scope["type"] == "websocket":
                await receive()  # The handshake.
                await WebSocket(scope, receive, send).send_denial_response(answer)
            else:
                await answer(scope, receive, send)

        return guarded

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
        if len(self._open) >= self._config.max_connections:
            return f"there are {self._config.max_connections} connections already"
        if self._entered[identity.name] >= self._config.max_connections_per_token:
            return f"this token has {self._config.max_connections_per_token} connections already"
        return ""

    # --- what is there ----------------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        status = "stopping" if self._stopping else "ok"
        about = {"status": status, "version": __version__, "uptime_secs": int(time.monotonic() - self._begun)}
        return JSONResponse(about, FULL if self._stopping else 200)

    async def _measured(self, request: Request) -> Response:
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    def _sessions(self) -> int:
        return sum(len(house.sessions.ids) for house in self._houses.values())

    async def _discovery(self, request: Request) -> Response:
        return JSONResponse(
            {
                "name": "acp-coder",
                "version": __version__,
                "protocol": "acp",
                "protocol_version": PROTOCOL,
                "transports": {"http_sse": {"url": PATH}, "websocket": {"url": PATH}, "health": {"url": "/healthz"}},
                "authentication": {"type": "bearer"},
                "readiness": {"http_health_endpoint": "/healthz"},
            }
        )

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
        agent = self.house(identity.owner).agent(identity)
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

    def _history(self, ask: Asks) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            identity: Identity = request.scope["identity"]
            house, wanted = self._houses.get(identity.owner), request.path_params.get("id", "")
            theirs = self.opening(identity.owner).below(identity.folders)
            try:
                if request.method == "DELETE" and identity.scope != "prompt":
                    raise NotSo(FORBIDDEN, f"this token may not do that (its scope is `{identity.scope}`)")
                history = History(theirs.look, theirs.may_open)
                if request.method == "DELETE" and house is not None:
                    await history.session(wanted)  # One of theirs.
                    if not await house.given_up(wanted):
                        raise NotSo(IN_USE, "the session is in use; close it first")
                found = await ask(history, wanted, dict(request.query_params))
            except NotSo as error:
                return JSONResponse({"error": str(error)}, error.status)
            more = {"Link": f'<{found.following}>; rel="next"'} if found.following else {}
            return Response(
                found.body,
                found.status,
                {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **more},
                found.kind,
            )

        return answered

    def _store(self, owner: str) -> Path:
        """Each owner has one of their own: sessions, answers, memories, schedules, what was spent."""
        return Path(state_dir(self._environ)) / "owners" / owner / "sessions.db"

    def house(self, owner: str) -> House:
        if (house := self._houses.get(owner)) is None:
            house = self._houses[owner] = House(self.opening(owner), self._settings, self._metrics)
        return house

    def opening(self, owner: str) -> Opening:
        store = self._settings.store
        flags = {"store.path": str(self._store(owner)), "store.schema": schema_of(store.schema, owner)}
        if not self._config.near:
            flags["agent.far"] = "true"
        return Opening(self._environ, flags)


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
    words = "only WebSockets are served at this address"
    return JSONResponse({"error": words}, 426, {"Upgrade": "websocket", "Connection": "Upgrade"})
