"""`AcpClient` against a scripted agent: what it requests, what it serves, and how it answers nonsense."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.client import AcpClient, Files, Terminals
from acp_agent.client import permissions as ready
from acp_agent.errors import ConnectionClosed, PeerError, RequestCancelled, ResourceNotFound
from acp_agent.schema import acp
from acp_agent.schema.decode import MalformedResult
from tests.client.kit import ScriptedAgent, gives, scripted_agent

MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]}
OPTION = {"id": "o", "name": "O", "type": "boolean", "currentValue": True}
SERVER = acp.McpServerStdio(name="n", command="c", args=["a"], env=[])


class Pair:
    """A client and a scripted agent, both serving."""

    def __init__(self, **client: Any) -> None:
        self._client = client
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> tuple[AcpClient, ScriptedAgent]:
        agent, transport = await self._stack.enter_async_context(scripted_agent())
        return await self._stack.enter_async_context(AcpClient(transport, **self._client)), agent

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)


W = Path("/w")
SESSION, IN_W = {"sessionId": "s"}, {"cwd": "/w"}
NO_SERVERS: dict[str, Any] = {"mcpServers": []}
SENT_SERVER = {"name": "n", "command": "c", "args": ["a"], "env": []}


def said(*texts: str) -> dict[str, Any]:
    return {**SESSION, "prompt": [{"type": "text", "text": text} for text in texts]}


CALLS: list[tuple[str, Any, dict[str, Any], Any]] = [
    ("authenticate", lambda c: c.authenticate("m"), {"methodId": "m"}, {}), ("logout", lambda c: c.logout(), {}, {}),
    ("session/new", lambda c: c.new_session(W), IN_W | NO_SERVERS, SESSION),
    (
        "session/new", lambda c: c.new_session(W, additional_directories=[Path("/x")], mcp_servers=[SERVER]),
        {**IN_W, "additionalDirectories": ["/x"], "mcpServers": [SENT_SERVER]}, {**SESSION, "modes": MODES},
    ),
    ("session/load", lambda c: c.load_session("s", W), SESSION | IN_W | NO_SERVERS, {"modes": MODES}),
    ("session/resume", lambda c: c.resume_session("s", W), SESSION | IN_W, {}),
    ("session/list", lambda c: c.list_sessions(), {}, {"sessions": []}),
    (
        "session/list", lambda c: c.list_sessions(cwd=W, cursor="next"), {**IN_W, "cursor": "next"},
        {"sessions": [SESSION | IN_W], "nextCursor": "more"},
    ),
    ("session/close", lambda c: c.close_session("s"), SESSION, {}),
    ("session/delete", lambda c: c.delete_session("s"), SESSION, None),
    ("session/prompt", lambda c: c.prompt("s", "hi"), said("hi"), {"stopReason": "end_turn"}),
    (
        "session/prompt", lambda c: c.prompt("s", [acp.TextContent(text=text) for text in "ab"]), said("a", "b"),
        {"stopReason": "cancelled"},
    ),
    ("session/set_mode", lambda c: c.set_session_mode("s", "ask"), {**SESSION, "modeId": "ask"}, {}),
    (
        "session/set_config_option", lambda c: c.set_config_option("s", "o", "v"),
        {**SESSION, "configId": "o", "value": "v"}, {"configOptions": [OPTION]},
    ),
    (
        "session/set_config_option", lambda c: c.set_config_option("s", "o", True),
        {**SESSION, "configId": "o", "type": "boolean", "value": True}, {"configOptions": []},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "call", "params", "result"), CALLS, ids=lambda value: value if isinstance(value, str) else ""
)
async def test_each_method_sends_params_and_reads_results(method: str, call: Any, params: dict[str, Any], result: Any):
    async with Pair() as (client, agent):
        agent.answers[method] = gives(result)
        answer = await call(client)
        assert agent.received == [(method, params)]
        assert type(answer).__name__.endswith("Response")


async def test_initialize_tells_what_is_served_and_nothing_else() -> None:
    """[INIT-1]"""
    info = acp.Implementation(name="c", version="1")
    async with Pair(files=Files(), terminals=Terminals(), info=info) as (client, agent):
        assert (await client.initialize()).protocol_version == 1
        ((_, params),) = agent.received
        assert params == {
            "protocolVersion": 1,
            "clientCapabilities": {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True, "auth": {}},
            "clientInfo": {"name": "c", "version": "1"},
        }
    async with Pair() as (client, _):
        assert client.capabilities == acp.ClientCapabilities()


async def test_cancel_is_a_notification_and_a_cancelled_call_a_cancel_request() -> None:
    async with Pair() as (client, agent):
        client.cancel("s")
        await agent.notified.wait()
        assert agent.received == [("session/cancel", {"sessionId": "s"})]
    ended = anyio.Event()

    async def slow(params: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with Pair() as (client, agent):
        agent.answers["session/prompt"] = slow
        with anyio.move_on_after(0):
            await client.prompt("s", "hi")
        await ended.wait()


async def test_error_answers_have_their_code_and_malformed_results_say_what_is_wrong() -> None:
    async def missing(params: Any) -> Any:
        raise ResourceNotFound("no such session")

    async with Pair() as (client, agent):
        agent.answers["session/load"] = missing
        with pytest.raises(PeerError) as caught:
            await client.load_session("x", Path("/"))
        assert caught.value.code == -32002
    async with Pair() as (client, agent):
        agent.answers["session/prompt"] = gives({"stopReason": "because"})
        with pytest.raises(MalformedResult, match="stopReason"):
            await client.prompt("s", "hi")


async def test_agent_that_goes_away_ends_calls() -> None:
    async with Pair() as (client, agent):

        async def leave(params: Any) -> Any:
            agent.connection.close()
            await anyio.sleep_forever()

        agent.answers["session/prompt"] = leave
        with pytest.raises((ConnectionClosed, PeerError)) as caught:
            await client.prompt("s", "hi")
        assert isinstance(caught.value, ConnectionClosed) or caught.value.code == RequestCancelled.code  # type: ignore[attr-defined]
        with pytest.raises(ConnectionClosed):
            await client.prompt("s", "again")


async def test_the_block_ends_with_an_error_inside_or_a_cancel() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Pair(terminals=Terminals()):
            raise ZeroDivisionError
    with anyio.CancelScope() as scope:
        async with Pair(terminals=Terminals()) as (client, _):
            scope.cancel()
            await client.initialize()
    assert scope.cancelled_caught


async def test_updates_arrive_in_order_and_before_the_answer() -> None:
    got: list[str] = []

    def on_update(session: str, update: acp.SessionUpdate) -> None:
        assert isinstance(update, acp.AgentMessageChunk) and isinstance(update.content, acp.TextContent)
        got.append(f"{session}:{update.content.text}")

    async with Pair(on_update=on_update) as (client, agent):

        async def turn(params: Any) -> Any:
            for number in range(100):
                agent.say(str(number))
            return {"stopReason": "end_turn"}

        agent.answers["session/prompt"] = turn
        await client.prompt("s", "hi")
        assert got == [f"s:{number}" for number in range(100)]


async def test_malformed_updates_and_unknown_notifications_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """[EXT-4]"""
    got: list[acp.SessionUpdate] = []
    async with Pair(on_update=lambda _, update: got.append(update)) as (client, agent):

        async def turn(params: Any) -> Any:
            agent.tell({"sessionUpdate": "no_such_update"})
            agent.connection.notify("session/update", [1])
            agent.connection.notify("_vendor/thing", {})
            agent.connection.notify("$/unknown", None)
            agent.say("good")
            return {"stopReason": "end_turn"}

        agent.answers["session/prompt"] = turn
        await client.prompt("s", "hi")
    assert got == [acp.AgentMessageChunk(content=acp.TextContent(text="good"))]
    assert "no_such_update" in caplog.text


@pytest.mark.parametrize(("method", "params", "code"), [
    ("no/such_method", {}, -32601), ("_vendor/method", {}, -32601), ("session/update", {}, -32601),
    ("elicitation/create", {"mode": "form"}, -32601), ("fs/read_text_file", None, -32602),
    ("fs/read_text_file", [], -32602), ("fs/read_text_file", 5, -32602),
    ("fs/read_text_file", {"sessionId": "s"}, -32602), ("fs/read_text_file", {"sessionId": "s", "path": 5}, -32602),
    ("fs/read_text_file", {"sessionId": "s", "path": "/x", "line": -1}, -32602),
    ("fs/read_text_file", {"sessionId": "s", "path": "relative"}, -32602),
    ("fs/write_text_file", {"sessionId": "s", "path": "/x"}, -32602),
    ("fs/write_text_file", {"sessionId": "s", "path": "relative", "content": ""}, -32602),
    ("terminal/create", {"sessionId": "s"}, -32602),
    ("terminal/create", {"sessionId": "s", "command": "x", "args": "y"}, -32602),
    ("terminal/output", {"sessionId": "s", "terminalId": "nope"}, -32002),
    ("session/request_permission", {"sessionId": "s", "options": []}, -32602),
])  # fmt: skip
async def test_wrong_requests_are_answered_by_their_codes(method: str, params: Any, code: int) -> None:
    """[RPC-4] [RPC-5]"""
    async with Pair(files=Files(), terminals=Terminals()) as (_, agent):
        with pytest.raises(PeerError) as caught:
            await agent.connection.request(method, params)
        assert caught.value.code == code and caught.value.message


@pytest.mark.parametrize(("capabilities", "refused"), [
    (acp.ClientCapabilities(), ["fs/read_text_file", "fs/write_text_file", "terminal/create"]),
    (
        acp.ClientCapabilities(fs=acp.FileSystemCapabilities(read_text_file=True)),
        ["fs/write_text_file", "terminal/create"],
    ),
    (acp.ClientCapabilities(terminal=True), ["fs/read_text_file", "fs/write_text_file"]),
])  # fmt: skip
async def test_what_was_not_offered_is_not_served(capabilities: acp.ClientCapabilities, refused: list[str]) -> None:
    async with Pair(files=Files(), terminals=Terminals(), capabilities=capabilities) as (_, agent):
        for method in refused:
            with pytest.raises(PeerError) as caught:
                await agent.ask(method, path="/x", content="", command="true")
            assert caught.value.code == -32601


@pytest.mark.parametrize("opens", ["session/new", "session/load", "session/resume"])
async def test_a_bounded_client_serves_files_in_the_sessions_folders_only(tmp_path: Path, opens: str) -> None:
    """[CFS-9] Links are followed before."""
    inside, more, outside = (tmp_path / name for name in ("inside", "more", "inside-not"))
    for folder in (inside, more, outside):
        folder.mkdir()
        (folder / "file").write_text("here")
    (inside / "out").symlink_to(outside)
    (tmp_path / "in").symlink_to(inside)
    folders: dict[str, Any] = {"additional_directories": [more]}
    async with Pair(files=Files(), bounded=True) as (client, agent):
        agent.answers[opens] = gives({"sessionId": "s"} if opens == "session/new" else {})
        refused = [inside / "file"]
        for _ in range(2):
            for path in refused:
                for method in ("fs/read_text_file", "fs/write_text_file"):
                    with pytest.raises(PeerError) as caught:
                        await agent.ask(method, path=str(path), content="changed")
                    assert caught.value.code == -32602
                    assert str(path) in caught.value.message
            match opens:
                case "session/new":
                    await client.new_session(inside, **folders)
                case "session/load":
                    await client.load_session("s", inside, **folders)
                case _:
                    await client.resume_session("s", inside, **folders)
            refused = [
                outside / "file", inside / ".." / "inside-not" / "file", inside / "out" / "file",
                inside / "out" / "new", inside / "a\0b", tmp_path / "new",
            ]  # fmt: skip
        assert (outside / "file").read_text() == "here" and not (outside / "new").exists()
        for path in (inside / "file", more / "file", tmp_path / "in" / "file", inside / "made" / "new"):
            await agent.ask("fs/write_text_file", path=str(path), content="changed")
            assert (await agent.ask("fs/read_text_file", path=str(path)))["content"] == "changed"


async def test_failure_of_a_service_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    """[RPC-11]"""

    async def broken(request: acp.RequestPermissionRequest) -> Any:
        raise ZeroDivisionError("a reason")

    async with Pair(permissions=broken) as (_, agent):
        with pytest.raises(PeerError) as caught:
            await agent.ask("session/request_permission", toolCall={"toolCallId": "t"}, options=[])
        assert caught.value.code == -32603


OPTIONS = [
    {"optionId": "1", "name": "no", "kind": "reject_once"}, {"optionId": "2", "name": "yes", "kind": "allow_once"},
    {"optionId": "3", "name": "always", "kind": "allow_always"},
    {"optionId": "4", "name": "never", "kind": "reject_always"},
]  # fmt: skip


@pytest.mark.parametrize(("permissions", "outcome"), [
    (ready.reject_once, {"outcome": "selected", "optionId": "1"}),
    (ready.allow_once, {"outcome": "selected", "optionId": "2"}),
    (ready.allow_always, {"outcome": "selected", "optionId": "3"}),
    (ready.reject_always, {"outcome": "selected", "optionId": "4"}), (ready.cancelled, {"outcome": "cancelled"}),
])  # fmt: skip
async def test_permission_is_answered_by_kind(permissions: Any, outcome: dict[str, Any]) -> None:
    async with Pair(permissions=permissions) as (_, agent):
        answer = await agent.ask("session/request_permission", toolCall={"toolCallId": "t"}, options=OPTIONS)
        assert answer == {"outcome": outcome}


async def test_permission_without_a_fitting_option_or_an_answer_is_never_an_approval() -> None:
    """[PERM-8] [CAN-4]"""
    async with Pair(permissions=ready.reject_once) as (_, agent):
        only = [{"optionId": "2", "name": "yes", "kind": "allow_once"}]
        answer = await agent.ask("session/request_permission", toolCall={"toolCallId": "t"}, options=only)
        assert answer == {"outcome": {"outcome": "cancelled"}}
    async with Pair(permissions=ready.never_answers) as (_, agent):
        with anyio.move_on_after(0) as scope:
            await agent.ask("session/request_permission", toolCall={"toolCallId": "t"}, options=OPTIONS)
        assert scope.cancelled_caught


async def test_elicitation_is_answered() -> None:
    asked: list[str] = []

    async def answer(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        asked.append(request.message)
        return acp.CreateElicitationResponse(action="accept", content={"name": "x"})

    async with Pair(elicitation=answer) as (client, agent):
        assert client.capabilities.elicitation is not None
        reply = await agent.ask(
            "elicitation/create", mode="form", message="Name?", requestedSchema={"type": "object", "properties": {}}
        )
        assert reply == {"action": "accept", "content": {"name": "x"}}
    assert asked == ["Name?"]


async def test_requests_are_served_concurrently() -> None:
    """[RPC-14]"""
    async with Pair(permissions=ready.never_answers, files=Files()) as (_, agent), anyio.create_task_group() as group:
        group.start_soon(agent.connection.request, "session/request_permission", {
            "sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": OPTIONS,
        })  # fmt: skip
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(PeerError):
            await agent.ask("fs/read_text_file", path="/no/such/file")
        group.cancel_scope.cancel()
