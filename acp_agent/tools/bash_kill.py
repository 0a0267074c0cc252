"""`bash_kill`: end a background command."""

from __future__ import annotations

from pydantic import Field

from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult


class BashKillParams(Params):
    run_id: str = Field(description="The run_id from `bash`.")


class BashKill(HarmlessTool[BashKillParams]):
    """It ends only what this session started."""

    name = "bash_kill"
    kind = "execute"

    def describe(self, params: BashKillParams, roots: Roots) -> Description:
        return Description(f"End the background command {params.run_id[:8]}")

    async def run(self, params: BashKillParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        state = await ctx.shell.runs.kill(params.run_id)
        return ToolResult("", command=state.printed())
