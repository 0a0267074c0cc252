"""`create_directory`: make a folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Access, PathAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult


class CreateDirectoryParams(Params):
    path: str = Field(description="The folder, absolute or relative to the working directory; parents are created.")


class CreateDirectory(Tool[CreateDirectoryParams]):
    name = "create_directory"
    aliases = ("make_directory", "mkdir")
    kind = "edit"

    def describe(self, params: CreateDirectoryParams, roots: Roots) -> Description:
        return Description(f"Create the folder {params.path}", (Location(roots.named(params.path)),))

    def access(self, params: CreateDirectoryParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [PathAccess("write", roots.resolve(params.path))]

    async def preview(self, params: CreateDirectoryParams, ctx: ToolContext) -> Preview:
        found = await ctx.executor.stat(ctx.roots.resolve(params.path))
        if found is not None and found.kind != "dir":
            raise ToolError(f"{params.path} exists and is not a folder. Give another path.")
        return Preview()

    async def run(self, params: CreateDirectoryParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        made = await ctx.executor.make_directory(ctx.roots.resolve(params.path))
        if made == 0:
            return ToolResult(f"{params.path} already exists.", raw_output={"folders": 0})
        parents = f", and {made - 1} above it" if made > 1 else ""
        return ToolResult(f"Created the folder {params.path}{parents}.", raw_output={"folders": made})
