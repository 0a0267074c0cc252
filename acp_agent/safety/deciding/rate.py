"""Limits how many calls of a session may change something within an hour (`tools.risk.max_actions_per_hour`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

HOUR = 3600.0


class ActionRate:
    """A sliding window of one hour. `limit` 0: unlimited."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._times: deque[float] = deque()

    @property
    def used(self) -> int:
        """Actions within the last hour."""
        past = self._clock() - HOUR
        while self._times and self._times[0] <= past:
            self._times.popleft()
        return len(self._times)

    def wait(self) -> float:
        """Seconds until the next action is allowed; 0: now."""
        if not self.limit or self.used < self.limit:
            return 0.0
        return max(0.0, self._times[-self.limit] + HOUR - self._clock())

    def lift(self) -> bool:
        """Resets the hour; False if no call had to wait."""
        waited = self.wait() > 0
        self._times.clear()
        return waited

    def count(self) -> None:
        if self.limit:
            self._times.append(self._clock())
