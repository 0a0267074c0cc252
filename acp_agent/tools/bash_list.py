"""`bash_list`: list the background commands."""

from __future__ import annotations

from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class BashListParams(Params):
    """No parameters."""


class BashList(HarmlessTool[BashListParams]):
    name = "bash_list"
    title = "List the background commands"
    kind = "read"
    reads_only = True

    async def run(self, params: BashListParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        states = ctx.shell.runs.states()
        lines = [f"{state.run_id} [{state.words}] {' '.join(state.command.split())}" for state in states]
        return ToolResult("\n".join(lines) or "[no background commands in this session]")
