"""`schedule_add`, `schedule_list`, `schedule_remove`: prompts that are run regularly."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Access, ToolAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, TextContent
from acp_agent.tools.kit.base import HarmlessTool, Params, Tool
from acp_agent.tools.kit.timing import next_run
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult


class ScheduleAddParams(Params):
    timing: str = Field(
        description="A cron expression of five fields in local time, or an interval: `30m`, `2h`, `1d`.", min_length=1
    )
    prompt: str = Field(description="The prompt to run then, self-contained.", min_length=1)


def when(moment: float) -> str:
    """A Unix time as local time, for people."""
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M %Z")


class ScheduleAdd(Tool[ScheduleAddParams]):
    name = "schedule_add"
    aliases = ("cron_add",)
    kind = "other"

    def describe(self, params: ScheduleAddParams, roots: Roots) -> Description:
        return Description(f"Schedule ({params.timing[:40]}): {' '.join(params.prompt.split())[:80]}")

    def access(self, params: ScheduleAddParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [ToolAccess("schedule add", "new schedules in this project")]

    async def preview(self, params: ScheduleAddParams, ctx: ToolContext) -> Preview:
        config = ctx.config.schedule
        store = ctx.scheduler.store
        known = len(await store.do(store.list, ctx.roots.project))
        if known >= config.max_schedules:
            raise ToolError(f"This project has {known} schedules, which is the maximum. Remove one first.")
        first = next_run(params.timing, time.time(), min_interval=config.min_interval)
        mode = ctx.call.mode
        text = (
            f"Runs `{params.timing}`, first {when(first)}, while a session is open here, with no more permissions than "
            f"the mode `{mode}`:\n\n{params.prompt}"
        )
        return Preview((Content(content=TextContent(text=text)),), first)

    async def run(self, params: ScheduleAddParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        prompt = ctx.redactor.redact(params.prompt)
        store, about = ctx.scheduler.store, (ctx.roots.project, params.timing.strip(), prompt)
        made = await store.do(store.add, *about, preview.state, ctx.call.mode)
        ctx.scheduler.changed()
        return ToolResult(
            f"Schedule {made.id} runs first {when(made.next_run)}, while a session of this project is open."
        )


class ScheduleList(HarmlessTool[Params]):
    name = "schedule_list"
    title = "List the schedules of this project"
    aliases = ("cron_list",)
    kind = "other"
    reads_only = True

    async def run(self, params: Params, ctx: ToolContext, preview: Preview) -> ToolResult:
        store = ctx.scheduler.store
        lines = [
            f"- {item.id} `{item.timing}`, next {when(item.next_run)}, "
            f"{f'last {when(item.last_run)}, {item.runs} runs' if item.last_run is not None else 'never run'}: "
            f"{' '.join(item.prompt.split())[:200]}"
            for item in await store.do(store.list, ctx.roots.project)
        ]
        return ToolResult("\n".join(lines) or "This project has no schedules.")


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
