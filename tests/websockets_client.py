"""The client's end of a WebSocket, as a `Transport`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import websockets

from acp_agent.errors import ConnectionClosed


class ClientTransport:
    def __init__(self, socket: websockets.ClientConnection) -> None:
        self.socket = socket

    async def read(self) -> bytes:
        try:
            frame = await self.socket.recv()
        except websockets.ConnectionClosed:
            return b""
        assert isinstance(frame, str), "a frame that is no text"
        assert "\n" not in frame
        return frame.encode() + b"\n"

    async def write(self, data: bytes) -> None:
        try:
            for line in data.decode().rstrip("\n").split("\n"):
                await self.socket.send(line)
        except websockets.ConnectionClosed as error:
            raise ConnectionClosed("the server has gone") from error

    def close(self) -> None:
        self.socket.transport.close()


@asynccontextmanager
async def connected(url: str, token: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[ClientTransport]:
    more = {"Authorization": f"Bearer {token}", **(headers or {})}
    async with websockets.connect(url, additional_headers=more, max_size=None, compression=None) as socket:
        yield ClientTransport(socket)
