"""`read` and `edit` that wait for a file `go` in the working directory, so that a running call can be examined.

The agent loads them as it loads any package's tools, by an entry point; `held` makes the package.
"""

import os
from pathlib import Path

import anyio

from acp_agent.tools.files.edit import Edit, EditParams
from acp_agent.tools.files.read import Read, ReadParams
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult

__all__ = ["TOOLS", "held"]


class HeldRead(Read):
    name = "held_read"
    aliases = ()  # type: ignore[assignment]

    async def run(self, params: ReadParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        await _go(ctx)
        return await super().run(params, ctx, preview)


class HeldEdit(Edit):
    name = "held_edit"
    aliases = ()  # type: ignore[assignment]

    async def run(self, params: EditParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        await _go(ctx)
        return await super().run(params, ctx, preview)


TOOLS = [HeldRead(), HeldEdit()]


async def _go(ctx: ToolContext) -> None:
    while not (ctx.roots.cwd / "go").exists():
        await anyio.sleep(0.02)


def held(folder: Path) -> dict[str, str]:
    """Makes a package with these tools in the folder, and gives the variables by which an agent finds it."""
    (info := folder / "held_tools-1.dist-info").mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: held-tools\nVersion: 1\n", encoding="utf-8")
    entry = "[acp_coder.tools]\nheld = tests.editors.held_tools:TOOLS\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join((str(folder), str(Path(__file__).parents[2])))}
