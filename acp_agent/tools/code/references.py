"""`references`: everywhere a symbol is used."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from acp_agent.config.model import ToolsConfig
from acp_agent.safety.access import Access
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import ToolKind
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.positions import SymbolParams, document_at, places_in_words, position_of, symbol_access
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult

MOST_LOCATIONS = 10


class References(Tool[SymbolParams]):
    name: ClassVar[str] = "references"
    aliases: ClassVar[tuple[str, ...]] = ("find_references",)
    kind: ClassVar[ToolKind] = "search"
    reads_only: ClassVar[bool] = True
    Params: ClassVar[type[Params]] = SymbolParams

    def describe(self, params: SymbolParams, roots: Roots) -> Description:
        return Description(f"References to {params.symbol}", (Location(roots.named(params.path), params.line),))

    def access(self, params: SymbolParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return symbol_access(params, roots)

    async def run(self, params: SymbolParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        document = await document_at(ctx, params.path)
        found = await ctx.languages.references(document, position_of(params, document))
        if not found:
            return ToolResult(f"The language server knows no use of `{params.symbol}`. Use `grep`.")
        places = sorted(
            {(item.uri, item.range) for item in found},
            key=lambda place: (place[0], place[1].start.line, place[1].start.character),
        )
        lines, locations = await places_in_words(places, ctx, ctx.languages.config.max_results)
        files = len({uri for uri, _ in places})
        head = f"{len(places)} place{'s' if len(places) > 1 else ''} in {files} file{'s' if files > 1 else ''}:"
        return ToolResult("\n".join([head, *lines]), locations=locations[:MOST_LOCATIONS] or None)
