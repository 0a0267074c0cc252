"""`schedule_remove`: end a schedule."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Access, NoAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult


class ScheduleRemoveParams(Params):
    id: str = Field(description="The schedule's id, as `schedule_list` shows it.", min_length=1)


class ScheduleRemove(Tool[ScheduleRemoveParams]):
    name = "schedule_remove"
    aliases = ("cron_remove",)
    kind = "other"

    def describe(self, params: ScheduleRemoveParams, roots: Roots) -> Description:
        return Description(f"Remove the schedule {params.id}")

    def access(self, params: ScheduleRemoveParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [NoAccess()]

    async def run(self, params: ScheduleRemoveParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        project, wanted = str(ctx.roots.cwd), params.id.strip()
        if not ctx.scheduler.store.remove(project, wanted):
            ids = ", ".join(item.id for item in ctx.scheduler.store.list(project)) or "none"
            raise ToolError(f"This project has no schedule {wanted}; it has {ids}.")
        ctx.scheduler.changed()
        return ToolResult(f"Removed the schedule {wanted}.")
