"""`switch_mode`: change from planning to working, if the user agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.safety.access import Access, ModeAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, TextContent
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class SwitchModeParams(Params):
    mode: Literal["code"] = Field(default="code", description="The mode to switch to.")
    plan: str = Field(default="", description="What you will do there, for the user's approval (Markdown).")


class SwitchMode(Tool[SwitchModeParams]):
    name = "switch_mode"
    title = "Switch to the mode {mode}"
    aliases = ("exit_plan_mode",)
    kind = "switch_mode"

    def access(self, params: SwitchModeParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [ModeAccess(params.mode)]

    async def preview(self, params: SwitchModeParams, ctx: ToolContext) -> Preview:
        plan = params.plan.strip()
        return Preview((Content(content=TextContent(text=plan)),)) if plan else Preview()

    async def run(self, params: SwitchModeParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        ctx.call.set_mode(params.mode)
        return ToolResult(f"The mode is `{params.mode}` now: you now have the tools that change things. Begin.")
