"""`definition`, `references`, `hover`, `symbols`: what the language server knows of symbols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, model_validator

from acp_agent.config.model import ToolsConfig
from acp_agent.lsp.uris import path_of
from acp_agent.safety.access import Access, PathAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, TextContent
from acp_agent.schema.lsp_types import DocumentSymbol, symbol_kind
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.positions import SymbolParams, SymbolTool, document_at, places_in_words, position_of
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult


def _nothing(words: str) -> ToolResult:
    return ToolResult(f"{words} Use `grep`.", content=(Content(content=TextContent(text=words)),))


class Definition(SymbolTool):
    name = "definition"
    verbatim = True
    aliases = ("go_to_definition",)
    subject = "Definition of"

    async def run(self, params: SymbolParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        document = await document_at(ctx, params.path)
        found = await ctx.languages.definition(document, position_of(params, document))
        if not found:
            return _nothing(f"The language server found no definition of `{params.symbol}`.")
        places = [(item.uri, item.range) for item in found]
        lines, locations = await places_in_words(places, ctx, ctx.languages.config.max_results)
        return ToolResult("\n".join(lines), locations=locations or None)


MOST_LOCATIONS = 10


class References(SymbolTool):
    name = "references"
    verbatim = True
    aliases = ("find_references",)
    subject = "References to"

    async def run(self, params: SymbolParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        document = await document_at(ctx, params.path)
        found = await ctx.languages.references(document, position_of(params, document))
        if not found:
            return _nothing(f"The language server found no use of `{params.symbol}`.")
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


class SymbolsParams(Params):
    path: str | None = Field(default=None, description="A file: its outline, or with `query` the language to search.")
    query: str | None = Field(
        default=None, min_length=1, description="A name or part of one, searched in the whole project."
    )

    @model_validator(mode="after")
    def _one_at_least(self) -> SymbolsParams:
        if self.path is None and self.query is None:
            raise ValueError("give `path` (the outline of a file) or `query` (a name in the project)")
        return self


class Symbols(Tool[SymbolsParams]):
    name = "symbols"
    verbatim = True
    aliases = ("outline", "workspace_symbols", "document_symbols")
    kind = "search"
    reads_only = True

    def describe(self, params: SymbolsParams, roots: Roots) -> Description:
        where = () if params.path is None else (Location(roots.named(params.path)),)
        if params.query is not None:
            return Description(f"Symbols named {params.query}", where)
        return Description(f"Outline of {params.path}", where)

    def access(self, params: SymbolsParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        path = roots.cwd if params.path is None else roots.resolve(params.path)
        return [PathAccess("read", path)]

    async def run(self, params: SymbolsParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        return await (_outline(params, ctx) if params.query is None else _named(params, ctx))


async def _outline(params: SymbolsParams, ctx: ToolContext) -> ToolResult:
    document = await document_at(ctx, params.path or "")
    found = list(_flat(await ctx.languages.document_symbols(document)))
    most = ctx.languages.config.max_results
    lines = [
        f"{'  ' * depth}{_line(item)}: {symbol_kind(item.kind)} {item.name}"
        + (f" {item.detail}" if item.detail else "")
        for depth, item in found[:most]
    ]
    if len(found) > most:
        lines.append(f"[{len(found) - most} more are not shown]")
    return ToolResult("\n".join(lines) or f"The language server found no symbols in {params.path}.")


def _flat(symbols: list[DocumentSymbol], depth: int = 0) -> Iterator[tuple[int, DocumentSymbol]]:
    for item in symbols:
        yield depth, item
        yield from _flat(item.children, depth + 1)


def _line(item: DocumentSymbol) -> int:
    where = item.selection_range or item.range or (item.location.range if item.location is not None else None)
    return 0 if where is None else where.start.line + 1


async def _named(params: SymbolsParams, ctx: ToolContext) -> ToolResult:
    near = None if params.path is None else await document_at(ctx, params.path)
    found = await ctx.languages.workspace_symbols(params.query or "", near)
    most = ctx.languages.config.max_results
    lines, locations = [], []
    for item in found[:most]:
        if (path := path_of(item.location.uri)) is None:
            continue
        line = item.location.range.start.line + 1
        inside = f" in {item.container_name}" if item.container_name else ""
        lines.append(f"{ctx.roots.display(path)}:{line}: {symbol_kind(item.kind)} {item.name}{inside}")
        locations.append(Location(path, line))
    if len(found) > most:
        lines.append(f"[{len(found) - most} more are not shown]")
    if not lines:
        return _nothing(f"The language servers found no symbol named `{params.query}`.")
    return ToolResult("\n".join(lines), locations=tuple(dict.fromkeys(locations))[:MOST_LOCATIONS] or None)
