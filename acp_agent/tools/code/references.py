"""`references`: find all uses of a symbol."""

from __future__ import annotations

from acp_agent.tools.kit.positions import SymbolParams, SymbolTool, document_at, places_in_words, position_of
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult

MOST_LOCATIONS = 10


class References(SymbolTool):
    name = "references"
    aliases = ("find_references",)
    subject = "References to"

    async def run(self, params: SymbolParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        document = await document_at(ctx, params.path)
        found = await ctx.languages.references(document, position_of(params, document))
        if not found:
            return ToolResult(f"The language server found no use of `{params.symbol}`. Use `grep`.")
        places = sorted(
            {(item.uri, item.range) for item in found},
            key=lambda place: (place[0], place[1].start.line, place[1].start.character),
        )
        lines, locations = await places_in_words(places, ctx, ctx.languages.config.max_results)
        files = len({uri for uri, _ in places})
        head = f"{len(places)} place{'s' if len(places) > 1 else ''} in {files} file{'s' if files > 1 else ''}:"
        return ToolResult("\n".join([head, *lines]), locations=locations[:MOST_LOCATIONS] or None)
