"""When something runs next: a cron expression or an interval. Pure, except for the cron library."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from acp_agent.errors import ToolError

UNITS = {
    1: ("s", "sec", "secs", "second", "seconds"),
    60: ("m", "min", "mins", "minute", "minutes"),
    3600: ("h", "hr", "hrs", "hour", "hours"),
    86_400: ("d", "day", "days"),
    604_800: ("w", "week", "weeks"),
}
SECONDS = {word: seconds for seconds, words in UNITS.items() for word in words}
INTERVAL = re.compile(rf"(?:every\s+)?(\d{{1,9}})\s*({'|'.join(SECONDS)})", re.IGNORECASE | re.ASCII)

LONGEST = 10 * 365 * 86_400.0
"""Limits of an interval in seconds."""

FIELDS = 5
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
    """Seconds, for `30m`, `2 hours`, `every 1d`; `None` for a cron expression."""
    found = INTERVAL.fullmatch(timing.strip())
    return None if found is None else float(int(found[1]) * SECONDS[found[2].lower()])


def next_run(timing: str, after: float, *, min_interval: float) -> float:
    """The first time after `after` (Unix time, seconds), in the local zone for cron expressions.

    Raises ToolError for a timing that is invalid, never occurs, or occurs more often than every `min_interval` seconds.
    """
    if (interval := interval_of(timing)) is not None:
        if interval < min_interval:
            raise ToolError(
                f"`{timing}` is too often: the minimum interval is {min_interval:g} s.", "invalid_parameters"
            )
        if interval > LONGEST:
            raise _no_time(timing, f"{LONGEST / 86_400:g} days between two runs is the maximum")
        return after + interval
    expression = NICKNAMES.get(timing.strip().lower(), timing.strip())
    if len(fields := expression.split()) != FIELDS:
        raise _no_time(
            timing, f"it is not an interval, and a cron expression of {len(fields)} fields is not understood"
        )
    try:
        times = CronSim(expression, datetime.fromtimestamp(after, UTC).astimezone().replace(tzinfo=None))
        first, second = next(times), next(times, None)
    except (CronSimError, StopIteration) as error:
        raise _no_time(timing, str(error) or "it never comes") from error
    if second is not None and (second - first).total_seconds() < min_interval:
        raise ToolError(f"`{timing}` is too often: the minimum interval is {min_interval:g} s.", "invalid_parameters")
    return first.timestamp()


def _no_time(timing: str, why: str) -> ToolError:
    return ToolError(
        f"`{timing[:100]}` is not a valid time: {why}.",
        "invalid_parameters",
        suggestion="Give a cron expression of five fields (minute, hour, day, month, weekday; `0 9 * * 1-5`: 9:00 on "
        "weekdays) or an interval (`30m`, `2 hours`, `every 1d`, `1w`).",
    )
