"""`switch_mode`: puts a plan before the user; if it is approved, changes from planning to working."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.legible import legible
from acp_agent.safety.access import Access, ModeAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, TextContent
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult

HIDES = "<!--"
"""Begins what a view of Markdown leaves out."""


class SwitchModeParams(Params):
    mode: Literal["code"] = Field(default="code", description="The mode to switch to.")
    plan: str = Field(description="All you will do there, for the user's approval (Markdown).", min_length=1)


class SwitchMode(Tool[SwitchModeParams]):
    name = "switch_mode"
    title = "Plan for your approval"
    aliases = ("exit_plan_mode",)
    kind = "switch_mode"

    def access(self, params: SwitchModeParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [ModeAccess(params.mode)]

    async def preview(self, params: SwitchModeParams, ctx: ToolContext) -> Preview:
        """Raises ToolError for a plan that the user would not see as a whole."""
        plan, most = params.plan.replace("\r\n", "\n").strip(), ctx.config.max_plan_chars
        trouble = "is empty" if not plan else ""
        if len(plan) > most:
            trouble = f"has {len(plan)} characters, more than {most}; shorten it"
        elif legible(plan) != plan or HIDES in plan:
            trouble = "contains characters or comments that a user would not see; leave them out"
        if trouble:
            raise ToolError(f"The plan was not shown to the user: it {trouble}.", "invalid_parameters")
        return Preview((Content(content=TextContent(text=plan)),))

    async def run(self, params: SwitchModeParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        await ctx.call.set_mode(preview.mode or params.mode)
        told = f"The user approved the plan. The mode is `{ctx.call.mode}` now: you now have the tools that change "
        return ToolResult(f"{told}things. Begin.", content=preview.content)
