"""What `acp-coder serve` adds to the agent on stdio, and what one process carries.

Clients are plain sockets in this process, and look for no more than they need; the model under load is a process of its
own (`bench_server.py model`). A delta is the time at which the model wrote it: processes share the monotonic clock.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import bench_store

from acp_agent.store.stores import postgres_store, schema_of, sqlite_store

Figure = tuple[str, str, list[float], str]
Environment = Callable[..., dict[str, str]]
"""Of a home folder and the address of a model."""
CLIENTS, DELTAS, PER_SECOND = 100, 500, 50
IDLE, A_CONNECTION = 1000, 10
"""Sessions; and how many of them a connection has."""
CONFIG = "[server]\nmax_sessions = 2000\nmax_connections_per_token = 1000\n"
STATE = ".local/state/acp-coder"
STAMP = re.compile(rb"\d{12,}(?= )")
TEXT, PING, PONG = 0x81, 0x89, 0x8A
PATIENCE = 120.0
SETTLED = 5.0
"""Seconds for what a new session does by itself."""


class Server:
    """`acp-coder serve` in a home of its own, and its first token."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        home = Path(environ["HOME"])
        config = home / "serve.toml"
        config.write_text(CONFIG)
        self.project = home / "project"
        self.project.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [*command, "serve", "--port", "0"],
            env={**environ, "ACP_CODER_CONFIG": str(config)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.token = self._process.stdout.readline().rpartition(" ")[2].strip()
        self.port = int(re.findall(r":(\d+)/acp", self._process.stdout.readline())[0])

    def memory(self) -> float:
        """MiB of the process and its children: what is its own, and its part of what is shared."""
        return sum(_proportional(pid) for pid in _family(self._process.pid)) / 1024

    def cpu(self) -> float:
        """Seconds."""
        return time.clock_gettime(~self._process.pid << 3 | 2)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _family(pid: int) -> Iterator[int]:
    yield pid
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in file.read_text().split():
            yield from _family(int(child))


def _proportional(pid: int) -> int:
    return int(Path(f"/proc/{pid}/smaps_rollup").read_text().partition("\nPss:")[2].split()[0])


class Client:
    """One WebSocket."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.late: list[float] = []
        """Of each delta, in ms."""
        self.answers: dict[int, Any] = {}
        self._server = server
        self._ids = 0
        self._read = b""
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET /acp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
        head += f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}"
        self.socket.sendall(f"{head}\r\n\r\n".encode())
        while b"\r\n\r\n" not in self._read:
            if not (data := self.socket.recv(1 << 16)):
                raise RuntimeError(self._read.decode())
            self._read += data
        answered, _, self._read = self._read.partition(b"\r\n\r\n")
        if b" 101 " not in answered.partition(b"\r\n")[0]:
            raise RuntimeError(answered.decode())
        self.until(self.send("initialize", {"protocolVersion": 1, "clientCapabilities": {}}))

    def send(self, method: str, params: dict[str, Any]) -> int:
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        self._frame(TEXT, json.dumps(message).encode())
        return self._ids

    def _frame(self, head: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        self.socket.sendall(bytes((head,)) + length + bytes(4) + payload)  # The mask is zero.

    def new_session(self) -> int:
        return self.send("session/new", {"cwd": str(self._server.project), "mcpServers": []})

    def ask(self, session: str) -> int:
        return self.send("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "Say hello."}]})

    def receive(self) -> None:
        """Reads what is there."""
        data = self.socket.recv(1 << 20)
        now = time.monotonic_ns()
        if not data:
            raise RuntimeError("the server has closed the connection")
        data, at = self._read + data, 0
        while len(data) >= at + 4:
            size, begins = data[at + 1], at + 2
            if size > 125:
                begins += 2 if size == 126 else 8
                size = int.from_bytes(data[at + 2 : begins], "big")
            if len(data) < begins + size:
                break
            self._take(data[at], data[begins : begins + size], now)
            at = begins + size
        self._read = data[at:]

    def _take(self, head: int, payload: bytes, now: int) -> None:
        if head == PING:
            self._frame(PONG, payload)
        elif b'"agent_message_chunk"' in payload:
            self.late += [(now - int(stamp)) / 1e6 for stamp in STAMP.findall(payload)]
        elif head == TEXT and b'"method"' not in payload:
            message = json.loads(payload)
            self.answers[message["id"]] = message["result"]

    def until(self, request: int) -> Any:
        while request not in self.answers:
            self.receive()
        return self.answers.pop(request)

    def close(self) -> None:
        self.socket.close()


@contextmanager
def clients(server: Server, number: int) -> Iterator[list[Client]]:
    made: list[Client] = []
    try:
        for _ in range(number):
            made.append(Client(server))
        yield made
    finally:
        for client in made:
            client.close()


def delays(home: Path, command: Sequence[str], environment: Environment, address: str) -> list[float]:
    """Of each delta of the second answer; the first one is for warming up."""
    with _served(home, command, environment, address) as server, closing(Client(server)) as client:
        session = client.until(client.new_session())["sessionId"]
        client.until(client.ask(session))
        client.late.clear()
        client.until(client.ask(session))
        return client.late


def measure(home: Path, command: Sequence[str], environment: Environment) -> Iterator[Figure]:
    with model() as address:
        for figures in (_under_load, _idle):
            with _served(home, command, environment, address) as server:
                yield from figures(server)
        yield from _lists(home, command, environment, address)


@contextmanager
def _served(
    home: Path, command: Sequence[str], environment: Environment, address: str, **more: str
) -> Iterator[Server]:
    """In a home of its own, or in the one that `HOME` names."""
    own = Path(more.pop("HOME", "") or tempfile.mkdtemp(dir=home))
    with closing(Server(command, environment(own, address, OPENAI_API_KEY="x", **more))) as server:
        yield server


def _under_load(server: Server) -> Iterator[Figure]:
    empty = server.memory()
    with clients(server, CLIENTS) as all_:
        sessions = [client.until(client.new_session())["sessionId"] for client in all_]
        for client, session in zip(all_, sessions, strict=True):
            client.until(client.ask(session))
            client.late.clear()
        begun, used = time.monotonic(), server.cpu()
        with selectors.DefaultSelector() as selector:
            waiting = {client: client.ask(session) for client, session in zip(all_, sessions, strict=True)}
            for client in all_:
                selector.register(client.socket, selectors.EVENT_READ, client)
            while waiting:
                for key, _ in selector.select(PATIENCE):
                    key.data.receive()
                    if waiting.get(key.data) in key.data.answers:
                        del waiting[key.data]
        took = time.monotonic() - begun
        late = [each for client in all_ for each in client.late]
        memory, used = server.memory(), server.cpu() - used
    if len(late) != CLIENTS * DELTAS:
        raise RuntimeError(f"{len(late)} deltas")
    what = f"{CLIENTS} sessions, {PER_SECOND} deltas a second each"
    yield f"{what}: p99 of the delay", "100 ms", [statistics.quantiles(late, n=100)[-1]], "ms"
    yield f"{what}: median delay", "", late, "ms"
    yield f"{what}: CPU", "", [used / took * 100], "%"
    yield f"{what}: memory", f"{100 + 4 * CLIENTS} MiB", [memory], "MiB"
    yield f"{what}: memory without any", "", [empty], "MiB"


def _idle(server: Server) -> Iterator[Figure]:
    with clients(server, IDLE // A_CONNECTION) as all_:
        begun = time.monotonic()
        for client in all_:
            for request in [client.new_session() for _ in range(A_CONNECTION)]:
                client.until(request)
        took = (time.monotonic() - begun) / IDLE * 1000
        time.sleep(SETTLED)
        yield f"{IDLE} idle sessions: memory", "300 MiB", [server.memory()], "MiB"
        yield f"{IDLE} idle sessions: one made", "", [took], "ms"


def _lists(home: Path, command: Sequence[str], environment: Environment, address: str) -> Iterator[Figure]:
    """Of an owner with many sessions."""
    own = Path(tempfile.mkdtemp(dir=home))
    with closing(sqlite_store(own / STATE / "owners/first/sessions.db")) as store:
        last = bench_store.filled(store)
    with _served(home, command, environment, address, HOME=str(own)) as server:
        yield from _pages("SQLite", server, last)
    with bench_store.server() as found:
        with closing(postgres_store(found.url(), schema_of("acp_coder", "first"))) as store:
            last = bench_store.filled(store)
        with _served(home, command, environment, address, ACP_CODER_STORE_URL=found.url()) as server:
            yield from _pages("PostgreSQL", server, last)


def _pages(where: str, server: Server, session: str) -> Iterator[Figure]:
    with closing(Client(server)) as client:
        client.until(client.new_session())
        listed = bench_store.timed(lambda: client.until(client.send("session/list", {})))
    yield f"server, {where}: session/list of 100,000", "20 ms", listed, "ms"
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)) as http:

        def get(path: str) -> None:
            http.request("GET", path, headers={"Authorization": f"Bearer {server.token}"})
            answer = http.getresponse()
            if not answer.read() or answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status}")

        listed = bench_store.timed(lambda: get("/sessions"))
        yield f"server, {where}: GET /sessions of 100,000", "20 ms", listed, "ms"
        pages = bench_store.timed(lambda: get(f"/sessions/{session}/messages"))
        yield f"server, {where}: GET 200 of 2,000 messages", "20 ms", pages, "ms"


# --- the model ---------------------------------------------------------------------------------------------------


class _Answering(asyncio.Protocol):
    """The first answer of a connection is short, the next ones are `DELTAS` deltas at a steady pace."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.read = b""

    def data_received(self, data: bytes) -> None:
        self.read += data
        head, blank, body = self.read.partition(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if not blank or len(body) < (int(size[1]) if size else 0):
            return
        self.read = b""
        if head.startswith(b"GET"):
            models = b'{"object":"list","data":[{"id":"fake-model","object":"model"}]}'
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(models)
            self.transport.write(head + models)
            return
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        warming = body.count(b'"role":"user"') == 1
        self.left = 1 if warming else DELTAS
        self.due = asyncio.get_running_loop().time()
        self._next()

    def _next(self) -> None:
        chunk = b'data: {"choices":[{"index":0,"delta":{"content":"%d "}}]}\n\n' % time.monotonic_ns()
        self.left -= 1
        if self.left:
            self.due += 1 / PER_SECOND
            asyncio.get_running_loop().call_at(self.due, self._next)
            self.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            return
        chunk += b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        self.transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(chunk), chunk))


async def _model() -> None:
    serving = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}/v1\n")
    sys.stdout.flush()
    await serving.serve_forever()


@contextmanager
def model() -> Iterator[str]:
    """Its address."""
    process = subprocess.Popen([sys.executable, __file__, "model"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    asyncio.run(_model())
