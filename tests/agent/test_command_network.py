"""Commands reach the network through a proxy that asks about each new host (`tools.sandbox.network`)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from acp_agent.client.permissions import allow_always, reject_always, reject_once
from acp_agent.loop.shell.command_network import CommandNetwork
from acp_agent.safety.access import NetworkAccess
from tests.agent.kit import Answer, Call, Rig, asks, audit, bash, rig
from tests.executors.sandbox.kit import needs_sandbox

BOUND = 60.0
NEAR = '[tools.web]\nprivate_hosts = ["registry.test"]\nhttp_hosts = ["registry.test"]\n'
"""Names lead to this machine in these tests; this one the user has allowed to."""


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that were looked up. All lead to this machine, except for one in a cloud."""
    needs_sandbox()
    found: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        found.append(host)
        return [{"metadata.test": "169.254.169.254"}.get(host, "127.0.0.1")]

    monkeypatch.setattr(CommandNetwork, "resolve", staticmethod(resolve))
    return found


@asynccontextmanager
async def web_server() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Answers each request with `hello`. Its port, and what it got."""
    got: list[bytes] = []

    async def serve(client: SocketStream) -> None:
        async with client:
            got.append(await client.receive())
            await client.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(SocketAttribute.local_port), got
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def session(tmp_path: Path, *commands: str | Call, **more: Any) -> AsyncIterator[Rig]:
    """One prompt makes one call."""
    calls = [call if isinstance(call, Call) else bash(call) for call in commands]
    script = [answer for call in calls for answer in (asks(call), Answer(text="done"))]
    more = {"sandbox": True, "mode": "auto", "config": NEAR, **more}
    async with rig(tmp_path, script, **more) as made:
        yield made


async def ran(made: Rig) -> str:
    """The result of the next call, as the model gets it."""
    with anyio.fail_after(BOUND):
        await made.editor.prompt("go")
    return str(made.messages(len(made.model.requests))[-1]["content"])


def events(made: Rig, event: str) -> list[dict[str, Any]]:
    return [line for line in audit(made.project.parent) if line["event"] == event]


async def test_a_host_is_asked_about_while_the_command_waits(tmp_path: Path, names: list[str]) -> None:
    async with web_server() as (port, got):
        command = f"curl -sS -d secret http://registry.test:{port}/x"
        async with session(tmp_path, command) as made:
            text = await ran(made)
        assert "hello" in text and f"[Connected to registry.test:{port} (" in text
        asked = made.editor.permission_requests[-1]
        (call,) = [call for call in made.editor.tool_calls().values() if call.kind == "execute"]
        shown = "".join(str(item) for item in asked.tool_call.content or ())
        title = str(asked.tool_call.title)
        assert title == f"Connect to registry.test:{port} (for `{command}`)"
        assert "registry.test" not in shown and call.id not in title + shown, shown
        meta: Any = asked.tool_call.meta
        assert meta["connect"]["toolCallId"] == call.id != asked.tool_call.tool_call_id
        assert [option.kind for option in asked.options] == [
            "allow_once", "allow_always", "reject_once", "reject_always",
        ]  # fmt: skip
        assert got[0].startswith(b"POST /x HTTP/1.1\r\n") and names == ["registry.test"]
        (line,) = events(made, "network")
        assert line["host"] == f"registry.test:{port}" and line["call_id"] == call.id
        assert line["sent"] == len(got[0]) and line["received"] > len("hello")
        assert [line["decision"] for line in events(made, "decision") if line["tool"] == "connect"] == [
            "allowed_by_person"
        ]


async def test_a_refused_host_is_neither_reached_nor_looked_up(tmp_path: Path, names: list[str]) -> None:
    async with web_server() as (port, got):
        command = f"curl -sS http://registry.test:{port}; curl -sS http://registry.test:{port}"
        async with session(tmp_path, command, permissions=[reject_once]) as made:
            text = await ran(made)
            assert len(made.editor.permission_requests) == 1, "the command is asked about a host once"
    assert "acp-coder: no connection to registry.test" in text and "Not connected to registry.test" in text
    assert not got and not names


async def test_an_answer_for_always_holds_for_the_next_command_and_for_fetch(tmp_path: Path) -> None:
    async with web_server() as (port, _):
        url = f"http://registry.test:{port}/"
        commands = [f"curl -sS {url}", f"curl -sS {url}"]
        async with session(tmp_path, *commands, permissions=[allow_always]) as made:
            assert "hello" in await ran(made) and "hello" in await ran(made)
            assert len(made.editor.permission_requests) == 1
        async with session(
            tmp_path, f"curl -sS {url}", f"curl -sS http://other.test:{port}", permissions=[reject_always]
        ) as made:
            assert "hello" in await ran(made), "also in the next session"
            assert "no connection to other.test" in await ran(made)
        async with session(tmp_path, f"curl -sS http://other.test:{port}") as made:
            assert "no connection to other.test" in await ran(made)
            assert not made.editor.permission_requests


@pytest.mark.parametrize(
    ("network", "reached"), [('"deny"', []), ('["*.test"]', ["registry.test"]), ('["a.b"]', []), ('"allow"', None)]
)
async def test_the_configuration_answers_without_a_question(tmp_path: Path, network: str, reached, names) -> None:
    async with web_server() as (port, _):
        host = "127.0.0.1" if reached is None else "registry.test"
        config = f"{NEAR}[tools.sandbox]\nnetwork = {network}\n"
        async with session(tmp_path, f"curl -sS http://{host}:{port}", config=config) as made:
            text = await ran(made)
            assert not made.editor.permission_requests
    assert ("hello" in text) is (reached != [])
    assert names == (reached or [])


async def test_a_clouds_credentials_are_never_asked_about(tmp_path: Path) -> None:
    commands = ("curl -sS http://metadata.test/", "curl -sS http://169.254.169.254/")
    async with session(tmp_path, *commands) as made:
        assert "a machine's own credentials" in await ran(made) and "a machine's own credentials" in await ran(made)
        assert len(made.editor.permission_requests) == 1, "an address is refused before anyone is asked"


@pytest.mark.parametrize(
    ("host", "name"), [("a.b:80", "a.b"), ("a.b", "a.b"), ("[::1]:8", "::1"), ("[::1]", "::1"), ("::1", "::1")]
)
def test_the_name_of_a_host_is_what_is_before_its_port(host: str, name: str) -> None:
    assert NetworkAccess(host, "").name == name
