"""Shared by the tools that use language servers: documents, symbol positions, and text for places and errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import anyio
from msgspec import Struct
from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.lsp.base import Document, LspError
from acp_agent.lsp.uris import path_of, uri_of
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.schema.acp import Content, TextContent, ToolCallContent, ToolKind
from acp_agent.schema.lsp_types import Diagnostic, Position, Range
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.failures import not_there
from acp_agent.tools.kit.shown_documents import load_documents, source_files
from acp_agent.tools.kit.text import read_file
from acp_agent.tools.kit.tool_context import Description, Location, ToolContext

log = logging.getLogger(__name__)

MOST_LINES_NAMED = 10
MAX_NEW_ERRORS = 10
"""Told with the edit that made them."""
LONGEST_LINE = 200
LONGEST_MESSAGE = 1_000
LONGEST_ORIGIN = 100


class SymbolParams(Params):
    path: str = Field(
        description="The file in which the symbol is used, absolute or relative to the working directory."
    )
    symbol: str = Field(description="The symbol's name as written there.", min_length=1)
    line: int | None = Field(
        default=None, ge=1, description="The line it is on, counted from 1; default: its first occurrence."
    )


class Place(Struct, frozen=True):
    """A place in a file, for people: one-based, columns in characters."""

    path: Path
    line: int
    column: int
    text: str
    """The line, truncated; empty if it must not be read."""


class SymbolTool(PathTool[SymbolParams]):
    """Base of the tools that look up a symbol."""

    kind: ClassVar[ToolKind] = "search"
    reads_only = True
    subject: ClassVar[str]
    """The beginning of the title, before the symbol."""

    def describe(self, params: SymbolParams, roots: Roots) -> Description:
        return Description(f"{self.subject} {params.symbol}", (Location(roots.named(params.path), params.line),))


async def document_at(ctx: ToolContext, shown: str) -> Document:
    """The file as the editor has it. Raises ToolError."""
    path = ctx.roots.resolve(shown)
    found = await read_file(ctx, path, shown)
    if found is None:
        raise not_there(shown)
    return Document(path, found.text)


async def documents_of(shown: str | None, ctx: ToolContext) -> tuple[list[Document], int]:
    """The files of known languages at a path, or those the model has seen if none is given; and how many there are
    beyond the limit. Files that are not text are left out. Raises ToolError for a path that does not exist."""
    language, config = ctx.languages, ctx.languages.config
    root = ctx.roots.cwd if shown is None else ctx.roots.resolve(shown)
    found = await ctx.files.stat(root)
    if found is None:
        raise not_there(shown)
    if found.kind == "file":
        return [await document_at(ctx, shown or "")], 0
    if shown is None:
        paths = [path for path in ctx.memory.ledger.seen_below(real_path(root)) if language.knows(path)]
        paths = paths or await source_files(language, root, ctx.files, ctx.config.files)
    else:
        paths = await source_files(language, root, ctx.files, ctx.config.files)
    documents = await load_documents(paths[: config.max_diagnostic_files], ctx.files, config.max_file_bytes)
    return documents, max(0, len(paths) - config.max_diagnostic_files)


def position_of(params: SymbolParams, document: Document) -> Position:
    """The symbol's position. Raises ToolError that says where else it occurs."""
    lines = document.text.split("\n")
    whole = params.symbol.replace(".", "").isidentifier()
    word = re.compile(rf"(?<!\w){re.escape(params.symbol)}(?!\w)" if whole else re.escape(params.symbol))
    found = {number: match for number, line in enumerate(lines, 1) if (match := word.search(line))}
    if not found:
        raise ToolError(f"`{params.symbol}` is not in {params.path}.", suggestion="Use `grep` to find it.")
    line = params.line or next(iter(found))
    if line not in found:
        near = sorted(found, key=lambda number: (abs(number - line), number))[:MOST_LINES_NAMED]
        raise ToolError(
            f"`{params.symbol}` is not at line {line} of {params.path}, but at line "
            f"{', '.join(map(str, sorted(near)))}{' and others' if len(found) > len(near) else ''}."
        )
    # For `a.b.c` the last name is meant.
    start = found[line].start() + (params.symbol.rfind(".") + 1 if whole else 0)
    return Position(line - 1, len(lines[line - 1][:start].encode("utf-16-le")) // 2)


def columns(line: str, at: Position) -> int:
    """The one-based column in characters of a position in UTF-16 code units."""
    return characters(line, at.character) + 1


def characters(line: str, units: int) -> int:
    """The number of characters in `units` UTF-16 code units of the line."""
    return len(line.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "replace"))


def _readable(path: Path, roots: Roots) -> bool:
    try:
        real = real_path(path)
    except (OSError, RuntimeError, ValueError):
        return False
    return roots.contains(real) and not roots.rules.hides(real)


async def place_of(uri: str, where: Range, ctx: ToolContext, texts: dict[Path, list[str]]) -> Place | None:
    """`texts`: lines of files already read. Files outside the session's folders are named but not read."""
    if (path := path_of(uri)) is None:
        return None
    if path not in texts:
        texts[path] = []
        if _readable(path, ctx.roots):
            try:
                found = await read_file(ctx, real_path(path), str(path))
                texts[path] = ("" if found is None else found.text).split("\n")
            except (ToolError, OSError):
                pass
    lines = texts[path]
    line = lines[where.start.line] if where.start.line < len(lines) else ""
    return Place(path, where.start.line + 1, columns(line, where.start), _cut(line.strip(), LONGEST_LINE))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


async def places_in_words(
    found: Sequence[tuple[str, Range]], ctx: ToolContext, most: int
) -> tuple[list[str], tuple[Location, ...]]:
    """Returns one line per place, in the order of files, and the places for the editor."""
    texts: dict[Path, list[str]] = {}
    places = [place for uri, where in found[:most] if (place := await place_of(uri, where, ctx, texts)) is not None]
    lines = [
        f"{ctx.roots.display(place.path)}:{place.line}:{place.column}" + (f": {place.text}" if place.text else "")
        for place in places
    ]
    if len(found) > most:
        lines.append(f"[{len(found) - most} more are not shown]")
    return lines, tuple(dict.fromkeys(Location(place.path, place.line) for place in places))


async def errors_of_change(
    changes: Iterable[tuple[Document | None, Document]], ctx: ToolContext
) -> tuple[str, tuple[ToolCallContent, ...]]:
    """Returns the errors caused by changes, for the model and for the user; empty if none are known.

    Several changes are treated as one: errors that existed only while some of them had not been made are ignored."""
    every = list(changes)
    told: dict[Path, Sequence[tuple[Path, Diagnostic]]] = {}

    async def ask(before: Document | None, after: Document) -> None:
        told[after.path] = (await ctx.languages.new_errors(before, after)).errors

    async with anyio.create_task_group() as tasks:
        for before, after in every:
            tasks.start_soon(ask, before, after)
    found = {error: None for _, after in every for error in told[after.path]}
    if found and len(every) > 1:
        found = dict.fromkeys(await _still(list(found), [after for _, after in every], ctx))
    if not found:
        return "", ()
    texts: dict[Path, list[str]] = {}
    lines = [await _in_words(path, item, ctx, texts) for path, item in list(found)[:MAX_NEW_ERRORS]]
    if len(found) > MAX_NEW_ERRORS:
        lines.append(f"[{len(found) - MAX_NEW_ERRORS} more are not shown]")
    count = "1 new error" if len(found) == 1 else f"{len(found)} new errors"
    words = "\n".join([f"{count} after this change:", *lines])
    return words, (Content(content=TextContent(text=words)),)


async def _still(
    errors: list[tuple[Path, Diagnostic]], documents: list[Document], ctx: ToolContext
) -> list[tuple[Path, Diagnostic]]:
    """The errors that still exist, as far as known in time; those of other files are all kept."""
    wanted = {path for path, _ in errors}
    asked = [document for document in documents if document.path in wanted]
    now: dict[Path | None, Sequence[Diagnostic]] | None = None
    with anyio.move_on_after(ctx.languages.config.edit_wait):
        try:
            now = {path_of(file.uri): file.diagnostics for file in (await ctx.languages.diagnostics(asked)).items}
        except LspError as error:
            log.info("%s", error)
    if now is None:
        return []
    changed = {document.path for document in asked}
    return [(path, item) for path, item in errors if path not in changed or item in now.get(path, ())]


async def _in_words(path: Path, item: Diagnostic, ctx: ToolContext, texts: dict[Path, list[str]]) -> str:
    place = await place_of(uri_of(path), item.range, ctx, texts)
    assert place is not None, "the URI of a file names a file"
    message = _cut(" ".join(item.message.split()), LONGEST_MESSAGE)
    origin = " ".join(str(part) for part in (item.source, item.code) if part not in ("", None))
    origin = " ".join(origin[:LONGEST_ORIGIN].split())
    return f"{ctx.roots.display(path)}:{place.line}:{place.column}: {message}" + (f" [{origin}]" if origin else "")
