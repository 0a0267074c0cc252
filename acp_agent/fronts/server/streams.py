"""ACP's streamable HTTP form: requests by POST, everything else by server-sent events.

An `HttpConnection` is the transport of a `Connection`: what is posted is read from it, what is written goes to the
stream it belongs to, one for the connection and one for each session, and waits there until somebody reads it
(`../shared/acp`: the draft "Streamable HTTP & WebSocket Transport").
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import msgspec

from acp_agent.errors import ConnectionClosed
from acp_agent.limits.decoding import read_json

CONNECTION, SESSION = "acp-connection-id", "acp-session-id"
"""Headers."""
MOST_ID = 1024
"""Characters of an id in a header."""
MOST_STREAMS = 1024
"""Of one connection."""
MOST_WAITING = 64 * 1024 * 1024
"""Bytes that wait for readers; a connection that has so many stops."""
KEEP_ALIVE = 15.0
"""Seconds of silence after which a stream is sent a comment, which keeps proxies from cutting it."""
COMMENT = b":\n\n"
OF_SESSIONS = frozenset(
    f"session/{name}"
    for name in (
        "prompt", "cancel", "close", "delete", "fork", "load", "resume", "set_config_option", "set_mode", "set_model",
    )
)  # fmt: skip


class Refused(Exception):
    """What was asked is not done; the connection goes on. `status`: of HTTP."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class _Params(msgspec.Struct):
    sessionId: str | None = None


class _Head(msgspec.Struct):
    """Of a message of ours, what decides its way."""

    id: int | str | None = None
    method: str | None = None
    params: _Params | None = None


_heads = msgspec.json.Decoder(_Head)


def message_of(body: bytes) -> dict[str, Any]:
    """The message that was posted. Raises Refused."""
    try:
        found = read_json(body)
    except msgspec.DecodeError as error:
        raise Refused(400, f"the body is not JSON: {error}") from error
    if isinstance(found, list):
        raise Refused(501, "batches are not part of ACP")
    if not isinstance(found, dict):
        raise Refused(400, "the body is one JSON-RPC message, an object")
    return found


def begins(message: Mapping[str, Any]) -> bool:
    """Whether it makes a connection. Raises Refused."""
    if message.get("method") != "initialize":
        return False
    if type(message.get("id")) not in (int, str):
        raise Refused(400, "`initialize` is a request, with an id")
    return True


def header_id(headers: Mapping[str, str], name: str) -> str:
    """Raises Refused."""
    found = headers.get(name, "")
    if len(found) > MOST_ID:
        raise Refused(400, f"`{name}` is longer than {MOST_ID} characters")
    return found


class _Stream:
    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.more = asyncio.Event()
        self.free = asyncio.Event()
        """Unless somebody reads it now."""
        self.free.set()


class HttpConnection:
    """`stalled`: seconds after which a connection is given up of which nothing is read though it is full."""

    def __init__(self, connection_id: str, owner: str, *, stalled: float) -> None:
        self.id = connection_id
        self.owner = owner
        """The name of the token that made it."""
        self.code = 0
        self.deleted = False
        """Whether the client has ended it."""
        self.used = time.monotonic()
        """When the client last did something."""
        self._stalled = stalled
        self._posted: asyncio.Queue[bytes] = asyncio.Queue()
        self._ours: dict[tuple[type, Any], str] = {}
        """Requests of the client that are open -> the session on whose stream they are answered."""
        self._theirs: dict[int | str, str] = {}
        """Requests of ours -> the session on whose stream they went out."""
        self._first: asyncio.Future[bytes] | None = None
        self._streams: dict[str, _Stream] = {"": _Stream()}
        self._size = 0
        self._room = asyncio.Event()
        self._room.set()
        self._ended = asyncio.Event()

    # --- what is posted ---------------------------------------------------------------------------------------

    async def begin(self, body: bytes, timeout: float) -> bytes:
        """Posts `initialize`; returns its answer. Raises TimeoutError."""
        self._first = asyncio.get_running_loop().create_future()
        self._posted.put_nowait(_line(body))
        async with asyncio.timeout(timeout):
            return await self._first

    def post(self, message: Mapping[str, Any], body: bytes, session: str) -> None:
        """`session`: of the header. Raises Refused."""
        params, method = message.get("params"), message.get("method")
        named = params.get("sessionId") if isinstance(params, dict) else None
        named = named if isinstance(named, str) else None
        if isinstance(method, str):
            if not method.startswith("$/"):
                if not session and (named is not None or method in OF_SESSIONS):
                    raise Refused(400, f"`{method}` needs the header `{SESSION}`")
                if session and named is not None and session != named:
                    raise Refused(400, f"`{SESSION}` and `params.sessionId` differ")
            if "id" in message:
                way = "" if method in ("session/load", "session/new") else session
                self._ours[type(message["id"]), message["id"]] = way
        else:
            answered = message.get("id")
            went_to = self._theirs.get(answered, "") if isinstance(answered, int | str) else ""
            if went_to != session and went_to:
                raise Refused(400, f"the request was asked on another stream than that of `{SESSION}`")
            if isinstance(answered, int | str):
                self._theirs.pop(answered, None)
        self.used = time.monotonic()
        self._posted.put_nowait(_line(body))

    def delete(self) -> None:
        """The client ends it."""
        self.deleted = True
        self.lose()

    def lose(self) -> None:
        """The client has gone."""
        self._posted.put_nowait(b"")

    # --- what is read -----------------------------------------------------------------------------------------

    def open(self, session: str) -> AsyncGenerator[bytes, None]:
        """The events of a stream, from now on. Raises Refused."""
        stream = self._stream(session)
        if not stream.free.is_set():
            raise Refused(409, "the stream is being read already")
        stream.free.clear()
        self.used = time.monotonic()
        return self._events(stream)

    async def free(self, session: str, seconds: float) -> None:
        """Waits as long for a stream that is being read. Raises Refused."""
        with anyio.move_on_after(seconds):
            await self._stream(session).free.wait()

    async def _events(self, stream: _Stream) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                while stream.waiting:
                    event = stream.waiting.popleft()
                    self._size -= len(event)
                    if self._size < MOST_WAITING // 2:
                        self._room.set()
                    yield event
                if self._ended.is_set():
                    return
                stream.more.clear()
                try:
                    async with asyncio.timeout(KEEP_ALIVE):
                        await stream.more.wait()
                except TimeoutError:
                    yield COMMENT
        finally:
            stream.free.set()
            self.used = time.monotonic()

    @property
    def in_use(self) -> bool:
        """Whether the client reads the connection's own stream."""
        return not self._streams[""].free.is_set()

    def _stream(self, session: str) -> _Stream:
        if (stream := self._streams.get(session)) is None:
            if len(self._streams) > MOST_STREAMS:
                raise Refused(503, f"there are {MOST_STREAMS} streams already")
            stream = self._streams[session] = _Stream()
        return stream

    # --- the transport of a connection ------------------------------------------------------------------------

    async def read(self) -> bytes:
        return b"" if self._ended.is_set() else await self._posted.get()

    async def write(self, data: bytes) -> None:
        """`data`: whole lines."""
        for line in data.splitlines():
            if not self._room.is_set():
                try:
                    async with asyncio.timeout(self._stalled):
                        await self._room.wait()
                except TimeoutError as error:
                    raise ConnectionClosed(f"the client has read nothing for {self._stalled:g} s") from error
            self._send(line)

    def _send(self, line: bytes) -> None:
        head = _heads.decode(line)
        if head.method is not None:
            session = (head.params.sessionId if head.params is not None else None) or ""
            if head.id is not None:
                self._theirs[head.id] = session
        elif self._first is not None and not self._first.done():
            self._first.set_result(line)
            return
        else:
            session = self._ours.pop((type(head.id), head.id), "")
        try:
            stream = self._stream(session)
        except Refused as error:
            raise ConnectionClosed(str(error)) from error
        event = b"data: %b\n\n" % line
        self._size += len(event)
        if self._size >= MOST_WAITING:
            self._room.clear()
        stream.waiting.append(event)
        stream.more.set()

    def close(self) -> None:
        """Ends the streams once what waits has been read."""
        self._ended.set()
        self._posted.put_nowait(b"")
        for stream in self._streams.values():
            stream.more.set()
        if self._first is not None and not self._first.done():
            self._first.cancel()


def _line(body: bytes) -> bytes:
    return body.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
