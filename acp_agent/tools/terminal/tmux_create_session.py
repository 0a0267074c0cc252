"""`tmux_create_session`: a session of tmux with a shared shell."""

from __future__ import annotations

from acp_agent.tools.kit.base import HarmlessTool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.terminal.tmux_params import SessionParams, is_there


class TmuxCreateSession(HarmlessTool[SessionParams]):
    name = "tmux_create_session"
    aliases = ("tmux-create-session",)
    title = "Create the tmux session {session}"
    kind = "execute"

    async def run(self, params: SessionParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        panes = ctx.shell.runs.panes
        made = await panes.make_session(params.session, ctx.call.start_shell)
        return ToolResult(f"The session {params.session} {is_there(made)}; its pane is `shared`.")
