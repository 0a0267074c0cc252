"""`tmux_kill_pane`: end a pane of tmux."""

from __future__ import annotations

from acp_agent.tools.kit.base import HarmlessTool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.terminal.tmux_params import PaneParams


class TmuxKillPane(HarmlessTool[PaneParams]):
    name = "tmux_kill_pane"
    aliases = ("tmux-kill-pane",)
    title = "End the tmux pane {pane}"
    kind = "execute"

    async def run(self, params: PaneParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        panes = ctx.shell.runs.panes
        await panes.kill(panes.key(params.session, params.pane))
        return ToolResult(f"The pane {params.pane} was ended with what ran in it.")
