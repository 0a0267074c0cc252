"""`bash_list`: list the background commands."""

from __future__ import annotations

from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult


class BashListParams(Params):
    """None."""


class BashList(HarmlessTool[BashListParams]):
    name = "bash_list"
    kind = "read"
    reads_only = True

    def describe(self, params: BashListParams, roots: Roots) -> Description:
        return Description("List the background commands")

    async def run(self, params: BashListParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        states = ctx.shell.runs.states()
        lines = [f"{state.run_id} [{state.words}] {' '.join(state.command.split())}" for state in states]
        return ToolResult("\n".join(lines) or "[no background commands in this session]")
