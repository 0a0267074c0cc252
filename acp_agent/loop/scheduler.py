"""Runs the schedules of a project while one of its sessions is open.

Several sessions, of several processes even, may be open: the store gives each run to exactly one of them. What was due
while none was open is told once and not made up for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from datetime import datetime

import anyio

from acp_agent.errors import StoreError, ToolError
from acp_agent.lazy import load
from acp_agent.store.base import Schedule, ScheduleStore

__all__ = ["Scheduler"]

log = logging.getLogger(__name__)

NEXT_RUN = "acp_agent.tools.timing:next_run"

LOOK_AGAIN = 60.0
"""Seconds after which the store is looked at in any case: another agent may have added a schedule."""

PUNCTUAL = 90.0
"""Seconds a run may be late and still run: longer, and nobody was there."""

NEVER = 10 * 365 * 86_400.0
"""Seconds; for a timing that does not come again."""


class Scheduler:
    """Of one session. `run` does one schedule's prompt to its end; `tell` tells the person."""

    def __init__(
        self,
        project: str,
        store: ScheduleStore,
        *,
        run: Callable[[Schedule], Awaitable[None]],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._project = project
        self._store = store
        self._run = run
        self._tell = tell
        self._clock = clock
        self._changed = anyio.Event()

    def changed(self) -> None:
        """A schedule was added or removed here."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def live(self) -> None:
        """Until it is cancelled."""
        try:
            self._tell_missed()
            while True:
                changed = self._changed
                wait = await self._round()
                with anyio.move_on_after(wait):
                    await changed.wait()
        except StoreError as error:
            log.error("schedules do not run: %s", error)

    async def _round(self) -> float:
        """Runs what is due; gives the seconds until something may be."""
        for schedule in self._store.list(self._project):
            now = self._clock()
            if schedule.next_run > now:
                return min(schedule.next_run - now, LOOK_AGAIN)
            late = now - schedule.next_run > PUNCTUAL
            if self._store.claim(schedule, self._next(schedule, now), at=None if late else now):
                if late:
                    self._tell(_missed([schedule]))
                else:
                    await self._run(schedule)
            return 0.0
        return LOOK_AGAIN

    def _tell_missed(self) -> None:
        now = self._clock()
        due = [item for item in self._store.list(self._project) if now - item.next_run > PUNCTUAL]
        missed = [item for item in due if self._store.claim(item, self._next(item, now), at=None)]
        if missed:
            self._tell(_missed(missed))

    def _next(self, schedule: Schedule, now: float) -> float:
        try:
            return float(load(NEXT_RUN)(schedule.timing, now, min_interval=0.0))
        except ToolError as error:
            log.warning("the schedule %s does not come again: %s", schedule.id, error)
            return now + NEVER


def _missed(schedules: list[Schedule]) -> str:
    lines = [
        f"- {item.id} (`{item.timing}`, due {datetime.fromtimestamp(item.next_run):%Y-%m-%d %H:%M}): "
        f"{' '.join(item.prompt.split())[:120]}"
        for item in schedules
    ]
    return "Scheduled runs were missed, since no session of this project was open:\n" + "\n".join(lines)
