"""Bad networks and bad clients: a proxy that cuts, delays and repeats, thousands of half-open connections, noise."""

import json
import logging
import os
import random
import resource
import socket
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
import pytest
from websockets import WebSocketException

from acp_agent.errors import ConnectionClosed, PeerError
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer
from tests.agent.kit import environ_for
from tests.forked import COMMAND
from tests.fronts.server.test_house import AUTO, log_of, places
from tests.fronts.server.test_server import BOUND, INITIALIZE, Place, served
from tests.websockets_client import connected

HALF_OPEN = 10_000
SPARE_FILES = 500
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = (
    "GET /acp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nUpgrade: websocket\r\n"
    f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
)
CHUNKS = [f"{number} " for number in range(300)]


class Network:
    """What is between a client and the server, by chance."""

    def __init__(self, port: int, seed: int, *, repeats: bool = False) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self._repeats = repeats

    @asynccontextmanager
    async def url(self) -> AsyncIterator[str]:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as door, anyio.create_task_group() as tasks:
            tasks.start_soon(door.serve, self._passed)
            yield f"ws://127.0.0.1:{door.extra(anyio.abc.SocketAttribute.local_port)}/acp"
            tasks.cancel_scope.cancel()

    async def _passed(self, client: anyio.abc.SocketStream) -> None:
        left = self._chance.randrange(2000, 20_000)  # Bytes until it is cut.
        async with client:
            with suppress(ExceptionGroup):  # One end has gone before the other.
                await self._both_ways(client, await anyio.connect_tcp("127.0.0.1", self._port), left)

    async def _both_ways(self, client: anyio.abc.SocketStream, server: anyio.abc.SocketStream, left: int) -> None:
        async with server, anyio.create_task_group() as tasks:
            tasks.start_soon(self._one_way, client, server, left, tasks.cancel_scope)
            tasks.start_soon(self._one_way, server, client, left, tasks.cancel_scope)

    async def _one_way(self, source: Any, to: Any, left: int, ends: anyio.CancelScope) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            while left > 0:
                data = await source.receive(self._chance.randrange(1, 1500))
                if self._chance.random() < 0.2:
                    await anyio.sleep(self._chance.random() * 0.02)
                await to.send(data[:left])
                if self._repeats and self._chance.random() < 0.05:
                    await to.send(data)
                left -= len(data)
        ends.cancel()


@asynccontextmanager
async def prompted(place: Place) -> AsyncIterator[tuple[FakeEditor, str]]:
    """A client whose prompt is being answered, and its session."""
    async with connected(place.url, place.token) as transport, FakeEditor(transport) as first:
        await first.start()
        session = (await first.new_session(place.project)).session_id
        begun = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.request, "session/prompt", begun)
            yield first, session


async def tried(url: str, place: Place, session: str, seen: list[int], words: str) -> FakeEditor | None:
    """A client that comes back, as long as its link holds."""
    with suppress(OSError, ConnectionClosed, PeerError, TimeoutError, EOFError, AssertionError, WebSocketException):
        async with connected(url, place.token) as transport:
            made = FakeEditor(transport, check=False)
            with suppress(ConnectionClosed, PeerError, TimeoutError):
                async with made:
                    await made.start()
                    params = {"sessionId": session, "cwd": str(place.project)}
                    await made.request("session/resume", {**params, "_meta": {"after": seen[-1] if seen else 0}})
                    with anyio.move_on_after(2):
                        while not ends(made, session, words):
                            await anyio.sleep(0.01)
            return made
    return None


def ends(made: FakeEditor, session: str, words: str) -> bool:
    return made.text(session_id=session).endswith(words) or made.client.connection.closed


@pytest.mark.parametrize("seed", range(2))
async def test_behind_a_network_that_cuts_and_delays_nothing_is_lost_or_repeated(tmp_path: Path, seed: int) -> None:
    async with served(tmp_path, [Answer(text=tuple(CHUNKS), delay=0.002)], config=AUTO) as place:
        async with prompted(place) as (_, session), Network(int(place.http.rpartition(":")[2]), seed).url() as url:
            seen: list[int] = []
            text = ""
            while not text.endswith(CHUNKS[-1]):
                if (made := await tried(url, place, session, seen, CHUNKS[-1])) is not None:
                    seen, text = [*seen, *places(made, session)], text + made.text(session_id=session)
        assert text == "".join(CHUNKS)
        assert seen == sorted(set(seen)) and seen == [row["seq"] for row in await log_of(place, session)]


@pytest.mark.parametrize("seed", range(2))
async def test_bytes_sent_twice_end_only_their_connection(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture):
    async with served(tmp_path, [Answer(text=tuple(CHUNKS), delay=0.001)] * 5, config=AUTO) as place:
        network = Network(int(place.http.rpartition(":")[2]), seed, repeats=True)
        async with prompted(place) as (first, session), network.url() as url:
            for _ in range(10):
                await tried(url, place, session, [], CHUNKS[-1])
        assert first.text() == "".join(CHUNKS) and not first.violations
    assert not errors(caplog)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log has of failures of our own."""
    bad = [record for record in caplog.records if record.levelname == "ERROR" or record.exc_info]
    texts = [logging.Formatter().format(record) for record in bad]
    return [text for text in texts if "tests/" not in text]  # The client is in this process, too.


@pytest.fixture
def many_files() -> Any:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = HALF_OPEN + SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"a process may open only {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ten_thousand_half_open_connections_keep_nobody_out_for_long(tmp_path: Path, many_files: None) -> None:
    """Those that are there go on meanwhile."""
    (config := tmp_path / "config.toml").write_text("[server]\ninitialize_timeout = 2.0\nmax_connections = 200\n")
    environ = environ_for(tmp_path, "http://127.0.0.1:9", ACP_CODER_CONFIG=str(config))
    with subprocess.Popen([COMMAND, "serve", "--port", "0"], env=environ, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        token = run.stdout.readline().split()[-1]
        port = int(run.stdout.readline().rpartition(":")[2].partition("/")[0])
        before = _memory(run.pid)
        headers = {"Authorization": f"Bearer {token}"}
        with ExitStack() as stack, httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=headers) as web:
            assert web.get("/sessions").status_code == 200
            for number in range(HALF_OPEN):
                half = stack.enter_context(socket.socket())
                half.setblocking(False)
                half.connect_ex(("127.0.0.1", port))
                if number % 2:
                    with suppress(OSError):
                        half.send(b"GET /acp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
                if number % 500 == 0:
                    assert web.get("/sessions").status_code == 200, "who was connected before is served"
            answers = 0
            for _ in range(1000):
                with suppress(httpx2.TransportError):
                    url = f"http://127.0.0.1:{port}/sessions"
                    answers = httpx2.get(url, headers=headers, timeout=BOUND).status_code
                if answers == 200:
                    break
            assert answers == 200, "there is room again"
            assert _memory(run.pid) - before < 200 * 1024
        run.terminate()
        assert run.wait(BOUND) == 0


def _memory(pid: int) -> int:
    """KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.mark.parametrize(
    "head", [HANDSHAKE.replace("\r\n\r\n", "\r\nContent-Length: 2\r\n\r\n"), "PUT" + HANDSHAKE[3:]]
)
async def test_a_handshake_that_is_none_is_refused_and_its_connection_closed(tmp_path: Path, head: str) -> None:
    async with served(tmp_path) as place:
        stream = await anyio.connect_tcp("127.0.0.1", int(place.http.rpartition(":")[2]))
        async with stream:
            await stream.send(head.format(host="127.0.0.1", token="wrong").encode())
            assert (await stream.receive()).startswith(b"HTTP/1.1 4")
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()


@pytest.mark.parametrize("seed", range(3))
async def test_heads_of_noise_are_refused_and_no_more(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture):
    chance = random.Random(seed)
    async with served(tmp_path, config="[server]\ninitialize_timeout = 0.1\nstalled_timeout = 0.1\n") as place:
        host, port = "127.0.0.1", int(place.http.rpartition(":")[2])
        for _ in range(40):
            head = _noise(chance, _head(chance, host, place.token))
            async with await anyio.connect_tcp(host, port) as stream:
                with suppress(anyio.BrokenResourceError, anyio.EndOfStream, TimeoutError):
                    await stream.send(head)
                    with anyio.fail_after(BOUND):
                        answer = await stream.receive()
                        assert answer.startswith(b"HTTP/1.1 "), answer
                        assert int(answer.split(b" ")[1]) < 500, (head, answer)
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {place.token}"}) as web:
            assert (await web.get(f"{place.http}/sessions")).status_code == 200
    assert not errors(caplog)


def _head(chance: random.Random, host: str, token: str) -> bytes:
    method = chance.choice(("GET", "POST", "DELETE", "PUT", "GET", "OPTIONS"))
    paths = ("/acp", "/acp/ws", "/sessions", "/sessions/../x", "/search?q=%00", "/", "/healthz", "/metrics")
    path, connection = chance.choice(paths), chance.choice(("", "x", "0" * 12 + ".x", "processes.x", "\u00e9"))
    rows = [
        ("Host", host), ("Authorization", f"Bearer {token}"), ("Upgrade", "websocket"), ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", KEY), ("Content-Type", "application/json"),
        ("Acp-Connection-Id", connection), ("Content-Length", "2"),
    ]  # fmt: skip
    some = chance.sample(rows, chance.randrange(2, len(rows) + 1))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in some), "", ""]
    return "\r\n".join(lines).encode("latin-1") + chance.choice((b"", b"{}", b"\x81\x00"))


def _noise(chance: random.Random, data: bytes) -> bytes:
    """The same with some bytes changed, removed, repeated or put in."""
    noisy = bytearray(data)
    for _ in range(chance.randrange(3)):
        at = chance.randrange(len(noisy))
        match chance.randrange(4):
            case 0:
                noisy[at] = chance.randrange(256)
            case 1:
                del noisy[at : at + chance.randrange(1, 20)]
            case 2:
                noisy[at:at] = noisy[at : at + 40] * chance.choice((1, 3, 500))
            case _:
                noisy[at:at] = bytes(chance.choices(b"\0\r\n :;,%\xff\x80a", k=chance.randrange(1, 30)))
    return bytes(noisy)


@pytest.mark.parametrize("seed", range(3))
async def test_frames_of_noise_end_only_their_connection(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture):
    chance = random.Random(seed)
    async with served(tmp_path) as place:
        host, port = "127.0.0.1", int(place.http.rpartition(":")[2])
        for _ in range(40):
            async with await anyio.connect_tcp(host, port) as stream:
                await stream.send(HANDSHAKE.format(host=host, token=place.token).encode())
                assert b"101" in await stream.receive()
                await stream.send(_frame(chance, json.dumps(INITIALIZE).encode(), 0x81))
                with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                    for _ in range(chance.randrange(1, 6)):
                        await stream.send(_noise(chance, _frame(chance, _body(chance, place), _kind(chance))))
                    await stream.send(_frame(chance, b"", 0x88))
                    with anyio.move_on_after(0.2):
                        while True:
                            await stream.receive()
        async with connected(place.url, place.token) as transport, FakeEditor(transport) as made:
            await made.start()
            assert (await made.client.list_sessions()).sessions is not None
    assert not errors(caplog)


def _kind(chance: random.Random) -> int:
    """The first byte of a frame."""
    return chance.choice((0x81, 0x81, 0x81, 0x01, 0x80, 0x82, 0x89, 0x8A, 0xC1, 0x83, 0x8B, 0x88))


def _frame(chance: random.Random, body: bytes, kind: int) -> bytes:
    mask = os.urandom(4) if chance.random() < 0.5 else b"\0\0\0\0"
    size = len(body)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return bytes([kind]) + length + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(body))


def _body(chance: random.Random, place: Place) -> bytes:
    method = chance.choice(("session/new", "session/load", "session/list", "session/prompt", "$/cancel_request", "x"))
    params: Any = chance.choice(
        ({}, None, [], "x", {"cwd": str(place.project), "mcpServers": []}, {"sessionId": 7}, {"sessionId": "\ud800"})
    )
    message = {"jsonrpc": "2.0", "id": chance.choice((1, "1", None, 1.5, [])), "method": method, "params": params}
    return _noise(chance, json.dumps(message).encode())
