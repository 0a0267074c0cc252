"""`tmux_create_pane`: a shell in a pane of tmux."""

from __future__ import annotations

from acp_agent.tools.kit.base import HarmlessTool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.terminal.tmux_params import PaneParams, is_there


class TmuxCreatePane(HarmlessTool[PaneParams]):
    name = "tmux_create_pane"
    aliases = ("tmux-create-pane",)
    title = "Create the tmux pane {pane}"
    kind = "execute"

    async def run(self, params: PaneParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        panes = ctx.shell.runs.panes
        made = await panes.make(panes.key(params.session, params.pane), ctx.call.start_shell)
        return ToolResult(f"The pane {params.pane} {is_there(made)}.")
