"""`hover`: type and documentation of a symbol."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from acp_agent.config.model import ToolsConfig
from acp_agent.safety.access import Access
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import ToolKind
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.positions import SymbolParams, document_at, position_of, symbol_access
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult


class Hover(Tool[SymbolParams]):
    name: ClassVar[str] = "hover"
    kind: ClassVar[ToolKind] = "read"
    reads_only: ClassVar[bool] = True
    Params: ClassVar[type[Params]] = SymbolParams

    def describe(self, params: SymbolParams, roots: Roots) -> Description:
        return Description(f"Type of {params.symbol}", (Location(roots.named(params.path), params.line),))

    def access(self, params: SymbolParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return symbol_access(params, roots)

    async def run(self, params: SymbolParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        document = await document_at(ctx, params.path)
        found = await ctx.languages.hover(document, position_of(params, document))
        text = found.contents.value.strip() if found is not None else ""
        return ToolResult(text or f"The language server knows nothing of `{params.symbol}`.")
