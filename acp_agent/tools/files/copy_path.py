"""`copy_path`: copy a file or folder."""

from __future__ import annotations

from pathlib import Path

from acp_agent.config.model import ToolsConfig
from acp_agent.safety.access import Access, PathAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.files.entries import (
    TransferParams,
    check_transfer,
    describe_transfer,
    not_a_root,
    told,
    write_access,
)
from acp_agent.tools.kit.base import Tool
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult


class CopyPath(Tool[TransferParams]):
    name = "copy_path"
    aliases = ("copy_file",)
    kind = "edit"

    def describe(self, params: TransferParams, roots: Roots) -> Description:
        return describe_transfer("Copy", params, roots)

    def access(self, params: TransferParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        source, destination = _paths(params, roots)
        return [PathAccess("read", source), *write_access(source, destination, params.overwrite, roots, config)]

    async def preview(self, params: TransferParams, ctx: ToolContext) -> Preview:
        source, destination = _paths(params, ctx.roots)
        await check_transfer(params, source, destination, ctx)
        return Preview(state=(source, destination))

    async def run(self, params: TransferParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        source, destination = preview.state
        await check_transfer(params, source, destination, ctx)
        most = ctx.config.files.max_tree_entries
        try:
            tally = await ctx.executor.copy(source, destination, overwrite=params.overwrite, max_entries=most)
        finally:
            ctx.memory.ledger.forget_below(destination)
        return told(f"{params.source} was copied to {params.destination}", tally)


def _paths(params: TransferParams, roots: Roots) -> tuple[Path, Path]:
    return roots.entry(params.source), not_a_root(roots, params.destination)
