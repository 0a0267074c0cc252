"""`move_path`: move or rename a file or folder."""

from __future__ import annotations

from pathlib import Path

from acp_agent.executors.base import Tally
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.trees import Judged
from acp_agent.tools.files.entries import Transfer, TransferParams, not_a_root
from acp_agent.tools.kit.tool_context import ToolContext


class MovePath(Transfer):
    name = "move_path"
    aliases = ("rename_path", "move_file")
    kind = "move"
    done = "moved"
    verb = "Move"

    def paths(self, params: TransferParams, roots: Roots) -> tuple[Path, Path]:
        return not_a_root(roots, params.source), not_a_root(roots, params.destination)

    async def transfer(
        self, source: Path, destination: Path, overwrite: bool, judged: Judged, ctx: ToolContext
    ) -> Tally:
        most = ctx.config.files.max_tree_entries
        try:
            return await ctx.files.move(source, destination, overwrite=overwrite, max_entries=most, judged=judged)
        finally:
            ctx.memory.ledger.forget_below(source)
            ctx.memory.ledger.forget_below(destination)
