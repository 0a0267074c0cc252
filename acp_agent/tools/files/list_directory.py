"""`list_directory`: list the contents of a folder."""

from __future__ import annotations

from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class ListDirectoryParams(Params):
    path: str = Field(default=".", description="The folder, absolute or relative to the working directory.")


class ListDirectory(PathTool[ListDirectoryParams]):
    name = "list_directory"
    title = "List {path}"
    aliases = ("ls",)
    kind = "read"
    reads_only = True
    idempotent = True

    async def run(self, params: ListDirectoryParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        path = ctx.roots.resolve(params.path)
        found = await ctx.files.stat(path)
        if found is None:
            raise ToolError(f"{params.path} does not exist. Use `find_path` to find it.", "invalid_parameters")
        if found.kind != "dir":
            raise ToolError(f"{params.path} is not a folder. Use `read` for a file.")
        listed = await ctx.files.list(path, ctx.config.files.max_results)
        if not (listed.entries or listed.more):
            return ToolResult(f"{params.path} is empty.")
        lines = [f"[{kind}] {name}" for name, kind in listed.entries]
        if listed.more:
            lines.append(f"[{listed.more} more entries are not shown]")
        return ToolResult("\n".join(lines))
