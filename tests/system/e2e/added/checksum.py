"""`checksum`: the SHA-256 of a file."""

from __future__ import annotations

from hashlib import sha256

from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.text import need_file
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class ChecksumParams(Params):
    path: str = Field(description="The file.")


class Checksum(PathTool[ChecksumParams]):
    name = "checksum"
    title = "Checksum of {path}"
    aliases = ("sha256",)
    kind = "read"
    reads_only = True
    idempotent = True

    async def run(self, params: ChecksumParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        path, limit = ctx.roots.resolve(params.path), ctx.config.files.max_read_bytes
        if not await need_file(ctx.files, path, params.path, limit):
            raise ToolError(f"{params.path} does not exist.", "permanent_failure")
        return ToolResult(f"{sha256(await ctx.files.read_bytes(path, limit)).hexdigest()}  {params.path}")
