"""`bash_kill`: end a background command."""

from __future__ import annotations

from pydantic import Field

from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class BashKillParams(Params):
    run_id: str = Field(description="The run_id from `bash`.")


class BashKill(HarmlessTool[BashKillParams]):
    """It ends only commands that this session started."""

    name = "bash_kill"
    title = "End the background command {run_id:.8}"
    kind = "execute"

    async def run(self, params: BashKillParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        state = await ctx.shell.runs.kill(params.run_id)
        return ToolResult("", command=state.printed())
