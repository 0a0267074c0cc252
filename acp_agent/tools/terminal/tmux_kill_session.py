"""`tmux_kill_session`: end a session of tmux."""

from __future__ import annotations

from acp_agent.tools.kit.base import HarmlessTool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.terminal.tmux_params import SessionParams


class TmuxKillSession(HarmlessTool[SessionParams]):
    name = "tmux_kill_session"
    aliases = ("tmux-kill-session",)
    title = "End the tmux session {session}"
    kind = "execute"

    async def run(self, params: SessionParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        await ctx.shell.runs.panes.kill_session(params.session)
        return ToolResult(f"The session {params.session} was ended with its panes and what ran in them.")
