"""Measures the proxy for commands: bytes a second through it, and milliseconds it adds to a connection."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Thread

import anyio
import anyio.from_thread
from anyio.abc import ByteStream, SocketAttribute

from acp_agent.proxying import Traffic, Wanted, answer, connect

SIZE = 200_000_000
CONNECTIONS = 200
PIECE = bytes(1_000_000)


def _serve(listener: socket.socket) -> None:
    """Sends `SIZE` bytes to who asks for it, else one byte."""

    def one(client: socket.socket) -> None:
        with client, suppress(OSError):
            wants_all = client.recv(1) == b"a"
            for _ in range(SIZE // len(PIECE)) if wants_all else ():
                client.sendall(PIECE)
            client.sendall(b"x")

    with suppress(OSError):
        while True:
            Thread(target=one, args=(listener.accept()[0],), daemon=True).start()


async def _open(wanted: Wanted) -> tuple[ByteStream, Traffic]:
    return await connect((wanted.host,), wanted.port), Traffic()


@contextmanager
def _proxy() -> Iterator[tuple[int, int]]:
    """The ports of a server and of a proxy."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        Thread(target=_serve, args=(listener,), daemon=True).start()
        with anyio.from_thread.start_blocking_portal() as portal:
            proxy = portal.call(partial(anyio.create_tcp_listener, local_host="127.0.0.1"))
            serving = portal.start_task_soon(proxy.serve, lambda client: answer(client, _open))
            yield listener.getsockname()[1], proxy.extra(SocketAttribute.local_port)
            serving.cancel()


def _take(port: int, through: int | None, word: bytes) -> int:
    """The number of bytes that came."""
    count = 0
    with socket.create_connection(("127.0.0.1", through or port)) as client:
        if through is not None:
            client.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % port)
            client.recv(4096)
        client.sendall(word)
        while data := client.recv(1_000_000):
            count += len(data)
    return count


def proxy_cost() -> tuple[float, float]:
    """Megabytes a second, and the median of added milliseconds of a connection."""
    with _proxy() as (server, proxy):
        started = time.perf_counter()
        taken = _take(server, proxy, b"a")
        speed = taken / (time.perf_counter() - started) / 1e6
        added = []
        for _ in range(CONNECTIONS):
            begun = time.perf_counter()
            _take(server, None, b"o")
            direct = time.perf_counter()
            _take(server, proxy, b"o")
            added.append((time.perf_counter() - direct - (direct - begun)) * 1000)
    return speed, statistics.median(added)
