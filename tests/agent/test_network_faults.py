"""What a command may do to the proxy: get more out of an answer than was asked, or end what the session needs."""

import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from anyio.abc import SocketListener, SocketStream

from acp_agent.client.permissions import allow_always, allow_once, reject_once
from acp_agent.errors import ToolError
from acp_agent.executors.sandbox.proxy import published_ports
from acp_agent.executors.sandbox.proxy.ways import MachineLoopback
from acp_agent.limits.shares import Share
from acp_agent.loop.calls import connections
from acp_agent.loop.shell.command_network import CommandNetwork
from acp_agent.proxying import serve
from acp_agent.safety.deciding.hosts import find_host, is_registry, judged
from tests.agent.kit import bash
from tests.tables import table

from .test_command_network import BOUND, events, names, ran, session, web_server

assert names  # The fixture, which holds for these tests, too.


def leads_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    monkeypatch.setattr(CommandNetwork, "resolve", staticmethod(resolve))


# --- more than was asked ------------------------------------------------------------------------------------------


async def test_an_always_for_a_name_covers_no_other_machine_that_it_leads_to(tmp_path: Path, monkeypatch) -> None:
    async with web_server() as (port, _):
        line = f"curl -sS http://public.example.com:{port}"
        leads_to(monkeypatch, "127.0.0.1")
        async with session(tmp_path, line, line, line, permissions=[allow_always] * 2 + [reject_once]) as made:
            assert "hello" in await ran(made)
            first, second = made.editor.permission_requests
            assert "127.0.0.1" not in str(first.options) and "127.0.0.1" in str(second.options)
            assert "hello" in await ran(made), "the control: an always holds"
            assert len(made.editor.permission_requests) == 2
            leads_to(monkeypatch, "127.0.0.2")
            assert "hello" not in await ran(made)
            assert len(made.editor.permission_requests) == 3


async def test_a_cloud_behind_another_address_of_a_name_is_refused(tmp_path: Path, monkeypatch) -> None:
    leads_to(monkeypatch, "127.0.0.1", "169.254.169.254")
    async with session(tmp_path, "curl -sS http://x.example.com:9/", permissions=[allow_once] * 2) as made:
        assert "a machine's own credentials" in await ran(made)
        assert len(made.editor.permission_requests) == 1


INNER = ("::ffff:{}", "::{}", "64:ff9b::{}", "64:ff9b:1::{}", "::ffff:0:{}")
CLOUDS = [
    *(each.format("169.254.169.254") for each in INNER),
    *("2002:a9fe:a9fe::1", "fe80::1%lo", "fd00:ec2::254", "100.100.100.200", "192.0.0.192"),
]


@table("address", CLOUDS)
def test_a_cloud_is_refused_in_every_spelling(address: str) -> None:
    for host, found in ((address, ()), ("x.example.com", (address,))):
        with pytest.raises(ToolError, match="own credentials"):
            judged(find_host(host, 80), found, ())


@table("address", ["::1", "10.0.0.1", *(each.format("10.0.0.1") for each in INNER)])
def test_other_addresses_of_this_network_can_be_asked_about(address: str) -> None:
    assert judged(find_host("x.example.com", 80), (address,), ()).at == address


def test_a_registrys_name_that_leads_to_this_machine_is_no_registry() -> None:
    host = find_host("pypi.org", 443)
    assert is_registry(host) and not is_registry(judged(host, ["127.0.0.1"], ()))


END = "\r\n"
HEADS = ("Host: a.test\nX: y\r\n", "Host : a.test\r\n", "X: y\r\n Host: a.test\r\n", "X: y\rHost: a.test\r\n")


async def test_a_request_whose_headers_can_be_read_in_two_ways_is_refused(tmp_path: Path) -> None:
    script = (
        "import os, socket, sys\n"
        f"for head in {('Host: a.test' + END, *HEADS)!r}:\n"
        "    s = socket.create_connection(('127.0.0.1', int(os.environ['HTTP_PROXY'].rpartition(':')[2])))\n"
        "    s.sendall(f'GET http://registry.test:{sys.argv[1]}/ HTTP/1.1\\r\\n{head}\\r\\n'.encode())\n"
        "    print(s.recv(12))\n"
    )
    async with web_server() as (port, got), session(tmp_path, f"python3 try.py {port}") as made:
        (made.project / "try.py").write_text(script)
        text = await ran(made)
    assert text.count("HTTP/1.1 400") == len(HEADS) and text.count("HTTP/1.1 200") == 1, text
    assert len(got) == 1 and b"a.test" not in got[0]


# --- the session goes on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("proxy", ["http://user:pass/word@proxy", "http://[bad"])
async def test_a_proxy_of_the_user_that_is_no_url_is_said(tmp_path: Path, proxy: str) -> None:
    line = "curl -sS https://x.example.com/"
    async with session(tmp_path, line, line, environ={"HTTPS_PROXY": proxy}, permissions=[allow_once] * 2) as made:
        for _ in range(2):  # Once more: the first did not end what serves connections.
            text = await ran(made)
            assert "Only plain HTTP proxies" in text and "word" not in text


@contextmanager
def few_descriptors() -> Iterator[None]:
    """None is left, but those that are closed meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with closing(socket.socket()) as next_one:
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_one.fileno(), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("protected", [True, False])
async def test_a_lack_of_descriptors_does_not_end_what_serves_connections(protected: bool) -> None:
    async def echo(client: SocketStream) -> None:
        async with client:
            await client.send(await client.receive())

    async def run(listener: SocketListener) -> None:
        await (serve(listener, echo, Share("", "", "", 9)) if protected else listener.serve(echo))

    made = socket.create_server(("127.0.0.1", 0))
    with closing(socket.socket()) as client, anyio.fail_after(BOUND):
        client.setblocking(False)
        try:
            async with await SocketListener.from_socket(made) as listener, anyio.create_task_group() as tasks:
                tasks.start_soon(run, listener)
                await anyio.wait_all_tasks_blocked()
                with few_descriptors():
                    client.connect_ex(made.getsockname())
                    await anyio.wait_writable(client)
                    client.send(b"x")
                    for _ in range(5):
                        await anyio.wait_all_tasks_blocked()
                await anyio.wait_readable(client)
                assert client.recv(1) == b"x" and protected
                tasks.cancel_scope.cancel()
        except ExceptionGroup as error:
            assert not protected and error.subgroup(lambda each: "Too many open files" in str(each))


async def test_connections_beyond_the_most_wait_to_be_accepted() -> None:
    here: list[SocketStream] = []
    most = anyio.Event()

    async def hold(client: SocketStream) -> None:
        here.append(client)
        async with client:
            if len(here) >= 3:
                most.set()
            await client.receive()
            here.remove(client)

    with socket.create_server(("127.0.0.1", 0)) as made, ExitStack() as stack, anyio.fail_after(BOUND):
        clients = [stack.enter_context(socket.create_connection(made.getsockname())) for _ in range(9)]
        async with await SocketListener.from_socket(made) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(serve, listener, hold, Share("", "", "", 3))
            await most.wait()
            await anyio.wait_all_tasks_blocked()
            assert len(here) == 3
            for client in clients:
                client.send(b"x")
            while here:  # All get their turn.
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


async def test_only_so_many_ports_of_a_command_are_published(tmp_path: Path) -> None:
    script = (
        "import select, socket\n"
        "kept = [socket.create_server(('127.0.0.1', 0)) for _ in range(9)]\n"
        "open('ports', 'w').write(' '.join(str(s.getsockname()[1]) for s in kept) + '\\n')\n"
        "while True:\n"
        "    for server in select.select(kept, [], [])[0]:\n"
        "        with server.accept()[0] as client:\n"
        "            client.sendall(b'inside')\n"
    )
    started = bash("python3 listen.py", background=True)
    async with session(tmp_path, started, config="[network]\nmax_published_ports = 3\n") as made:
        (made.project / "listen.py").write_text(script)
        await ran(made)
        with anyio.fail_after(BOUND):
            while not (file := made.project / "ports").exists() or not (text := file.read_text()).endswith("\n"):
                await anyio.sleep(0.05)
            while len(reached := [port for port in map(int, text.split()) if await reaches_inside(port)]) < 3:
                await anyio.sleep(0.05)
        assert len(reached) == 3


async def reaches_inside(port: int) -> bool:
    """Whether the command's own server answers here; another program on this machine may have the same port."""
    try:
        async with await anyio.connect_tcp("127.0.0.1", port) as client:
            with anyio.move_on_after(1):
                return await client.receive() == b"inside"
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        pass
    return False


async def test_connecting_to_servers_that_do_not_answer_takes_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_ports, "CONNECT_SECONDS", BOUND)
    monkeypatch.setattr(MachineLoopback, "reach", lambda self, address: socket.socket())
    with ExitStack() as stack, anyio.fail_after(BOUND):
        place = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0)).getsockname()
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(place)
        async with anyio.create_task_group() as tasks:
            for _ in range(int(anyio.to_thread.current_default_thread_limiter().total_tokens) + 5):
                tasks.start_soon(published_ports.connect_inside, MachineLoopback(), *place)
            await anyio.lowlevel.checkpoint()
            assert await anyio.to_thread.run_sync(lambda: "free") == "free"
            tasks.cancel_scope.cancel()


async def test_a_command_that_tries_many_hosts_does_not_fill_the_audit_log(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MOST_HOSTS", 5)
    line = "for n in $(seq 9); do curl -sS http://h$n.example.com; curl -sS http://h$n.example.com; done"
    async with session(tmp_path, line, config='[tools.sandbox]\nnetwork = ["a.b"]\n') as made:
        assert "was refused 5 hosts" in await ran(made)
        assert len([each for each in events(made, "decision") if each["tool"] == "connect"]) == 5
