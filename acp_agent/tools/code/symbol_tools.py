"""`definition`, `references`, `hover`: what the language server knows of a symbol."""

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


class Hover(SymbolTool):
    name = "hover"
    kind = "read"
    subject = "Type of"

    async def run(self, params: SymbolParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        document = await document_at(ctx, params.path)
        found = await ctx.languages.hover(document, position_of(params, document))
        text = found.contents.value.strip() if found is not None else ""
        return ToolResult(text or f"The language server knows nothing of `{params.symbol}`.")
