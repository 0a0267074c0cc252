"""A WebSocket as the transport of a `Connection`: one text frame is one message, in both directions.

Nothing is known of the library that has the socket. A frame may be laid out over several lines, which between the words
of JSON mean as much as blanks.
"""

from __future__ import annotations

import asyncio
import re
from typing import Protocol

from acp_agent.errors import ConnectionClosed

STALLED = 60.0
"""Seconds after which a client that takes nothing of what is sent is given up."""

GOING_AWAY, PROTOCOL_ERROR, LIMIT, NORMAL = 1001, 1002, 1008, 1000
"""Close codes (RFC 6455, 7.4.1)."""

LINES = re.compile(r"[\r\n]")
NO_MESSAGE = b"-\n"
"""What stands for an empty frame: it is no JSON either."""


class Socket(Protocol):
    """One end of a WebSocket after the handshake."""

    async def receive(self) -> str | None:
        """The next text frame; `None` once the other end has gone. Others are left out."""
        ...

    async def send(self, text: str) -> None:
        """Returns when there is room for more. Raises OSError when nobody is there any more."""
        ...


class WebSocketTransport:
    """`stalled`: as `STALLED`."""

    def __init__(self, socket: Socket, *, stalled: float = STALLED) -> None:
        self._socket = socket
        self._stalled = stalled
        self._closed = asyncio.Event()
        self.code = NORMAL
        """What to close the socket with."""
        self.deleted = False
        """A WebSocket that is closed is a lost link, whoever closes it."""

    async def read(self) -> bytes:
        if self._closed.is_set():
            return b""
        frame = asyncio.ensure_future(self._socket.receive())
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((frame, closed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
            if not frame.done():
                frame.cancel()
        if not frame.done() or (text := frame.result()) is None:
            return b""
        return LINES.sub(" ", text).encode("utf-8", "surrogatepass") + b"\n" if text.strip() else NO_MESSAGE

    async def write(self, data: bytes) -> None:
        """`data`: whole lines."""
        try:
            for line in data.decode("utf-8").rstrip("\n").split("\n"):
                async with asyncio.timeout(self._stalled):
                    await self._socket.send(line)
        except TimeoutError as error:
            self.code = LIMIT
            raise ConnectionClosed(f"the client has read nothing for {self._stalled:g} s") from error
        except OSError as error:
            raise ConnectionClosed("the client has gone") from error

    def close(self) -> None:
        self._closed.set()
