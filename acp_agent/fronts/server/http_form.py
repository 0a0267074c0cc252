"""The requests of ACP's HTTP form: POST, GET and DELETE of `/acp`, and the life of the connections they make."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from acp_agent.config.place_settings import ServerConfig
from acp_agent.errors import ConnectionClosed
from acp_agent.fronts.server.identities import Identity
from acp_agent.fronts.server.process_links import Link, Links
from acp_agent.fronts.server.relay import Posted, introduction
from acp_agent.fronts.server.streams import CONNECTION, SESSION, HttpConnection, Refused, begins, header_id, message_of

log = logging.getLogger(__name__)

INVALID_REQUEST = -32600
JSON, EVENTS = "application/json", "text/event-stream"
FREE_SECONDS = 1.0
"""For another process to say that a stream is not read there any more, as its client has opened it here."""
BAD = 400
"""Statuses of refusals begin there."""
NO_CONNECTION = (404, "there is no such connection; begin with `initialize`")
CHECKS = 4
"""Times in `server.http_idle_timeout` that a connection is looked at."""

ALWAYS = (
    (400, "The message or a header is wrong."),
    (404, "There is no such connection."),
    (503, "The server is full, or stopping."),
)
FORM = (
    ("POST", 202, (),
     "Sends a message of ACP. `initialize` is answered at once (200) and makes a connection, which all later requests "
     "name in `Acp-Connection-Id`; what belongs to a session names it in `Acp-Session-Id`.",
     ((200, "The answer to `initialize`."), *ALWAYS, (413, "The body is too long."), (415, f"It is not `{JSON}`."),
      (501, "Batches are not part of ACP."), (504, "The agent did not answer in time."))),
    ("GET", 200, (EVENTS,),
     "The stream of what the agent sends, of a connection or of one of its sessions. With `Upgrade: websocket` it is "
     "ACP over a WebSocket instead, a message a frame.",
     ((101, "A WebSocket."), *ALWAYS, (406, f"`Accept` must contain `{EVENTS}`."), (409, "It is read already."))),
    ("DELETE", 202, (), "Ends a connection. The turns that it asked for are cancelled.", ALWAYS),
)  # fmt: skip
"""Method, usual status, media types, what it is, other statuses."""

Serve = Callable[[HttpConnection, Identity], Awaitable[None]]
Room = Callable[[Identity], str]


class HttpForm:
    """`serve` runs the agent of a connection until it ends; `room` says why there is none for one more."""

    def __init__(self, config: ServerConfig, most: int, serve: Serve, room: Room) -> None:
        self._config = config
        self._most = most
        self._serve = serve
        self._room = room
        self.links: Links | None = None
        """To other processes, which the requests of a client may get to as well."""
        self._connections: dict[str, HttpConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, request: Request) -> Response:
        """Of a client that has got in."""
        identity: Identity = request.scope["identity"]
        try:
            if request.method == "POST":
                return await self._post(request, identity)
            posted = Posted(request.method, _connection_of(request), header_id(request.headers, SESSION))
            if request.method == "GET":
                accepted = request.headers.get("accept", "")
                if EVENTS not in accepted and "*/*" not in accepted:
                    raise Refused(406, f"`Accept` must contain `{EVENTS}`")
            return await self._answered(posted, identity)
        except Refused as error:
            return _refusal(error)

    async def _answered(self, posted: Posted, identity: Identity) -> Response:
        """By the process whose connection it is. Raises Refused."""
        process = posted.connection.partition(".")[0]
        if self.links is not None and process != self.links.name and posted.connection not in self._connections:
            return await self._answered_by(process, posted, identity)
        events = self._here(posted, identity)
        return Response(status_code=202) if events is None else _stream(events, posted)

    def _here(self, posted: Posted, identity: Identity) -> AsyncGenerator[bytes, None] | None:
        """The events of the stream that is asked for. Raises Refused."""
        connection = self._named(posted, identity)
        if posted.method == "GET":
            return connection.open(posted.session)
        if posted.method == "POST":
            body = posted.body.encode()
            connection.post(message_of(body), body, posted.session)
        else:
            connection.delete()
        return None

    async def _answered_by(self, process: str, posted: Posted, identity: Identity) -> Response:
        assert self.links is not None
        try:
            link = await self.links.open(process)
        except ConnectionClosed as error:
            raise Refused(*NO_CONNECTION) from error
        head = b""
        try:
            with suppress(ConnectionClosed):
                await link.write(introduction(identity, posted))
                head = await link.read()
        finally:
            if not head:
                link.close()
        if not head:
            raise Refused(*NO_CONNECTION)
        line, _, rest = head.partition(b"\n")
        status, words = msgspec.json.decode(line, type=tuple[int, str])
        if status >= BAD:
            raise Refused(status, words)
        return Response(status_code=status) if posted.method != "GET" else _stream(_passed_on(link, rest), posted)

    async def answer_link(self, link: Link, posted: Posted, identity: Identity) -> None:
        """A request that got to another process."""
        connection = self._connections.get(posted.connection)
        try:
            if posted.method == "GET" and connection is not None:
                await connection.free(posted.session, FREE_SECONDS)
            events = self._here(posted, identity)
        except Refused as error:
            await link.write(msgspec.json.encode((error.status, str(error))) + b"\n")
            return
        await link.write(msgspec.json.encode((202 if events is None else 200, "")) + b"\n")
        if events is None:
            return
        async with aclosing(events), anyio.create_task_group() as tasks:
            tasks.start_soon(_until_it_ends, link, tasks.cancel_scope)
            with suppress(ConnectionClosed):
                async for event in events:
                    await link.write(event)
            tasks.cancel_scope.cancel()
        if connection is not None and link.ended and not link.left:
            connection.lose()  # What was on its way may not come: the client begins anew.

    async def _post(self, request: Request, identity: Identity) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise Refused(415, f"`Content-Type` must be `{JSON}`")
        body = await self._body(request)
        message = message_of(body)
        if not begins(message):
            about = (_connection_of(request), header_id(request.headers, SESSION), body.decode("utf-8", "replace"))
            return await self._answered(Posted("POST", *about), identity)
        if CONNECTION in request.headers:
            raise Refused(400, "`initialize` makes a new connection and takes no connection id")
        if words := self._room(identity):
            raise Refused(503, words)
        return await self._begun(identity, body)

    async def _begun(self, identity: Identity, body: bytes) -> Response:
        name = str(uuid.uuid4()) if self.links is None else f"{self.links.name}.{uuid.uuid4()}"
        connection = HttpConnection(name, identity.name, stalled=self._config.stalled_timeout)
        self._connections[connection.id] = connection
        task = asyncio.create_task(self._live(connection, identity))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            first = await connection.begin(body, self._config.initialize_timeout)
        except TimeoutError as error:
            connection.delete()
            raise Refused(504, "the agent did not answer in time") from error
        except asyncio.CancelledError:
            connection.delete()
            raise
        if "error" in message_of(first):  # Nothing was made.
            connection.delete()
            return Response(first, 200, media_type=JSON)
        return Response(first, 200, {CONNECTION: connection.id}, JSON)

    async def _live(self, connection: HttpConnection, identity: Identity) -> None:
        self._look(connection)
        try:
            await self._serve(connection, identity)
        finally:
            del self._connections[connection.id]

    def _look(self, connection: HttpConnection) -> None:
        """Ends it if it is idle: clients that are gone say nothing."""
        limit = self._config.http_idle_timeout
        if connection.id not in self._connections:
            return
        if connection.in_use or time.monotonic() - connection.used < limit:
            asyncio.get_running_loop().call_later(limit / CHECKS, self._look, connection)
            return
        log.info("the connection of %s is not used any more", connection.owner)
        connection.lose()

    def _named(self, posted: Posted, identity: Identity) -> HttpConnection:
        """The connection that a request is about; those of other tokens do not exist."""
        found = self._connections.get(posted.connection)
        if found is None or found.owner != identity.name or found.deleted:
            raise Refused(*NO_CONNECTION)
        return found

    async def _body(self, request: Request) -> bytes:
        length = request.headers.get("content-length", "")
        if length.isdigit() and len(length) < 20 and int(length) > self._most:
            raise Refused(413, f"the body is longer than {self._most} bytes")
        body, waits = bytearray(), self._config.stalled_timeout
        try:
            async with asyncio.timeout(waits) as limit:
                async for part in request.stream():
                    body += part
                    if len(body) > self._most:
                        raise Refused(413, f"the body is longer than {self._most} bytes")
                    limit.reschedule(asyncio.get_running_loop().time() + waits)
        except TimeoutError as error:
            raise Refused(408, f"nothing more of the body came for {waits:g} s") from error
        except ClientDisconnect as error:
            raise Refused(400, "the body is not complete") from error
        return bytes(body)


def _connection_of(request: Request) -> str:
    if not (wanted := header_id(request.headers, CONNECTION)):
        raise Refused(400, f"the header `{CONNECTION}` is missing")
    return wanted


def _stream(events: AsyncGenerator[bytes, None], posted: Posted) -> Response:
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", CONNECTION: posted.connection}
    if posted.session:
        headers[SESSION] = posted.session
    return StreamingResponse(events, 200, headers, EVENTS)


async def _passed_on(link: Link, first: bytes) -> AsyncGenerator[bytes, None]:
    try:
        data = first or await link.read()
        while data:
            yield data
            data = await link.read()
    finally:
        link.close()


async def _until_it_ends(link: Link, scope: anyio.CancelScope) -> None:
    """The reader has gone."""
    while await link.read():
        pass
    scope.cancel()


def _refusal(error: Refused) -> Response:
    words = str(error)
    about = {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": words}}
    return JSONResponse(about, error.status)
