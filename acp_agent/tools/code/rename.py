"""`rename`: rename a symbol everywhere, as one change to several files that is reviewed as a whole."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct
from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import AgentError, ToolError
from acp_agent.lsp.base import Document
from acp_agent.lsp.uris import path_of
from acp_agent.safety.access import Access, PathAccess
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.schema.acp import ToolCallContent
from acp_agent.schema.lsp_types import Position, TextEdit, WorkspaceEdit
from acp_agent.tools.files.edit import Planned, need_unchanged
from acp_agent.tools.kit.base import Tool
from acp_agent.tools.kit.positions import SymbolParams, characters, document_at, errors_of_change, position_of
from acp_agent.tools.kit.text import changed_places, diff_of, keep_credentials, read_file
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult

TRIES = 3
"""How often to ask the server, until it has received all files that it would change."""

LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
"""Splits a text into lines as LSP does."""


class RenameParams(SymbolParams):
    new_name: str = Field(description="Its new name.", min_length=1)


class _Change(Struct, frozen=True):
    planned: Planned
    shown: str


class Rename(Tool[RenameParams]):
    name = "rename"
    aliases = ("rename_symbol",)
    kind = "edit"

    def describe(self, params: RenameParams, roots: Roots) -> Description:
        return Description(
            f"Rename {params.symbol} to {params.new_name}", (Location(roots.named(params.path), params.line),)
        )

    def access(self, params: RenameParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        path = roots.resolve(params.path)
        return [PathAccess("read", path), PathAccess("write", path)]

    async def preview(self, params: RenameParams, ctx: ToolContext) -> Preview:
        document = await document_at(ctx, params.path)
        changes = await _consistent(params, document, ctx)
        if not changes:
            raise ToolError(f"The language server would change nothing to rename `{params.symbol}`.")
        plans = [change.planned for change in changes]
        return Preview(
            tuple(diff_of(plan.path, plan.old, plan.new) for plan in plans),
            changes,
            locations=tuple(place for plan in plans for place in changed_places(plan.path, plan.old, plan.new)),
            accesses=tuple(PathAccess("write", plan.path) for plan in plans),
        )

    async def run(self, params: RenameParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        changes: tuple[_Change, ...] = preview.state
        for change in changes:
            await need_unchanged(change.planned, change.shown, ctx)
        content: list[ToolCallContent] = []
        written: list[tuple[Document, Document]] = []
        for change in changes:
            planned = change.planned
            try:
                version = await ctx.files.write(planned.path, planned.new, planned.expected, again=False)
            except (AgentError, OSError) as error:
                done = ", ".join(ctx.roots.display(after.path) for _, after in written)
                raise ToolError(
                    f"{change.shown} could not be written: {error}. "
                    + (f"These files were already changed: {done}." if done else "Nothing was changed.")
                ) from error
            now, seen = version.text, ctx.memory.ledger.last_seen(planned.path)
            if seen is not None and seen.text == planned.old and now == planned.new:
                ctx.memory.ledger.saw(planned.path, version)
            else:  # The model must read it before the next edit.
                ctx.memory.ledger.forget(planned.path)
            written.append((Document(planned.path, planned.old or ""), Document(planned.path, now)))
            content.append(diff_of(planned.path, planned.old, now))
        lines = [
            f"`{params.symbol}` is now `{params.new_name}` in {len(written)} file{'s' if len(written) > 1 else ''}:"
        ]
        lines += [ctx.roots.display(after.path) for _, after in written]
        errors, shown_errors = await errors_of_change(written, ctx)
        return ToolResult(
            "\n".join([*lines, *(["", errors] if errors else [])]),
            content=(*content, *shown_errors),
            locations=tuple(
                place for old, new in written for place in changed_places(new.path, old.text, new.text, done=True)
            ),
        )


async def _consistent(params: RenameParams, document: Document, ctx: ToolContext) -> tuple[_Change, ...]:
    """Returns what the server would change, once it knows the current text of those files: the editor may show other
    text than the disk, and a command may have changed what the server has open. Raises ToolError."""
    at, known = position_of(params, document), {document.path: document.text}
    for _ in range(TRIES):
        others = [Document(path, text) for path, text in known.items() if path != document.path]
        edit = await ctx.languages.rename(document, at, params.new_name, others)
        changes = await _planned(edit, ctx)
        read = {change.planned.path: change.planned.old or "" for change in changes}
        if all(known.get(path) == text for path, text in read.items()):
            return changes
        known |= {**read, document.path: document.text}
    raise ToolError("The files affected by the rename are being changed; nothing was renamed.", suggestion="Try again.")


async def _planned(edit: WorkspaceEdit, ctx: ToolContext) -> tuple[_Change, ...]:
    """Returns what the server would change. Raises ToolError if tools must not change it."""
    changes = []
    merged: dict[Path, tuple[str, dict[TextEdit, None]]] = {}
    for uri, edits in edit.changes.items():
        if not edits:
            continue
        if (path := path_of(uri)) is None:
            raise ToolError(f"The language server would change {uri}, which is not a file. Nothing was changed.")
        # A file may be named twice: by a link to it, by another spelling.
        real = ctx.roots.resolve(str(real_path(path)))
        merged.setdefault(real, (ctx.roots.display(path), {}))[1].update(dict.fromkeys(edits))
    for real, (shown, found) in merged.items():
        edits = list(found)
        version = await read_file(ctx, real, shown)
        if version is None:
            raise ToolError(f"The language server would change {shown}, which does not exist. Nothing was changed.")
        old = version.text
        new = edited(old, edits)
        keep_credentials(ctx, shown, old, new)
        if new != old:
            changes.append(_Change(Planned(real, version, new), shown))
    return tuple(changes)


def edited(text: str, edits: list[TextEdit]) -> str:
    """`text` after edits that all refer to its original state (LSP 3.17). Raises ToolError if they overlap."""
    lines = [line.rstrip("\r\n") for line in LINES.findall(text)]
    starts = [match.start() for match in LINES.finditer(text)]

    def offset(at: Position) -> int:
        if at.line >= len(lines):
            return len(text)
        line = lines[at.line]
        return starts[at.line] + min(len(line), characters(line, at.character))

    spans = sorted(
        ((offset(edit.range.start), offset(edit.range.end), edit.new_text) for edit in edits), key=lambda span: span[:2]
    )
    parts, last = [], 0
    for start, end, new in spans:
        if start < last or end < start:
            raise ToolError("The language server's changes overlap, so nothing was changed.")
        parts += [text[last:start], new]
        last = end
    return "".join([*parts, text[last:]])
