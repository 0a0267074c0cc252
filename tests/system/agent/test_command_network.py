"""Commands reach the network through a proxy that asks about each new host (`tools.sandbox.network`)."""

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from acp_agent.client.permissions import allow_always, allow_once, never_answers, reject_always, reject_once
from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox import probe
from acp_agent.executors.sandbox.base import SANDBOXES
from acp_agent.executors.sandbox.proxy.ways import OwnNetwork
from acp_agent.schema import acp
from tests.agent.kit import Call, bash
from tests.agent.test_command_network import BOUND, NEAR, names, ran, session, web_server
from tests.waits import until

__all__ = ["names"]


async def test_a_command_reaches_only_so_many_hosts_and_each_as_often_as_it_wants(tmp_path: Path) -> None:
    async with web_server() as (port, _):
        line = "; ".join(f"curl -sS http://{name}.test:{port}" for name in ("a", "b", "a", "c", "b"))
        rule = '[tools.permissions]\nconnect = [{ pattern = "*", action = "allow" }]\n'
        async with session(tmp_path, line, config=f"{NEAR}[network]\nmax_hosts_per_command = 2\n{rule}") as made:
            text = await ran(made)
    assert text.count("hello") == 4
    assert "has reached 2 hosts, the most that one may (`network.max_hosts_per_command`)" in text


async def test_an_answer_for_always_covers_no_credential_that_is_put_in_later(tmp_path: Path) -> None:
    async with web_server() as (port, _):
        line = f"curl -sS http://registry.test:{port}/"
        mine = f'[network.credentials.mine]\nhost = "registry.test"\nenv = "WORD"\nports = [{port}]\n'
        scope = f"Always allow connections to registry.test:{port}"
        for config, answer, names in (
            (NEAR, allow_always, [f"{scope} in this project"]),
            (NEAR + mine, allow_always, [f"{scope} with your credential in this project"]),
            (NEAR + mine, reject_always, []), (NEAR, reject_always, []),
        ):  # fmt: skip
            async with session(tmp_path, line, config=config, environ={"WORD": "w"}, permissions=[answer]) as made:
                assert "hello" in await ran(made)
                options = [each.name for asked in made.editor.permission_requests for each in asked.options]
            assert [name for name in options if name.startswith("Always")] == names


async def test_a_rule_for_connections_holds_for_commands_and_web_tools(tmp_path: Path) -> None:
    async with web_server() as (port, got):
        rules = '[[tools.permissions.connect]]\npattern = "registry.test*"\naction = "{}"\n'
        calls = (f"curl -sS http://registry.test:{port}", Call("fetch", {"url": "https://registry.test/"}))
        async with session(tmp_path, *calls, config=NEAR + rules.format("deny")) as made:
            assert "tools.permissions.connect" in await ran(made) and "tools.permissions.connect" in await ran(made)
        async with session(tmp_path, calls[0], config=NEAR + rules.format("allow"), permissions=[reject_once]) as made:
            assert "hello" in await ran(made)
            assert not made.editor.permission_requests
    assert len(got) == 1


async def test_a_public_name_that_leads_to_this_machine_is_asked_about_again(tmp_path: Path) -> None:
    async with web_server() as (port, got):
        command = f"curl -sS http://public.example.com:{port}"
        async with session(tmp_path, command, permissions=[allow_once, reject_once]) as made:
            text = await ran(made)
            first, second = made.editor.permission_requests
            assert "127.0.0.1" not in str(first.tool_call.content) and "127.0.0.1" in str(second.tool_call.content)
        assert "no connection" in text and not got
        async with session(tmp_path, command, permissions=[allow_once, allow_once]) as made:
            assert "hello" in await ran(made), "the control"


async def test_an_unanswered_question_is_withdrawn_and_refuses(tmp_path: Path) -> None:
    config = f"{NEAR}[tools.sandbox]\nhost_timeout = 0.1\n"
    async with session(tmp_path, "curl -sS http://registry.test:1", config=config, permissions=[never_answers]) as made:
        assert "did not answer within 0.1 s" in await ran(made)


async def test_the_time_limit_does_not_run_while_the_user_is_asked(tmp_path: Path) -> None:
    asked = anyio.Event()

    async def late(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        asked.set()
        await anyio.sleep(1.2)
        return await allow_once(request)

    async with web_server() as (port, _):
        call = bash(f"curl -sS http://registry.test:{port}", timeout=0.6)
        async with session(tmp_path, call, permissions=[late]) as made:
            text = await ran(made)
            assert "hello" in text and "It waited 1 s for the user's answer; a time limit of its own went on." in text
    assert asked.is_set()


async def test_after_three_refusals_a_command_asks_no_more(tmp_path: Path) -> None:
    hosts = " ".join(f"http://h{number}.example.com" for number in range(6))
    async with session(tmp_path, f"for url in {hosts}; do curl -sS $url; done", permissions=[reject_once] * 6) as made:
        assert "refused several hosts" in await ran(made)
        assert len(made.editor.permission_requests) == 3


async def test_a_package_registry_is_offered_with_the_others_of_its_kind(tmp_path: Path) -> None:
    async def all_of_them(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        (option,) = [option for option in request.options if "package registries" in option.name]
        return acp.SelectedPermissionOutcome(option_id=option.option_id)

    commands = ("curl -sS https://pypi.org/", "curl -sS https://registry.npmjs.org/", "curl -sS https://x.example.com")
    permissions = [all_of_them, reject_once, reject_once]
    config = '[tools.web]\nprivate_hosts = ["pypi.org", "registry.npmjs.org"]\n'
    async with session(tmp_path, *commands, config=config, permissions=permissions) as made:
        assert "did not allow" not in await ran(made) and "did not allow" not in await ran(made)
        assert len(made.editor.permission_requests) == 1
        assert "Not connected to x.example.com" in await ran(made)
        assert "package registries" not in str(made.editor.permission_requests[-1].options)


SERVE = "python3 -m http.server 8765 --bind 127.0.0.1"


async def test_a_server_of_the_session_is_reached_by_its_commands_and_by_the_user(tmp_path: Path) -> None:
    started = bash(SERVE.replace("8765", str(port := free_port())), background=True)
    fetch = (
        f"for i in $(seq 100); do curl -sS http://localhost:{port}/file 2>/dev/null && break; sleep 0.1; done; "
        f"curl -sS --socks5-hostname ${{SOCKS_PROXY#socks5h://}} http://localhost:{port}/file"
    )
    async with session(tmp_path, started, fetch) as made:
        (made.project / "file").write_text("from the server\n")
        await ran(made)
        assert (await ran(made)).count("from the server") == 2
        with anyio.fail_after(BOUND):
            while True:  # Published soon after it listens.
                try:
                    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                        await stream.send(b"GET /file HTTP/1.0\r\n\r\n")
                        answer = b"".join([chunk async for chunk in stream])
                        break
                except OSError:
                    await anyio.sleep(0.05)
        assert answer.endswith(b"from the server\n")
        assert not made.editor.permission_requests


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port: int = server.getsockname()[1]
        return port


async def test_other_calls_go_on_while_a_host_is_asked_about(tmp_path: Path) -> None:
    going_on = anyio.Event()

    async def when_the_other_is_done(request: acp.RequestPermissionRequest) -> acp.RequestPermissionOutcome:
        await going_on.wait()
        return await allow_once(request)

    async with web_server() as (port, got):
        waits = bash(f"curl -sS http://registry.test:{port}", background=True)
        async with session(tmp_path, waits, "echo meanwhile", permissions=[when_the_other_is_done]) as made:
            await ran(made)
            await until(lambda: made.editor.permission_requests)
            assert "meanwhile" in await ran(made)
            assert not got
            going_on.set()
            await until(lambda: got)


def no_bubblewrap(config: object, other: object = None) -> None:
    raise ExecutorError("not here")


async def test_with_landlock_alone_only_the_proxy_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SANDBOXES, "bubblewrap", f"{__name__}:no_bubblewrap")
    monkeypatch.setattr(probe, "_found", {})
    async with web_server() as (port, got):
        url = f"http://registry.test:{port}"
        near = f"curl -sS http://127.0.0.1:{port}; curl -sS --noproxy '*' http://127.0.0.1:{port}"
        async with session(tmp_path, f"curl -sS {url}", near, permissions=[allow_once, reject_once]) as made:
            assert "hello" in await ran(made)
            text = await ran(made)
            assert len(made.editor.permission_requests) == 2, "this machine's own servers are asked about, too"
    assert "hello" not in text and len(got) == 1


@pytest.mark.parametrize("terminal", [True, False])
async def test_it_is_the_same_in_the_editors_terminal_and_without_one(tmp_path: Path, terminal: bool) -> None:
    async with web_server() as (port, _):
        near = f"curl -sS --noproxy '*' http://127.0.0.1:{port}"
        commands = (
            f"export HTTP_PROXY=x; curl -sS http://registry.test:{port}", near, f"curl -sS http://registry.test:{port}",
        )  # fmt: skip
        async with session(tmp_path, *commands, terminal=terminal) as made:
            await ran(made)
            assert "hello" not in await ran(made)
            assert "hello" in await ran(made), "a command's variables do not keep the next one from its own proxy"


async def test_git_over_ssh_goes_through_the_proxy(tmp_path: Path) -> None:
    async with web_server() as (port, got):
        command = f"git ls-remote ssh://git@registry.test:{port}/x.git"
        async with session(tmp_path, command, command, permissions=[reject_once, allow_once]) as made:
            assert "Not connected to registry.test" in await ran(made) and not got
            await ran(made)
    assert got[0].startswith(b"SSH-2.0-")


async def test_a_redirect_to_another_host_is_another_question(tmp_path: Path) -> None:
    async def redirect(client: SocketStream) -> None:
        async with client:
            await client.receive()
            await client.send(f"HTTP/1.1 302 Found\r\nLocation: http://other.test:{port}/\r\n\r\n".encode())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    first = listener.extra(SocketAttribute.local_port)
    async with web_server() as (port, got), listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, redirect)
        command = f"curl -sSL http://registry.test:{first}/"
        async with session(tmp_path, command, permissions=[allow_once, reject_once]) as made:
            assert "Not connected to other.test" in await ran(made)
        tasks.cancel_scope.cancel()
    assert not got


SPELLINGS = """\
import os, socket
port = int(os.environ["HTTP_PROXY"].rpartition(":")[2])
for name in ("REGISTRY.test", "registry.test.", "registry%2Etest", "\uff52egistry.test"):
    proxy = socket.create_connection(("127.0.0.1", port))
    proxy.sendall(f"CONNECT {name}:443 HTTP/1.1\\r\\n\\r\\n".encode())
    print(proxy.makefile().readline())
    proxy = socket.create_connection(("127.0.0.1", port))
    proxy.sendall(b"\\5\\1\\0\\5\\1\\0\\3" + bytes([len(name.encode())]) + name.encode() + b"\\1\\273")
    print("socks", proxy.recv(2), proxy.recv(2))
"""


async def test_names_in_disguise_are_the_hosts_they_are(tmp_path: Path) -> None:
    rule = '[[tools.permissions.connect]]\npattern = "registry.test*"\naction = "deny"\n'
    async with session(tmp_path, "python3 try.py", config=NEAR + rule) as made:
        (made.project / "try.py").write_text(SPELLINGS)
        text = await ran(made)
        assert not made.editor.permission_requests
    assert text.count("HTTP/1.1 403") == 4 and text.count("socks b'\\x05\\x00' b'\\x05\\x02'") == 4, text


@pytest.mark.parametrize(("url", "named"), [("https://registry.test:8443/x", ":8443"), ("https://registry.test/x", "")])
async def test_a_port_that_is_not_the_schemes_is_named_in_the_question(tmp_path: Path, url: str, named: str) -> None:
    async with session(tmp_path, Call("fetch", {"url": url}), mode="code", permissions=[reject_once]) as made:
        await ran(made)
        (asked,) = made.editor.permission_requests
        assert f"Always allow fetches from registry.test{named}" in [option.name for option in asked.options]


@pytest.mark.parametrize("opened", [True, False])
async def test_a_service_of_this_machine_is_at_localhost_where_the_configuration_opens_it(tmp_path, opened) -> None:
    async with web_server() as (port, _):
        config = f"[tools.sandbox]\nloopback_ports = [{port if opened else ''}]\n"
        async with session(tmp_path, f"curl -sS http://localhost:{port}", config=config) as made:
            text = await ran(made)
            assert not made.editor.permission_requests
    assert ("hello" in text) is opened and ("loopback_ports" in text) is not opened


async def test_a_network_that_was_killed_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_ways: list[OwnNetwork] = []
    start = OwnNetwork.__init__

    def noted(self: OwnNetwork, *arguments: Any) -> None:
        start(self, *arguments)
        made_ways.append(self)

    monkeypatch.setattr(OwnNetwork, "__init__", noted)
    async with web_server() as (port, _):
        command = f"curl -sS http://registry.test:{port}"
        async with session(tmp_path, command, command) as made:
            assert "hello" in await ran(made)
            made_ways[0]._bwrap.kill()
            made_ways[0]._bwrap.wait()
            assert "hello" in await ran(made)
    assert len(made_ways) == 2
