"""The agent as an MCP server: another agent gives it work, and its user answers its questions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from acp_agent.fronts.mcp_front import _question
from acp_agent.schema import acp
from acp_agent.testing.fake_model import Answer, Call, FakeModel
from tests.e2e.kit import COMMAND, environ


class Client:
    def __init__(self, session: ClientSession, model: FakeModel, project: Path) -> None:
        self.session = session
        self.model = model
        self.project = project

    async def call(self, name: str, **arguments: Any) -> tuple[str, bool]:
        """What a tool says, and whether it failed."""
        with anyio.fail_after(60):
            result = await self.session.call_tool(name, arguments)
        assert isinstance(result, types.CallToolResult)
        return "".join(part.text for part in result.content if isinstance(part, types.TextContent)), bool(
            result.is_error
        )


@asynccontextmanager
async def served(
    tmp_path: Path, script: Any, *options: str, answer: dict[str, Any] | None = None
) -> AsyncIterator[tuple[Client, list[str]]]:
    """A client of it, and the questions that came. `answer`: to each; without one it cannot be asked."""
    (project := tmp_path / "project").mkdir(exist_ok=True)
    asked: list[str] = []

    async def elicit(context: ClientRequestContext, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult.model_validate(answer)

    async with FakeModel(script) as model:
        server = StdioServerParameters(
            command=COMMAND, args=["mcp", "serve", "--folder", str(project), *options],
            env=environ(tmp_path, model.base_url), cwd=project,
        )  # fmt: skip
        async with (
            stdio_client(server) as (incoming, outgoing),
            ClientSession(incoming, outgoing, elicitation_callback=elicit if answer is not None else None) as session,
        ):
            with anyio.fail_after(60):
                await session.initialize()
            yield Client(session, model, project), asked


def bash(command: str) -> Answer:
    return Answer(text="Let me.", tool_calls=(Call("bash", {"command": command}),))


def test_a_question_says_what_of_the_call_it_does_not_show():
    call = acp.ToolCallUpdate(tool_call_id="c", content=[acp.Content(content=acp.TextContent(text="x" * 9_000))])
    asked = _question("t", acp.RequestPermissionRequest(session_id="s", tool_call=call, options=[]))
    assert asked.endswith("xx\n\n[1019 more characters, which are not shown here]")


async def test_a_task_is_done_and_its_session_goes_on(tmp_path):
    async with served(tmp_path, [bash("echo hi"), "It said hi.", "Again."]) as (client, _):
        assert {tool.name for tool in (await client.session.list_tools()).tools} == {"prompt", "status"}
        said, failed = await client.call("prompt", text="say hi")
        assert not failed and said.startswith("It said hi.\n\nWhat it did:\n- echo hi: completed\nSession: ")
        session = said.rpartition("Session: ")[2]
        said, _ = await client.call("prompt", text="and again", session=session)
        assert said == f"Again.\n\nSession: {session}"
        assert "say hi" in str(client.model.requests[-1].body)
        assert await client.call("status", session=session) == (f"{session}: idle", False)
        listed_words, _ = await client.call("status")
        assert f"{session} (idle) say hi in {client.project}" in listed_words
