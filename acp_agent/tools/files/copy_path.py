"""`copy_path`: copy a file or folder."""

from __future__ import annotations

from pathlib import Path

from acp_agent.executors.base import Tally
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.trees import Judged
from acp_agent.tools.files.entries import Transfer, TransferParams, not_a_root
from acp_agent.tools.kit.tool_context import ToolContext


class CopyPath(Transfer):
    name = "copy_path"
    aliases = ("copy_file",)
    kind = "edit"
    done = "copied"
    verb = "Copy"

    def paths(self, params: TransferParams, roots: Roots) -> tuple[Path, Path]:
        return roots.entry(params.source), not_a_root(roots, params.destination)

    async def transfer(
        self, source: Path, destination: Path, overwrite: bool, judged: Judged, ctx: ToolContext
    ) -> Tally:
        most = ctx.config.files.max_tree_entries
        try:
            return await ctx.files.copy(source, destination, overwrite=overwrite, max_entries=most, judged=judged)
        finally:
            ctx.memory.ledger.forget_below(destination)
