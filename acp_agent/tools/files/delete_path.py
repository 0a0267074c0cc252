"""`delete_path`: delete a file, a link, or a folder with everything in it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.safety.access import Access
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.trees import Judged
from acp_agent.tools.files.entries import delete_access, need_allowed, need_entry, need_saved, not_a_root, told
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


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
