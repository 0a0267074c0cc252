"""A credential that the proxy puts into requests to a host: commands use it and never have it."""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import h11
import pytest
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener

from acp_agent.executors.sandbox.proxy.injection import Authority
from acp_agent.loop.shell.command_network import CommandNetwork
from tests.agent.kit import Answer, asks, bash, rig, rounds
from tests.agent.test_command_network import web_server
from tests.executors.sandbox.kit import needs_sandbox

BOUND = 60.0
HOST = "git.test"
SECRET = "tok-Zx81Qm52Lv"
BASIC = "Basic eC1hY2Nlc3M6dG9rLVp4ODFRbTUyTHY="


@asynccontextmanager
async def secure_server(folder: Path) -> AsyncIterator[tuple[int, list[tuple[str, dict[str, str], bytes]]]]:
    """An HTTPS server, with a certificate that this process trusts, that keeps its connections. Its port, and what it
    got: targets, headers, bodies."""
    got: list[tuple[str, dict[str, str], bytes]] = []
    folder.mkdir()
    authority = Authority(folder, folder / "trusted.pem")

    async def serve(client: ByteStream) -> None:
        async with client:
            connection = h11.Connection(h11.SERVER)
            while True:
                head, body = None, b""
                while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                    if event is h11.NEED_DATA:
                        try:
                            connection.receive_data(await client.receive())
                        except (anyio.EndOfStream, anyio.BrokenResourceError):
                            return
                    elif isinstance(event, h11.Request):
                        head = event
                    elif isinstance(event, h11.Data):
                        body += bytes(event.data)
                    else:
                        return
                assert head is not None
                headers = {name.decode(): value.decode() for name, value in head.headers}
                got.append((head.target.decode(), headers, body))
                said = f"you are {'known' if 'authorization' in headers else 'nobody'}\n".encode()
                answer = h11.Response(status_code=200, headers=[("Transfer-Encoding", "chunked")])
                for part in (answer, h11.Data(data=said), h11.EndOfMessage()):
                    await client.send(connection.send(part) or b"")
                connection.start_next_cycle()

    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    listener = TLSListener(plain, authority.context(HOST), standard_compatible=False)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield plain.extra(SocketAttribute.local_port), got
        tasks.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_sandbox()

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(CommandNetwork, "resolve", staticmethod(resolve))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server/trusted.pem"))


CONFIG = f"""
[tools.web]
private_hosts = ["{HOST}", "other.test"]
[tools.sandbox]
network = ["*.test"]
"""
CREDENTIAL = f'[network.credentials.mine]\nhost = "{HOST}"\nenv = "GIT_HOST_WORD"\nuser = "x-access"\n'


def at(port: int) -> str:
    return f"{CONFIG}{CREDENTIAL}ports = [443, {port}]\n"


async def outputs(tmp_path: Path, config: str, *commands: str, **environ: str) -> list[str]:
    script = [a for line in commands for a in (asks(bash(line)), Answer(text="ok"))]
    found = []
    async with rig(tmp_path, script, sandbox=True, mode="auto", config=config, environ=environ) as made:
        for _ in commands:
            with anyio.fail_after(BOUND):
                await made.editor.prompt("go")
            found.append(str(made.messages(len(made.model.requests))[-1]["content"]))
    return found


async def test_requests_to_the_host_get_it_and_the_command_never_does(tmp_path: Path) -> None:
    async with secure_server(tmp_path / "server") as (port, got):
        # Two requests on one connection: the second gets it as well.
        command = (
            f"curl -sS -H 'Authorization: mine' https://{HOST}:{port}/one https://{HOST}:{port}/two; "
            f"head -c 300000 /dev/zero | curl -sS --data-binary @- https://{HOST}:{port}/three; "
            "env; cat /proc/*/environ | tr '\\0' '\\n'"
        )
        (text,) = await outputs(tmp_path, at(port), command, GIT_HOST_WORD=SECRET)
    assert text.count("you are known") == 3
    assert [target for target, _, _ in got] == ["/one", "/two", "/three"] and len(got[2][2]) == 300_000
    assert {headers["authorization"] for _, headers, _ in got} == {BASIC}
    assert SECRET not in text and "GIT_HOST_WORD" not in text and BASIC not in text


async def test_another_host_or_a_request_without_tls_does_not_get_it(tmp_path: Path) -> None:
    async with secure_server(tmp_path / "server") as (port, got):
        (text,) = await outputs(
            tmp_path, at(port), f"curl -sSk https://other.test:{port}/; curl -sS http://{HOST}:{port}/ | head -c 100",
            GIT_HOST_WORD=SECRET,
        )  # fmt: skip
    assert "you are nobody" in text
    assert all("authorization" not in headers for _, headers, _ in got)
    async with secure_server(tmp_path / "another") as (port, got):
        line = f"curl -sSk https://{HOST}:{port}/"
        (text,) = await outputs(tmp_path, CONFIG + CREDENTIAL, line, GIT_HOST_WORD=SECRET)
    assert "you are nobody" in text and "authorization" not in got[0][1]


async def test_other_servers_behind_the_same_address_and_echoes_do_not_get_it(tmp_path: Path) -> None:
    """By `Host`, a whole URL, or a method whose answer is the request."""
    lines = (
        "curl -sSk -H 'Host: evil.test' https://{}/host", "curl -sSk --request-target http://evil.test/ https://{}/url",
        "curl -sSk -X TRACE https://{}/trace",
    )  # fmt: skip
    async with secure_server(tmp_path / "server") as (port, got):
        both = [f"{name}:{port}" for name in (HOST, "other.test")]
        commands = ["; ".join(line.format(place) for line in lines) for place in both]
        text, control = await outputs(tmp_path, at(port), *commands, GIT_HOST_WORD=SECRET)
    assert text.count("passes on none like this") == 2 and control.count("you are nobody") == 3
    assert [(target, headers.get("host"), "authorization" in headers) for target, headers, _ in got] == [
        ("/host", both[0], True), ("/host", "evil.test", False), ("http://evil.test/", both[1], False),
        ("/trace", both[1], False),
    ]  # fmt: skip


HOLD = """
import os, socket, ssl, sys, time
kept = []
for _ in range(5):
    s = socket.create_connection(("127.0.0.1", int(os.environ["HTTPS_PROXY"].rpartition(":")[2])))
    s.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
    assert b" 200 " in s.recv(1000)
    s = ssl.create_default_context().wrap_socket(s, server_hostname=sys.argv[1].partition(":")[0])
    s.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    kept.append(s)
time.sleep(0.5)
"""


async def test_connections_end_with_their_command_though_the_host_does_not_answer(tmp_path: Path) -> None:
    there, most = 0, 0

    async def silent(client: ByteStream) -> None:
        nonlocal there, most
        there, most = there + 1, max(most, there + 1)
        try:
            while True:
                await client.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            there -= 1
            await anyio.aclose_forcefully(client)

    (tmp_path / "server").mkdir()
    authority = Authority(tmp_path / "server", tmp_path / "server/trusted.pem")
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = plain.extra(SocketAttribute.local_port)
    listener = TLSListener(plain, authority.context(HOST), standard_compatible=False)
    script = rounds(bash(f"python3 hold.py {HOST}:{port}"))
    environ = {"GIT_HOST_WORD": SECRET}
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, silent)
        async with rig(tmp_path, script, sandbox=True, mode="auto", config=at(port), environ=environ) as made:
            (made.project / "hold.py").write_text(HOLD)
            with anyio.fail_after(BOUND):
                await made.editor.prompt("go")
                while there:
                    await anyio.sleep(0.05)
        assert most == 5
        tasks.cancel_scope.cancel()


async def test_what_is_not_tls_reaches_the_host_as_it_is(tmp_path: Path) -> None:
    async with web_server() as (port, got):
        command = f"timeout 5 git ls-remote ssh://git@{HOST}:{port}/x.git"
        await outputs(tmp_path, at(port), command, GIT_HOST_WORD=SECRET)
    assert got[0].startswith(b"SSH-2.0-") and SECRET.encode() not in got[0]


async def test_a_missing_credential_is_said_and_a_wrong_certificate_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with secure_server(tmp_path / "server") as (port, got):
        (text,) = await outputs(tmp_path, at(port), f"curl -sS https://{HOST}:{port}/ -v 2>&1")
    assert "the variable GIT_HOST_WORD is not set" in text and not got
    async with secure_server(tmp_path / "another") as (port, got):
        monkeypatch.delenv("SSL_CERT_FILE")
        (text,) = await outputs(tmp_path, at(port), f"curl -sS https://{HOST}:{port}/", GIT_HOST_WORD=SECRET)
    assert "you are" not in text and not got


def test_the_authoritys_key_is_on_no_disk(tmp_path: Path) -> None:
    authority = Authority(tmp_path, tmp_path / "bundle.pem")
    context = authority.context("a.example.com")
    assert isinstance(context, ssl.SSLContext) and authority.context("a.example.com") is context
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.pem"]
    assert b"PRIVATE" not in (tmp_path / "bundle.pem").read_bytes()
