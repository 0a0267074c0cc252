"""`schedule_list`: list this project's schedules."""

from __future__ import annotations

from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.schedule_add import when


class ScheduleListParams(Params):
    pass


class ScheduleList(HarmlessTool[ScheduleListParams]):
    name = "schedule_list"
    title = "List the schedules of this project"
    aliases = ("cron_list",)
    kind = "other"
    reads_only = True

    async def run(self, params: ScheduleListParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        store = ctx.scheduler.store
        lines = [
            f"- {item.id} `{item.timing}`, next {when(item.next_run)}, "
            f"{f'last {when(item.last_run)}, {item.runs} runs' if item.last_run is not None else 'never run'}: "
            f"{' '.join(item.prompt.split())[:200]}"
            for item in await store.do(store.list, ctx.roots.project)
        ]
        return ToolResult("\n".join(lines) or "This project has no schedules.")
