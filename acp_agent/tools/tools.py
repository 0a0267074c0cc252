"""`tools`: find tools that are not sent to the model by default, and add them."""

from __future__ import annotations

from pydantic import Field

from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class ToolsParams(Params):
    query: str = Field(description="What the tool should do, in a few words.", min_length=1)


class FindTools(HarmlessTool[ToolsParams]):
    name = "tools"
    title = "Find tools: {query:.60}"
    aliases = ("find_tools", "tool_search")
    kind = "search"
    reads_only = True

    async def run(self, params: ToolsParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        offer = ctx.toolbox.offer
        found = await offer.find_more(params.query)
        if not found:
            names = ", ".join(f"`{entry.name}`" for entry in offer.left_out()) or "none"
            return ToolResult(
                f"No tool fits these words. Not sent to you so far: {names}. Search with one of these names."
            )
        lines = [f"- {entry.name}: {entry.description.splitlines()[0]}" for entry in found]
        return ToolResult("You can call these tools from now on:\n" + "\n".join(lines))
