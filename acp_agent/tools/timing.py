"""When something runs again: a cron expression or an interval. Pure, but for the cron library."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from acp_agent.errors import ToolError

__all__ = ["interval_of", "next_run"]

INTERVAL = re.compile(r"(?:every\s+)?(\d+)\s*(s|sec|m|min|h|d)", re.IGNORECASE)
SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def interval_of(timing: str) -> float | None:
    """Seconds, for `30m`, `2h`, `every 1d`; `None` for a cron expression."""
    found = INTERVAL.fullmatch(timing.strip())
    return None if found is None else float(int(found[1]) * SECONDS[found[2].lower()])


def next_run(timing: str, after: float, *, min_interval: float) -> float:
    """The first time after `after` (Unix time, seconds), in the local zone for cron expressions.

    Raises ToolError for a timing that is none, that never comes, or that comes more often than `min_interval` seconds.
    """
    if (interval := interval_of(timing)) is not None:
        if interval < min_interval:
            raise ToolError(
                f"`{timing}` is too often: {min_interval:g} s between two runs are the least.", "invalid_parameters"
            )
        return after + interval
    expression = NICKNAMES.get(timing.strip().lower(), timing.strip())
    try:
        times = CronSim(expression, datetime.fromtimestamp(after, UTC).astimezone().replace(tzinfo=None))
        first, second = next(times), next(times, None)
    except (CronSimError, StopIteration) as error:
        raise ToolError(
            f"`{timing}` is no time that comes: {error or 'it never comes'}. Give a cron expression of five fields "
            "(`0 9 * * 1-5`: 9:00 on weekdays) or an interval (`30m`, `2h`, `1d`).",
            "invalid_parameters",
        ) from error
    if second is not None and (second - first).total_seconds() < min_interval:
        raise ToolError(
            f"`{timing}` is too often: {min_interval:g} s between two runs are the least.", "invalid_parameters"
        )
    return first.timestamp()
