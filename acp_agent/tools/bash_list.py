"""`bash_list`: the commands in the background."""

from __future__ import annotations

from pathlib import Path

from acp_agent.config.model import ToolsConfig
from acp_agent.safety.access import Access, NoAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult


class BashListParams(Params):
    """None."""


class BashList(Tool[BashListParams]):
    name = "bash_list"
    kind = "read"
    reads_only = True

    def describe(self, params: BashListParams, roots: Roots) -> Description:
        return Description("List the background commands")

    def access(self, params: BashListParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [NoAccess()]

    async def run(self, params: BashListParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        states = ctx.shell.runs.states()
        lines = [f"{state.run_id} [{state.words}] {' '.join(state.command.split())}" for state in states]
        return ToolResult("\n".join(lines) or "[no command runs in the background, nor did any]")
