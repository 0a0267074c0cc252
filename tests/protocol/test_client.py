"""`Client`: the agent's requests to its editor, gated on capabilities and with timeouts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.errors import CapabilityMissing, ConnectionClosed, PeerError
from acp_agent.protocol.client import Client
from acp_agent.schema import acp
from acp_agent.schema.decode import MalformedResult
from tests.protocol.kit import Table, Wire, served

EVERYTHING = acp.ClientCapabilities(
    fs=acp.FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True,
    session=acp.ClientSessionCapabilities(compaction=acp.CompactionCapabilities(), notices=acp.NoticeCapabilities()),
    meta={"terminal_output": True},
)  # fmt: skip

Call = Callable[[Client], Any]


async def answered(client: Client, wire: Wire, call: Call, answer: dict[str, Any]) -> tuple[Any, list[Any]]:
    """What was asked on the wire, and what the call gave after this answer."""
    got: list[Any] = []

    async def run() -> None:
        try:
            got.append(await call(client))
        except Exception as error:  # noqa: BLE001  it is what the call gave
            got.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        asked = await wire.receive()
        await wire.send({"jsonrpc": "2.0", "id": asked["id"], **answer})
    return asked, got


CALLS: list[tuple[str, Call, dict[str, Any], Any, object]] = [
    ("fs/read_text_file", lambda c: c.read_text_file(Path("/f")), {"path": "/f"}, {"content": "x"}, "x"),
    (
        "fs/read_text_file", lambda c: c.read_text_file(Path("/f"), line=2, limit=3),
        {"path": "/f", "line": 2, "limit": 3}, {"content": ""}, "",
    ),
    ("fs/write_text_file", lambda c: c.write_text_file(Path("/f"), "x"), {"path": "/f", "content": "x"}, {}, None),
    ("fs/write_text_file", lambda c: c.write_text_file(Path("/f"), ""), {"path": "/f", "content": ""}, None, None),
    (
        "terminal/create",
        lambda c: c.create_terminal("sh", ["x"], cwd=Path("/w"), env={"A": "b"}, output_byte_limit=9),
        {
            "command": "sh", "args": ["x"], "cwd": "/w", "env": [{"name": "A", "value": "b"}], "outputByteLimit": 9,
        },
        {"terminalId": "t"}, "t",
    ),
    ("terminal/kill", lambda c: c.kill_terminal("t"), {"terminalId": "t"}, None, None),
    ("terminal/release", lambda c: c.release_terminal("t"), {"terminalId": "t"}, {}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "call", "params", "result", "value"), CALLS, ids=[f"{row[0]}-{n}" for n, row in enumerate(CALLS)]
)
async def test_each_call_is_for_its_session_and_read(
    method: str, call: Call, params: dict[str, Any], result: Any, value: object
) -> None:
    async with served(Table()) as (connection, wire):
        asked, got = await answered(Client(connection, "s", EVERYTHING), wire, call, {"result": result})
    assert (asked["method"], asked["params"]) == (method, {"sessionId": "s", **params}) and got == [value]


@pytest.mark.parametrize("call", [
    lambda c: c.read_text_file(Path("/f")), lambda c: c.write_text_file(Path("/f"), "x"),
    lambda c: c.create_terminal("sh", [], cwd=Path("/"), env={}, output_byte_limit=1),
])  # fmt: skip
async def test_what_was_not_offered_is_never_asked(call: Call) -> None:
    """[FS-1] [TERM-1]"""
    async with served(Table()) as (connection, wire):
        client = Client(connection, "s", acp.ClientCapabilities())
        with pytest.raises(CapabilityMissing):
            await call(client)
        connection.notify("end", {})
        assert (await wire.receive())["method"] == "end"


def test_capabilities_are_read_from_what_was_offered() -> None:
    def offers(capabilities: acp.ClientCapabilities) -> list[bool]:
        client = Client(None, "s", capabilities)  # type: ignore[arg-type]
        names = ("reads_files", "writes_files", "terminals", "terminal_output", "compaction", "notices")
        return [getattr(client.plan, name) for name in names]

    odd = acp.ClientCapabilities(meta={"terminal_output": "yes"}, session=acp.ClientSessionCapabilities())
    assert offers(EVERYTHING) == [True] * 6 and offers(acp.ClientCapabilities()) == [False] * 6
    assert offers(odd) == [False] * 6


async def test_client_that_never_answers_is_given_up_and_told() -> None:
    """[RPC-9]"""
    async with served(Table()) as (connection, wire):
        client = Client(connection, "s", EVERYTHING, timeout=0.01)
        with pytest.raises(TimeoutError, match="fs/read_text_file"):
            await client.read_text_file(Path("/f"))
        asked, cancel = await wire.receive(), await wire.receive()
        assert (cancel["method"], cancel["params"]) == ("$/cancel_request", {"requestId": asked["id"]})


@pytest.mark.parametrize(("answer", "error"), [
    ({"error": {"code": -32603, "message": "no"}}, PeerError), ({"error": "no"}, PeerError),
    ({"result": {"content": 5}}, MalformedResult), ({"result": "text"}, MalformedResult),
    ({"result": None}, MalformedResult),
])  # fmt: skip
async def test_wrong_answer_fails_the_one_call(answer: dict[str, Any], error: type[Exception]) -> None:
    """[RPC-9]"""
    async with served(Table()) as (connection, wire):
        client = Client(connection, "s", EVERYTHING)
        _, (got,) = await answered(client, wire, lambda c: c.read_text_file(Path("/f")), answer)
    assert isinstance(got, error)


async def test_question_to_a_person_is_not_bounded_and_can_be_taken_back() -> None:
    """[CAN-4]"""
    async with served(Table()) as (connection, wire):
        client = Client(connection, "s", EVERYTHING, timeout=0.0)
        options = [acp.PermissionOption(option_id="y", name="Yes", kind="allow_once")]
        async with anyio.create_task_group() as group:
            group.start_soon(client.request_permission, acp.ToolCallUpdate(tool_call_id="t"), options)
            asked = await wire.receive()
            group.cancel_scope.cancel()
        assert asked["params"] == {
            "sessionId": "s", "toolCall": {"toolCallId": "t"},
            "options": [{"optionId": "y", "name": "Yes", "kind": "allow_once"}],
        }  # fmt: skip
        assert (await wire.receive())["method"] == "$/cancel_request"


async def test_update_is_a_notification_of_the_session_and_after_the_end_goes_nowhere_and_calls_fail() -> None:
    async with served(Table()) as (connection, wire):
        client = Client(connection, "s", EVERYTHING)
        client.update(acp.AgentMessageChunk(content=acp.TextContent(text="hi")))
        await client.drain()
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hi"}}
        assert await wire.receive() == {
            "jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update},
        }  # fmt: skip
        connection.close()
        assert await wire.receive() is None
        client.update(acp.AgentMessageChunk(content=acp.TextContent(text="late")))
        with pytest.raises(ConnectionClosed):
            await client.read_text_file(Path("/f"))
