"""`schedule_remove`: end a schedule."""

from __future__ import annotations

from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class ScheduleRemoveParams(Params):
    id: str = Field(description="The schedule's id, as `schedule_list` shows it.", min_length=1)


class ScheduleRemove(HarmlessTool[ScheduleRemoveParams]):
    name = "schedule_remove"
    title = "Remove the schedule {id}"
    aliases = ("cron_remove",)
    kind = "other"

    async def run(self, params: ScheduleRemoveParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        project, wanted = ctx.roots.project, params.id.strip()
        store = ctx.scheduler.store
        if not await store.do(store.remove, project, wanted):
            ids = ", ".join(item.id for item in await store.do(store.list, project)) or "none"
            raise ToolError(f"This project has no schedule {wanted}; it has {ids}.")
        ctx.scheduler.changed()
        return ToolResult(f"Removed the schedule {wanted}.")
