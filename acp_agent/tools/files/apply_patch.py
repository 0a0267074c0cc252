"""`apply_patch`: change several files with one patch, in the form that GPT-5 and Codex models know."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import Field, field_validator

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import AgentError, ToolError
from acp_agent.executors.base import NO_FILE
from acp_agent.lsp.base import Document
from acp_agent.safety.access import Access, PathAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.trees import Judged
from acp_agent.schema.acp import Content, TextContent, ToolCallContent
from acp_agent.tools.files.edit import Planned, need_unchanged, read_for_edit, told_of, watch
from acp_agent.tools.files.entries import delete_access, need_entry, need_saved, not_a_root, transfer_access
from acp_agent.tools.files.notebook import joined, notebook_at, parted, with_sources
from acp_agent.tools.files.notebook_view import keep_cell_credentials
from acp_agent.tools.files.patch_text import FilePatch, parse_patch, patched
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.positions import errors_of_change
from acp_agent.tools.kit.text import changed_places, diff_of, keep_credentials, need_expressible
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult

MOST_NAMED = 3
"""Files named in the title."""


class ApplyPatchParams(Params):
    input: str = Field(description="The whole patch, from `*** Begin Patch` to `*** End Patch`.")

    @field_validator("input")
    @classmethod
    def _readable(cls, value: str) -> str:
        parse_patch(value)
        return value

    @cached_property
    def files(self) -> tuple[FilePatch, ...]:
        return parse_patch(self.input)


class _Change(Struct, frozen=True):
    """What happens to one file."""

    shown: str
    planned: Planned | None
    """The text to write; `None`: the file goes."""
    gone: Path | None = None
    """The file that is deleted, or moved to `planned.path`."""


class ApplyPatch(Tool[ApplyPatchParams]):
    name = "apply_patch"
    kind = "edit"

    def from_text(self, text: str) -> dict[str, Any] | None:
        return {"input": text}

    def describe(self, params: ApplyPatchParams, roots: Roots) -> Description:
        names = [file.path for file in params.files]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        places = tuple(Location(roots.named(name)) for name in names)
        return Description(f"Patch {', '.join(names[:MOST_NAMED])}{more}", places)

    def access(self, params: ApplyPatchParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        accesses: list[Access] = []
        for file in params.files:
            if file.move_to:
                gone, target = not_a_root(roots, file.path), roots.resolve(file.move_to)
                accesses += transfer_access(gone, target, False, True, roots, config)
            elif file.kind == "delete":
                accesses += delete_access(not_a_root(roots, file.path), roots, config)
            else:
                accesses.append(PathAccess("write", roots.resolve(file.path)))
        return accesses

    async def preview(self, params: ApplyPatchParams, ctx: ToolContext) -> Preview:
        seen: set[Path] = set()
        changes = [await _planned(file, ctx, seen) for file in params.files]
        content: list[ToolCallContent] = []
        places: list[Location] = []
        for change in changes:
            if change.gone is not None:
                left = ctx.roots.display(change.gone)
                words = f"`{left}` is deleted." if change.planned is None else f"`{left}` moves to `{change.shown}`."
                content.append(Content(content=TextContent(text=words)))
            if (plan := change.planned) is not None:
                content.append(diff_of(plan.path, plan.old, plan.new))
                places += changed_places(plan.path, plan.old, plan.new)
        accesses = self.access(params, ctx.roots, ctx.shell.cwd(), ctx.config)
        state = tuple(changes), Judged(accesses, ctx.roots.rules)
        return Preview(tuple(content), state, tuple(places), tuple(accesses))

    async def run(self, params: ApplyPatchParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        changes: Sequence[_Change]
        changes, judged = preview.state
        for change in changes:
            await _need_unchanged(change, ctx)
        lines: list[str] = []
        content: list[ToolCallContent] = []
        written: list[tuple[Document | None, Document]] = []
        for change in changes:
            try:
                text = await _make(change, judged, ctx, content, written)
            except (AgentError, OSError) as error:
                done = f"Before it, this was done: {' '.join(lines)}" if lines else "Nothing was changed."
                raise ToolError(f"{change.shown}: {error} {done}") from error
            lines.append(text)
        errors, shown = await errors_of_change(written, ctx)
        text = "\n".join([*lines, *(["", errors] if errors else [])])
        places: list[Location] = []
        for old, new in written:
            places += changed_places(new.path, None if old is None else old.text, new.text, done=True)
        return ToolResult(text, content=(*content, *shown), locations=tuple(places))


async def _planned(file: FilePatch, ctx: ToolContext, seen: set[Path]) -> _Change:
    """Raises ToolError for what cannot be done; nothing was written then."""
    source = ctx.roots.resolve(file.path)
    target = ctx.roots.resolve(file.move_to) if file.move_to else source
    for path in {source, target}:
        if path in seen:
            raise ToolError(
                f"{ctx.roots.display(path)} is named twice in the patch.", suggestion="Put its changes together."
            )
        seen.add(path)
    if file.kind == "delete":
        entry = not_a_root(ctx.roots, file.path)
        found = await need_entry(ctx, entry, file.path)
        if found.kind == "dir":
            raise ToolError(f"{file.path} is a folder.", suggestion="Use `delete_path` to delete it.")
        await need_saved(ctx, entry, found)
        return _Change(file.path, None, entry)
    if (file.kind == "add" or file.move_to) and await ctx.files.stat(target) is not None:
        shown = file.move_to or file.path
        raise ToolError(f"{shown} exists. Change it with `*** Update File: {shown}`; nothing was written.")
    if file.kind == "add":
        need_expressible(NO_FILE, file.path, file.content)
        return _Change(file.path, Planned(target, None, file.content))
    version = await read_for_edit(ctx, source, file.path)
    old = version.text
    try:
        notebook = notebook_at(source, old, file.path)
        if notebook is None:
            new = patched(old, file.hunks)
        else:  # Its cells are what the model has read.
            sources = notebook.sources
            new = with_sources(notebook, parted(patched(joined(sources), file.hunks), sources))
    except ValueError as error:
        raise ToolError(f"{file.path}: {error}. Nothing was written.") from error
    if new == old and not file.move_to:
        raise ToolError(f"{file.path}: the patch changes nothing.", "invalid_parameters")
    need_expressible(version, file.path, new)
    watch(ctx, source, old)
    if notebook is None:
        keep_credentials(ctx, file.path, old, new)
    else:
        keep_cell_credentials(ctx, file.path, notebook, new)
    gone = None
    if file.move_to:
        gone = not_a_root(ctx.roots, file.path)
        await need_saved(ctx, gone, await need_entry(ctx, gone, file.path))
    return _Change(file.move_to or file.path, Planned(target, version, new), gone)


async def _need_unchanged(change: _Change, ctx: ToolContext) -> None:
    if change.gone is not None:
        await need_saved(ctx, change.gone, await need_entry(ctx, change.gone, change.shown))
    plan = change.planned
    if plan is None:
        return
    if change.gone is not None:  # What is read is still in its old place.
        if await ctx.files.stat(plan.path) is not None:
            raise ToolError(f"{change.shown} was created by someone else in the meantime, so nothing was written.")
        plan = Planned(change.gone, plan.version, plan.new)
        await need_unchanged(plan, str(change.gone), ctx)
    else:
        await need_unchanged(plan, change.shown, ctx)


async def _make(
    change: _Change,
    judged: Judged,
    ctx: ToolContext,
    content: list[ToolCallContent],
    written: list[tuple[Document | None, Document]],
) -> str:
    """Makes one change; returns what to tell the model."""
    plan, most = change.planned, ctx.config.files.max_tree_entries
    if plan is None:
        if change.gone is not None:
            await ctx.files.remove(change.gone, max_entries=most, judged=judged)
            ctx.memory.ledger.forget_below(change.gone)
        return f"{change.shown} was deleted."
    if change.gone is not None:
        await ctx.files.move(change.gone, plan.path, overwrite=False, max_entries=most, judged=judged)
        ctx.memory.ledger.forget_below(change.gone)
    version = plan.expected
    if change.gone is None or plan.new != plan.old:
        version = await ctx.files.write(plan.path, plan.new, plan.expected, again=False)  # `run` has looked.
    now = version.text
    done = "created" if plan.old is None else "changed" if change.gone is None else "moved there"
    lines = ctx.config.files.edit_context if now != plan.old else 0
    text = told_of(plan, version, f"{change.shown} was {done}.", ctx, lines)
    content.append(diff_of(plan.path, plan.old, now))
    written.append((None if plan.old is None else Document(plan.path, plan.old), Document(plan.path, now)))
    return text
