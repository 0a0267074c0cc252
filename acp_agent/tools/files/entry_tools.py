"""`list_directory`, `create_directory`, `delete_path`, `copy_path`, `move_path`: folders, and files as a whole."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Access
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.trees import Judged
from acp_agent.tools.files.entries import (
    Transfer,
    delete_access,
    need_allowed,
    need_entry,
    need_saved,
    not_a_root,
    told,
)
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.failures import not_there
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class ListDirectoryParams(Params):
    path: str = Field(default=".", description="The folder, absolute or relative to the working directory.")


class ListDirectory(PathTool[ListDirectoryParams]):
    name = "list_directory"
    verbatim = True
    title = "List {path}"
    aliases = ("ls",)
    kind = "read"
    reads_only = True
    idempotent = True

    async def run(self, params: ListDirectoryParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        path = ctx.roots.resolve(params.path)
        found = await ctx.files.stat(path)
        if found is None:
            raise not_there(params.path)
        if found.kind != "dir":
            raise ToolError(f"{params.path} is not a folder.", suggestion="Use `read` for a file.")
        listed = await ctx.files.list(path, ctx.config.files.max_results)
        if not (listed.entries or listed.more):
            return ToolResult(f"{params.path} is empty.")
        lines = [f"[{kind}] {name}" for name, kind in listed.entries]
        if listed.more:
            lines.append(f"[{listed.more} more entries are not shown]")
        return ToolResult("\n".join(lines))


class CreateDirectoryParams(Params):
    path: str = Field(description="The folder, absolute or relative to the working directory; parents are created.")


class CreateDirectory(PathTool[CreateDirectoryParams]):
    name = "create_directory"
    title = "Create the folder {path}"
    aliases = ("make_directory", "mkdir")
    kind = "edit"
    touches = "write"

    async def preview(self, params: CreateDirectoryParams, ctx: ToolContext) -> Preview:
        found = await ctx.files.stat(ctx.roots.resolve(params.path))
        if found is not None and found.kind != "dir":
            raise ToolError(f"{params.path} exists and is not a folder.", suggestion="Give another path.")
        return Preview()

    async def run(self, params: CreateDirectoryParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        made = await ctx.files.make_directory(ctx.roots.resolve(params.path))
        if made == 0:
            return ToolResult(f"{params.path} already exists.", raw_output={"folders": 0})
        parents = f", and {made - 1} above it" if made > 1 else ""
        return ToolResult(f"Created the folder {params.path}{parents}.", raw_output={"folders": made})


class DeletePathParams(Params):
    path: str = Field(description="The file or folder, absolute or relative to the working directory.")


class DeletePath(PathTool[DeletePathParams]):
    name = "delete_path"
    title = "Delete {path}"
    aliases = ("delete_file", "remove_path", "delete")
    kind = "delete"

    def access(self, params: DeletePathParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return delete_access(not_a_root(roots, params.path), roots, config)

    async def preview(self, params: DeletePathParams, ctx: ToolContext) -> Preview:
        path = not_a_root(ctx.roots, params.path)
        await need_saved(ctx, path, await need_entry(ctx, path, params.path))
        accesses = delete_access(path, ctx.roots, ctx.config)
        need_allowed(accesses, ctx)
        return Preview(state=(path, Judged(accesses, ctx.roots.rules)), accesses=tuple(accesses))

    async def run(self, params: DeletePathParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        path, judged = preview.state
        await need_saved(ctx, path, await need_entry(ctx, path, params.path))
        try:
            tally = await ctx.files.remove(path, max_entries=ctx.config.files.max_tree_entries, judged=judged)
        finally:
            ctx.memory.ledger.forget_below(path)
        return told(f"{params.path} was deleted", tally)


class CopyPath(Transfer):
    name = "copy_path"
    aliases = ("copy_file",)
    kind = "edit"
    done = "copied"
    verb = "Copy"


class MovePath(Transfer):
    name = "move_path"
    aliases = ("rename_path", "move_file")
    kind = "move"
    done = "moved"
    verb = "Move"
