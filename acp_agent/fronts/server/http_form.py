"""The requests of ACP's HTTP form: POST, GET and DELETE of `/acp`, and the life of the connections they make."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from acp_agent.config.place_settings import ServerConfig
from acp_agent.fronts.server.identities import Identity
from acp_agent.fronts.server.streams import CONNECTION, SESSION, HttpConnection, Refused, begins, header_id, message_of

log = logging.getLogger(__name__)

INVALID_REQUEST = -32600
JSON, EVENTS = "application/json", "text/event-stream"
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
        self._connections: dict[str, HttpConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, request: Request) -> Response:
        """Of a client that has got in."""
        identity: Identity = request.scope["identity"]
        try:
            if request.method == "POST":
                return await self._post(request, identity)
            if request.method == "GET":
                return self._get(request, identity)
            self._named(request, identity).delete()
            return Response(status_code=202)
        except Refused as error:
            return _refusal(error)

    async def _post(self, request: Request, identity: Identity) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise Refused(415, f"`Content-Type` must be `{JSON}`")
        body = await self._body(request)
        message = message_of(body)
        if not begins(message):
            connection = self._named(request, identity)
            connection.post(message, body, header_id(request.headers, SESSION))
            return Response(status_code=202)
        if CONNECTION in request.headers:
            raise Refused(400, "`initialize` makes a new connection and takes no connection id")
        if words := self._room(identity):
            raise Refused(503, words)
        return await self._begun(identity, body)

    async def _begun(self, identity: Identity, body: bytes) -> Response:
        connection = HttpConnection(str(uuid.uuid4()), identity.name, stalled=self._config.stalled_timeout)
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

    def _get(self, request: Request, identity: Identity) -> Response:
        accepted = request.headers.get("accept", "")
        if EVENTS not in accepted and "*/*" not in accepted:
            raise Refused(406, f"`Accept` must contain `{EVENTS}`")
        connection = self._named(request, identity)
        session = header_id(request.headers, SESSION)
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no", CONNECTION: connection.id}
        if session:
            headers[SESSION] = session
        return StreamingResponse(connection.open(session), 200, headers, EVENTS)

    def _named(self, request: Request, identity: Identity) -> HttpConnection:
        """The connection that a request is about; those of other tokens do not exist."""
        if not (wanted := header_id(request.headers, CONNECTION)):
            raise Refused(400, f"the header `{CONNECTION}` is missing")
        found = self._connections.get(wanted)
        if found is None or found.owner != identity.name or found.deleted:
            raise Refused(404, "there is no such connection; begin with `initialize`")
        return found

    async def _body(self, request: Request) -> bytes:
        length = request.headers.get("content-length", "")
        if length.isdigit() and len(length) < 20 and int(length) > self._most:
            raise Refused(413, f"the body is longer than {self._most} bytes")
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > self._most:
                    raise Refused(413, f"the body is longer than {self._most} bytes")
        except ClientDisconnect as error:
            raise Refused(400, "the body is not complete") from error
        return bytes(body)


def _refusal(error: Refused) -> Response:
    words = str(error)
    about = {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": words}}
    return JSONResponse(about, error.status)
