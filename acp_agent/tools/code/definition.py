"""`definition`: find where a symbol is defined."""

from __future__ import annotations

from acp_agent.tools.kit.positions import SymbolParams, SymbolTool, document_at, places_in_words, position_of
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class Definition(SymbolTool):
    name = "definition"
    aliases = ("go_to_definition",)
    subject = "Definition of"

    async def run(self, params: SymbolParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        document = await document_at(ctx, params.path)
        found = await ctx.languages.definition(document, position_of(params, document))
        if not found:
            return ToolResult(f"The language server found no definition of `{params.symbol}`. Use `grep`.")
        places = [(item.uri, item.range) for item in found]
        lines, locations = await places_in_words(places, ctx, ctx.languages.config.max_results)
        return ToolResult("\n".join(lines), locations=locations or None)
