"""`schedule_add`: run a prompt regularly."""

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
from acp_agent.tools.kit.base import Params, Tool
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
