"""`time`: return the current time."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from email.utils import format_datetime

from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class TimeParams(Params):
    pass


class Time(HarmlessTool[TimeParams]):
    name = "time"
    title = "Look at the clock"
    aliases = ("get_time", "current_time")
    kind = "other"
    reads_only = True

    async def run(self, params: TimeParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        millis = time.time_ns() // 1_000_000
        now = datetime.fromtimestamp(millis / 1000, UTC)
        local = now.astimezone()
        told = {
            "iso_8601_utc": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "rfc_2822_utc": format_datetime(now),
            "unix_millis": millis,
            "local": local.isoformat(timespec="seconds"),
            "local_zone": local.tzname(),
            "weekday": local.strftime("%A"),
        }
        return ToolResult(json.dumps(told, indent=2), raw_output=told)
