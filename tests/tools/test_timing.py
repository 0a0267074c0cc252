"""When something runs next."""

from datetime import datetime

import pytest

from acp_agent.errors import ToolError
from acp_agent.tools.kit.timing import interval_of, next_run

FRIDAY = datetime(2026, 11, 20, 8, 30).timestamp()


@pytest.mark.parametrize(("timing", "seconds"), [
    ("30s", 30), ("5m", 300), ("90 min", 5400), ("every 2h", 7200), ("1d", 86_400), ("EVERY 1H", 3600),
    ("every 5 minutes", 300), ("1 hour", 3600), ("2 hours", 7200), ("1w", 604_800), ("1 week", 604_800),
    ("10 seconds", 10), ("90 mins", 5400), ("3 days", 259_200),
])  # fmt: skip
def test_intervals(timing, seconds):
    assert interval_of(timing) == seconds
    assert next_run(timing, 1000.0, min_interval=1) == 1000.0 + seconds


@pytest.mark.parametrize(("timing", "expected"), [
    ("0 9 * * *", datetime(2026, 11, 20, 9, 0)), ("0 9 * * 1-5", datetime(2026, 11, 20, 9, 0)),
    ("0 8 * * 1-5", datetime(2026, 11, 23, 8, 0)), ("*/15 * * * *", datetime(2026, 11, 20, 8, 45)),
    ("@daily", datetime(2026, 11, 21, 0, 0)), ("@Weekly", datetime(2026, 11, 22, 0, 0)),
    ("0 0 29 2 *", datetime(2028, 2, 29, 0, 0)),
])  # fmt: skip
def test_cron_expressions_are_in_local_time(timing, expected):
    assert next_run(timing, FRIDAY, min_interval=60) == expected.timestamp()


@pytest.mark.parametrize("timing", [
    "", "soon", "61 * * * *", "* * * *", "0 0 31 2 *", "1 2 3 4 5 6 7", "0 0 9 * * 1", "m", "-5m", "5 fortnights",
    "999999999w", "9" * 5000 + "d", "\0", "0 9 * * mon,\ud800",
])  # fmt: skip
def test_what_is_no_time_is_refused_with_words(timing):
    with pytest.raises(ToolError) as error:
        next_run(timing, FRIDAY, min_interval=60)
    assert error.value.category == "invalid_parameters"
    assert "cron expression" in error.value.suggestion


@pytest.mark.parametrize("timing", ["5s", "0s", "* * * * *"])
def test_what_comes_too_often_is_refused(timing):
    with pytest.raises(ToolError, match="too often"):
        next_run(timing, FRIDAY, min_interval=61)
