"""What leaves the proxy for a host with a credential, byte by byte, and when such a connection ends."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, TaskStatus, UNIXSocketStream
from anyio.streams.tls import TLSStream

from acp_agent.executors.sandbox.proxy import injection
from acp_agent.executors.sandbox.proxy.injection import Authority, Header, inject
from acp_agent.proxying import ENDED, Traffic, Wanted, answer
from tests.tables import table

HOST = "git.test"
HEADERS = (Header("Authorization", "Bearer word", ("/team/", "/me")), Header("X-Key", "key"))
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
BOUND = 60.0


async def pair() -> tuple[UNIXSocketStream, UNIXSocketStream]:
    here, there = socket.socketpair()
    here.setblocking(False)
    there.setblocking(False)
    return await UNIXSocketStream.from_socket(here), await UNIXSocketStream.from_socket(there)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The host's and, since it is trusted by this process, too, the proxy's."""
    made = Authority(tmp_path, tmp_path / "trusted.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    return made


@asynccontextmanager
async def injected(authority: Authority) -> AsyncIterator[tuple[UNIXSocketStream, UNIXSocketStream, anyio.Event]]:
    """The command's end, the host's end, and what is set once the proxy has left both."""
    (command, inner), (outer, host) = await pair(), await pair()
    over = anyio.Event()

    async def run(*, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await inject(inner, outer, HOST, 443, HEADERS, authority)
        over.set()

    async with command, host, anyio.create_task_group() as tasks:
        await tasks.start(run)
        with anyio.fail_after(BOUND):
            yield command, host, over
        tasks.cancel_scope.cancel()


async def hands_shaken(command: UNIXSocketStream, host: UNIXSocketStream, authority: Authority) -> list[ByteStream]:
    """Both ends inside of their TLS."""
    ends: list[ByteStream] = []

    async def serve() -> None:
        context = authority.context(HOST)
        ends.append(await TLSStream.wrap(host, server_side=True, ssl_context=context, standard_compatible=False))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        context = ssl.create_default_context()
        client = await TLSStream.wrap(command, hostname=HOST, ssl_context=context, standard_compatible=False)
    return [client, ends[0]]


async def passed_on(authority: Authority, request: bytes) -> tuple[bytes, bytes]:
    """What the host gets of a request, and what is answered."""
    async with injected(authority) as (command, host, _):
        client, server = await hands_shaken(command, host, authority)
        await client.send(request)
        got = said = b""
        with suppress(*ENDED):
            while not got.endswith(b"\r\n\r\n") or (b"chunked" in got and not got.endswith(b"0\r\n\r\n")):
                got += await server.receive()
            await server.send(ANSWER)
        with suppress(*ENDED):
            said = await client.receive()
        return got.lower(), said


BODY = b"Host: git.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
REFUSED = {
    "two framings": b"POST /team/a HTTP/1.1\r\n" + BODY,
    "two framings of the older version": b"POST /team/a HTTP/1.0\r\n" + BODY,
    "another path in a header": b"GET /team/a HTTP/1.1\r\nHost: git.test\r\nX-Original-URL: /other\r\n\r\n",
    "another host in a header": b"GET /team/a HTTP/1.1\r\nHost: git.test\r\nX_Forwarded_Host: other.test\r\n\r\n",
    "a copy to another path": b"COPY /team/a HTTP/1.1\r\nHost: git.test\r\nDestination: https://git.test/other\r\n\r\n",
    "a zero in the path": b"GET /team/a%00b HTTP/1.1\r\nHost: git.test\r\n\r\n",
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_request_that_can_be_read_in_two_ways_does_not_leave(authority: Authority, what: str) -> None:
    got, said = await passed_on(authority, REFUSED[what])
    assert got == b"" and b"passes on none like this" in said


async def test_trailers_and_the_hosts_name_are_not_the_commands(authority: Authority) -> None:
    chunked = b"POST /team HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-More: 9\r\n\r\n"
    got, said = await passed_on(authority, chunked)
    assert got.endswith(b"\r\n\r\n0\r\n\r\n") and said.startswith(b"HTTP/1.1 200")
    assert b"evil" not in got and b"x-more" not in got


@table("path", ["/team", "/team/x?y=/../z", "/me/repo.git/info/refs", "/me?x"])
def test_the_credential_goes_to_the_paths_that_are_configured(path: str) -> None:
    assert HEADERS[0].is_for(path.encode())


ELSEWHERE = (
    *("/", "/teams", "/other", "/team/../other", "/team/%2e%2e/other", "/team%2Fx/../../other", "/team/./x"),
    *("/team//x", "/team/..;/x", "/team/..\\x", "/team/%252e%252e/x", "*", "/%74eam/x", "/team/x%5c..", "/team/.."),
    *("/team/%c0%ae./x", "/team/%u002e./x"),
)


@table("path", ELSEWHERE)
def test_the_credential_goes_to_no_other_path_however_it_is_written(path: str) -> None:
    assert not HEADERS[0].is_for(path.encode()) and HEADERS[1].is_for(path.encode())


async def test_another_path_gets_only_what_is_for_all(authority: Authority) -> None:
    own = b"Authorization: mine\r\nX_Key: mine\r\nConnection: X-Key"
    got, _ = await passed_on(authority, b"GET /other HTTP/1.1\r\nHost: git.test\r\n" + own + b"\r\n\r\n")
    assert (
        b"bearer word" not in got
        and b"x_key" not in got
        and b"connection" not in got
        and b"authorization: mine" in got
        and b"x-key: key" in got
    )


async def test_a_plain_request_with_a_zero_in_its_path_does_not_leave_either() -> None:
    async def opened(wanted: Wanted) -> tuple[ByteStream, Traffic]:
        raise AssertionError(wanted)

    command, inner = await pair()
    async with command, anyio.create_task_group() as tasks:
        tasks.start_soon(answer, inner, opened)
        await command.send(b"GET http://git.test/a\0b HTTP/1.1\r\nHost: git.test\r\n\r\n")
        assert (await command.receive()).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("says", [b"", b"\x16"], ids=["nothing", "half a handshake"])
async def test_who_hangs_in_the_handshake_is_left(authority: Authority, monkeypatch: pytest.MonkeyPatch, says: bytes):
    monkeypatch.setattr(injection, "HEAD_TIMEOUT", 0.1)
    async with injected(authority) as (command, _, over):
        if says:
            await command.send(says)
        await over.wait()


async def test_a_connection_ends_with_its_client_or_when_the_host_hangs(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
):
    async with injected(authority) as (command, host, over):
        client, server = await hands_shaken(command, host, authority)
        await client.send(b"GET /team HTTP/1.1\r\nHost: git.test\r\n\r\n")
        assert await server.receive()
        await command.aclose()
        await over.wait()
    monkeypatch.setattr(injection, "HEAD_TIMEOUT", 3.0)  # It bounds the handshake, too, which takes its time.
    async with injected(authority) as (command, _, over):
        context = ssl.create_default_context()
        await TLSStream.wrap(command, hostname=HOST, ssl_context=context, standard_compatible=False)
        await over.wait()
