"""Sessions and panes of tmux: made and ended. That needs no permission: what is run in a pane is judged when it is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class TmuxParams(Params):
    risk: Literal["low", "medium", "high"] = Field(description="How much harm it can do.")
    mutation: bool = Field(description="Whether it changes anything.")
    privesc: bool = Field(description="Whether it uses privileges beyond the user's own (sudo).")
    why: str = Field(description="Its purpose, in one short sentence.", min_length=1)


class SessionParams(TmuxParams):
    session: str = Field(description="Its name: letters, digits, `-` and `_`.", min_length=1)


class PaneParams(TmuxParams):
    pane: str = Field(description="Its name: letters, digits, `-` and `_`.", min_length=1)
    session: str | None = Field(default=None, description="In this session. Default: the shared one.")


def is_there(new: bool) -> str:
    return "was made" if new else "is there already"


class TmuxCreateSession(HarmlessTool[SessionParams]):
    name = "tmux_create_session"
    aliases = ("tmux-create-session",)
    title = "Create the tmux session {session}"
    kind = "execute"

    async def run(self, params: SessionParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        panes = ctx.shell.runs.panes
        made = await panes.make_session(params.session, ctx.call.start_shell)
        return ToolResult(f"The session {params.session} {is_there(made)}; its pane is `shared`.")


class TmuxCreatePane(HarmlessTool[PaneParams]):
    name = "tmux_create_pane"
    aliases = ("tmux-create-pane",)
    title = "Create the tmux pane {pane}"
    kind = "execute"

    async def run(self, params: PaneParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        panes = ctx.shell.runs.panes
        made = await panes.make(panes.key(params.session, params.pane), ctx.call.start_shell)
        return ToolResult(f"The pane {params.pane} {is_there(made)}.")


class TmuxKillSession(HarmlessTool[SessionParams]):
    name = "tmux_kill_session"
    aliases = ("tmux-kill-session",)
    title = "End the tmux session {session}"
    kind = "execute"

    async def run(self, params: SessionParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        await ctx.shell.runs.panes.kill_session(params.session)
        return ToolResult(f"The session {params.session} was ended with its panes and what ran in them.")


class TmuxKillPane(HarmlessTool[PaneParams]):
    name = "tmux_kill_pane"
    aliases = ("tmux-kill-pane",)
    title = "End the tmux pane {pane}"
    kind = "execute"

    async def run(self, params: PaneParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        panes = ctx.shell.runs.panes
        await panes.kill(panes.key(params.session, params.pane))
        return ToolResult(f"The pane {params.pane} was ended with what ran in it.")
