"""Calls that a server answers later, by the extension `io.modelcontextprotocol/tasks`."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from acp_agent.mcp.base import Answers, McpError
from acp_agent.mcp.server_tasks import CallTask, finished

from .kit import kept, raw

DONE = {"status": "completed", "result": {"content": [{"type": "text", "text": "It is done."}], "isError": False}}
WORKING = {"status": "working", "statusMessage": "half way"}
NAME = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}


async def test_a_task_is_asked_for_until_it_has_ended_and_returns_what_the_call_returns(tmp_path: Path) -> None:
    async with kept(raw("tasks", notes := tmp_path / "notes")) as k:
        said: list[str] = []
        call = await k.servers.start("raw", "echo", {"states": [WORKING, WORKING, DONE]}, said.append)
        result = await call.result(15.0)
        assert (result.text, result.is_error) == ("It is done.", False) and said == ["half way", "half way"]
        told = notes.read_text().splitlines()
        assert '"io.modelcontextprotocol/tasks": {}' in told[-4], "the extension is declared with the call"
        assert told[-3:] == ["asked for t1"] * 3


ENDS: list[tuple[dict[str, Any], str]] = [
    ({"status": "failed", "error": {"code": -32603, "message": "it broke"}}, "it broke"),
    ({"status": "failed"}, "its task failed"),
    ({"status": "cancelled"}, "it cancelled its task"),
    ({"status": "completed", "result": {"content": "no list"}}, ""),
    ({"status": "completed"}, "has ended without a result"),
    ({"status": 7}, "is not valid MCP"),
]


@pytest.mark.parametrize(("end", "words"), ENDS)
async def test_how_a_task_that_does_not_complete_is_said(end: dict[str, Any], words: str) -> None:
    async with kept(raw("tasks")) as k:
        if not words:  # What is no content is left out, as in any other result.
            assert (await k.call("raw", "echo", {"states": [end]})).text == "no list"
            return
        with pytest.raises(McpError, match=words):
            await k.call("raw", "echo", {"states": [end]})


async def test_a_tool_that_says_that_it_failed_has_failed() -> None:
    end = {"status": "completed", "result": {"content": [{"type": "text", "text": "no"}], "isError": True}}
    async with kept(raw("tasks")) as k:
        assert (await k.call("raw", "echo", {"states": [end]})).is_error


async def test_what_a_task_wants_to_know_is_answered_once(tmp_path: Path) -> None:
    asked: list[str] = []

    async def elicit(server: str, wanted: dict[str, Any]) -> dict[str, Any]:
        asked.append(wanted["message"])
        return {"action": "accept", "content": {"name": "Ada"}}

    waits = {"status": "input_required", "inputRequests": {"q1": NAME}}
    async with kept(raw("tasks", notes := tmp_path / "notes"), answers=Answers(elicit=elicit)) as k:
        assert (await k.call("raw", "echo", {"states": [waits, waits, DONE]})).text == "It is done."
        assert asked == ["Name?"]
        (told,) = [line for line in notes.read_text().splitlines() if line.startswith("tasks/update")]
        assert told == 'tasks/update t1 {"q1": {"action": "accept", "content": {"name": "Ada"}}}'


async def test_a_task_that_asks_for_what_it_cannot_have_is_cancelled(tmp_path: Path) -> None:
    waits = {"status": "input_required", "inputRequests": {"q1": NAME}}
    async with kept(raw("tasks", notes := tmp_path / "notes")) as k:
        with pytest.raises(McpError, match="its task asked for what it cannot have"):
            await k.call("raw", "echo", {"states": [waits]})
        assert notes.read_text().endswith("tasks/cancel t1 null\n")


async def test_a_task_may_have_ended_at_once_and_its_states_may_have_odd_values() -> None:
    states: list[dict[str, Any]] = [
        {"status": "working", "pollIntervalMs": each, "inputRequests": None} for each in (1.5, -5, float("nan"))
    ]
    states.append(DONE)
    asked: list[str] = []

    class Session:
        async def send_request(self, request: Any, kind: Any) -> Any:
            asked.append(request.method)
            if request.method == "tasks/cancel":
                raise MCPError(-32602, "it has ended")
            return kind.model_validate(states.pop(0) if states else {"status": "working"}, by_name=False)

    async def finish(**more: Any) -> str:
        task = CallTask.model_validate({"taskId": "t1", "pollIntervalMs": 0, **more}, by_name=False)
        result = await finished(Session(), task, None, lambda _: None)  # type: ignore[arg-type]
        return str(result.content[0].text)  # type: ignore[union-attr]

    assert await finish(status="completed") == "It is done." and asked == ["tasks/get"] * 4
    with anyio.move_on_after(0.1) as scope:
        await finish(status="working")
    assert scope.cancelled_caught and asked[-1] == "tasks/cancel", "that it has ended is no answer to the call"


async def test_a_task_that_nobody_waits_for_is_cancelled(tmp_path: Path) -> None:
    async with kept(raw("tasks", notes := tmp_path / "notes")) as k:
        call = await k.servers.start("raw", "echo", {"states": [WORKING]})
        while "asked for t1" not in notes.read_text():
            await anyio.sleep(0.01)
        call.cancel()
        while "tasks/cancel t1" not in notes.read_text():
            await anyio.sleep(0.01)


async def test_a_server_of_an_older_revision_is_not_offered_it(tmp_path: Path) -> None:
    async with kept(raw("good")) as k:
        assert (await k.call("raw", "echo", {"says": "as ever"})).text == "as ever"
