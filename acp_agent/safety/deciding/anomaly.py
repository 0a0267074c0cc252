"""Failure rates of tools: one that fails most of the time is blocked until the user runs `/unblock`.

A command that returns an exit code has worked, a call refused by rules or the user never ran, and a path that does not
exist is the model's mistake: none of these counts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from msgspec import Struct, field

from acp_agent.config.safety_settings import AnomalyConfig


class Anomaly(Struct, frozen=True):
    tool: str
    failed: int
    of: int

    def __str__(self) -> str:
        return f"{self.failed} of the last {self.of} calls of `{self.tool}` failed"


class AnomalyDetector(Struct):
    """A sliding window for each of a session's tools. `alert` is called once per anomaly."""

    config: AnomalyConfig
    alert: Callable[[Anomaly], None] = lambda anomaly: None
    _windows: dict[str, deque[bool]] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    _blocked: dict[str, tuple[Anomaly, float]] = field(default_factory=dict)

    def observed(self, tool: str, *, failed: bool) -> None:
        """Records the end of a call."""
        if not self.config.enabled:
            return
        size = self.config.window_size
        window = self._windows.setdefault(tool, deque(maxlen=size))
        window.append(failed)
        failures = sum(window)
        if len(window) == size and failures / size > self.config.failure_threshold:
            anomaly = Anomaly(tool, failures, size)
            window.clear()
            if self.config.auto_block:
                self._blocked[tool] = anomaly, self.clock()
            self.alert(anomaly)

    def blocks(self, tool: str) -> Anomaly | None:
        return next((anomaly for anomaly in self.blocked if anomaly.tool == tool), None)

    @property
    def blocked(self) -> list[Anomaly]:
        limit, now = self.config.block_seconds, self.clock()
        self._blocked = {name: known for name, known in self._blocked.items() if not limit or now - known[1] < limit}
        return [anomaly for anomaly, _ in self._blocked.values()]

    def unblock(self, tool: str) -> bool:
        """Returns False if it was not blocked."""
        self._windows.pop(tool, None)
        return self._blocked.pop(tool, None) is not None
