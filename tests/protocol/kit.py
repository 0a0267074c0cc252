"""Shared by the tests of the wire: two connected connections, and a handler made of plain functions."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from acp_agent.client.tasks import Background
from acp_agent.protocol.codec import coalesce_updates, encode
from acp_agent.protocol.connection import Coalesce, Connection
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.transports import MEMORY_CAPACITY, MemoryTransport, memory_pair

BOUND = 60.0
"""Seconds after which a test that waits has failed."""

Answer = Callable[[Any], Awaitable[Any]]


def gives(value: Any) -> Answer:
    async def answer(params: Any) -> Any:
        return value

    return answer


def fails(error: Exception) -> Answer:
    async def answer(params: Any) -> Any:
        raise error

    return answer


async def echo(params: Any) -> Any:
    return params


async def forever(params: Any) -> Any:
    await anyio.sleep_forever()


class Table:
    """A handler: one function for each method; notifications are kept."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = dict(answers)
        self.notified: list[tuple[str, Any]] = []
        self.on_notification: Callable[[str, Any], None] | None = None
        self.cancels_itself: Callable[[str, Any], bool] = lambda method, params: False

    async def handle_request(self, method: str, params: Any) -> Any:
        return await self.answers[method](params)

    async def handle_notification(self, method: str, params: Any) -> None:
        self.notified.append((method, params))
        if self.on_notification is not None:
            self.on_notification(method, params)

    def cancel_request(self, method: str, params: Any) -> bool:
        return self.cancels_itself(method, params)


class Wire:
    """The other end of a connection under test, as lines of JSON."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.transport = transport
        self._rest = b""
        self._lines: list[Any] = []

    async def send(self, *messages: Any) -> None:
        await self.transport.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def request(self, id_: object, method: str, params: Any = None) -> None:
        await self.send({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})

    async def notify(self, method: str, params: Any = None) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def receive(self) -> Any:
        """The next message; None at the end."""
        with anyio.fail_after(BOUND):
            while not self._lines:
                data = await self.transport.read()
                if not data:
                    assert not self._rest, f"half a line: {self._rest!r}"
                    return None
                *whole, self._rest = (self._rest + data).split(b"\n")
                self._lines += [json.loads(line) for line in whole]
        return self._lines.pop(0)


@asynccontextmanager
async def served(
    handler: Table, *, capacity: int = MEMORY_CAPACITY, coalesce: Coalesce | None = coalesce_updates,
    write_now: Callable[[bytes], int] | None = None,
) -> AsyncIterator[tuple[Connection, Wire]]:  # fmt: skip
    """A connection that serves, and the raw other end of it."""
    ours, theirs = memory_pair(capacity)
    connection = Connection(ours, handler, peer=Peer(encode=encode), coalesce=coalesce, write_now=write_now)
    async with Background() as background:
        background.start(connection.serve)
        try:
            yield connection, Wire(theirs)
        finally:
            theirs.close()
            connection.close()


@asynccontextmanager
async def paired(one: Table, two: Table) -> AsyncIterator[tuple[Connection, Connection]]:
    """Two connections face to face."""
    left, right = memory_pair()
    first = Connection(left, one, peer=Peer(encode=encode))
    second = Connection(right, two, peer=Peer(encode=encode))
    async with Background() as background:
        background.start(first.serve)
        background.start(second.serve)
        try:
            yield first, second
        finally:
            first.close()
            second.close()
