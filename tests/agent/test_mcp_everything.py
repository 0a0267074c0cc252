"""The reference server that tries everything, `@modelcontextprotocol/server-everything`, in sessions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from acp_agent.client.permissions import allow_always
from acp_agent.schema.acp import McpServerStdio, ToolCallUpdate

from .kit import Answer, Call, agent_rig

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).parents[1] / ".node/node_modules/@modelcontextprotocol/server-everything/dist/index.js"


def everything() -> McpServerStdio:
    node = shutil.which("node")
    assert node is not None, "`make tools` installs it"
    return McpServerStdio(name="all", command=node, args=[str(PROGRAM), "stdio"], env=[])


def calls(*made: tuple[str, dict]) -> list:
    return [Answer(tool_calls=tuple(Call(f"mcp_all_{name}", arguments) for name, arguments in made)), "done"]


async def test_progress_is_shown_in_the_card_and_links_and_structured_content_reach_the_editor(tmp_path):
    script = calls(
        ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
        ("get-resource-links", {"count": 2}),
        ("get-structured-content", {"location": "Chicago"}),
    )
    async with agent_rig(tmp_path, script, otherwise=allow_always) as r:
        await r.editor.new_session(r.project, mcp_servers=[everything()])
        await r.editor.prompt("go")
        shown = [update for update in r.editor.updates if isinstance(update, ToolCallUpdate)]
        assert any("1 of 2" in str(update.content) for update in shown)
        slow, links, weather = r.editor.tool_calls().values()
        assert "Long running operation completed" in slow.text()
        assert [block.content.uri for block in links.content[1:]] == [
            "demo://resource/dynamic/blob/1",
            "demo://resource/dynamic/text/2",
        ]
        assert weather.raw_output["temperature"] == 36
        assert "output schema" not in r.messages(2)[-1]["content"]
