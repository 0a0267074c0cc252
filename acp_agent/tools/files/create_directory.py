"""`create_directory`: make a folder."""

from __future__ import annotations

from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


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
            raise ToolError(f"{params.path} exists and is not a folder. Give another path.")
        return Preview()

    async def run(self, params: CreateDirectoryParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        made = await ctx.files.make_directory(ctx.roots.resolve(params.path))
        if made == 0:
            return ToolResult(f"{params.path} already exists.", raw_output={"folders": 0})
        parents = f", and {made - 1} above it" if made > 1 else ""
        return ToolResult(f"Created the folder {params.path}{parents}.", raw_output={"folders": made})
