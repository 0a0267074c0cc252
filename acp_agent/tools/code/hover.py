"""`hover`: show the type and documentation of a symbol."""

from __future__ import annotations

from acp_agent.tools.kit.positions import SymbolParams, SymbolTool, document_at, position_of
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class Hover(SymbolTool):
    name = "hover"
    kind = "read"
    subject = "Type of"

    async def run(self, params: SymbolParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        document = await document_at(ctx, params.path)
        found = await ctx.languages.hover(document, position_of(params, document))
        text = found.contents.value.strip() if found is not None else ""
        return ToolResult(text or f"The language server knows nothing of `{params.symbol}`.")
