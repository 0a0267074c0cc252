"""Runs the schedules of a project while one of its sessions is open.

Several sessions, even in several processes, may be open: the store gives each run to exactly one of them. Runs due at
the same time are judged together before the first one starts: waiting for another does not count as late. Runs missed
while no session could run them are reported once, with the reason, and not made up for. No failure of the store or of a
run ends the scheduler.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import anyio

from acp_agent.errors import AgentError, StoreError, ToolError
from acp_agent.lazy import load
from acp_agent.schema.acp import TextContent
from acp_agent.store.base import Schedule
from acp_agent.store.schedules import ScheduleStore

if TYPE_CHECKING:
    from acp_agent.loop.outbox import Outbox
    from acp_agent.loop.turn_queue import TurnQueue
    from acp_agent.safety.folders.paths import Roots
    from acp_agent.schema.acp import ContentBlock

log = logging.getLogger(__name__)

NEXT_RUN = "acp_agent.tools.kit.timing:next_run"

LOOK_AGAIN = 60.0
"""Seconds after which the store is always checked: another agent may have added a schedule."""

TRY_AGAIN = 30.0
"""Seconds after which it continues after a store failure."""

PUNCTUAL = 90.0
"""Seconds a run may be late and still run; later, it counts as missed."""

NEVER = 10 * 365 * 86_400.0
"""Seconds; for a timing that does not recur."""


class Prompted(Protocol):
    """What a scheduled prompt needs of its session."""

    roots: Roots
    queue: TurnQueue
    outbox: Outbox

    async def prompt_unasked(self, blocks: Sequence[ContentBlock], mode: str, announce: Callable[[], str]) -> None: ...


class Scheduler:
    """Of one session."""

    def __init__(self, session: Prompted, store: ScheduleStore, clock: Callable[[], float] = time.time) -> None:
        self._session = session
        self.store = store
        self._clock = clock
        self._changed = anyio.Event()
        self._opened = 0.0
        self._busy = (0.0, 0.0)
        """When the last runs began and ended."""

    def changed(self) -> None:
        """A schedule was added or removed here."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def live(self) -> None:
        """Until it is cancelled."""
        self._opened = self._clock()
        while True:
            changed = self._changed
            try:
                wait = await self._round()
            except AgentError as error:
                log.error("schedules do not run for %g s: %s", TRY_AGAIN, error)
                wait = TRY_AGAIN
            with anyio.move_on_after(wait):
                await changed.wait()

    async def _round(self) -> float:
        """Runs what is due; returns the seconds until the next check."""
        now = self._clock()
        schedules = await self.store.do(self.store.list, self._session.roots.project)
        due = [item for item in schedules if item.next_run <= now]
        if not due:
            return min(schedules[0].next_run - now, LOOK_AGAIN) if schedules else LOOK_AGAIN
        await self._leave_out([item for item in due if now - item.next_run > PUNCTUAL], now)
        for item in due:
            if now - item.next_run <= PUNCTUAL:
                await self._run_one(item)
        self._busy = (now, self._clock())
        return 0.0

    async def _run_one(self, schedule: Schedule) -> None:
        now = self._clock()
        following = self._next(schedule, now)
        if not await self.store.do(self.store.claim, schedule, following, at=now):
            return
        begun = False

        def announce() -> str:
            nonlocal begun
            begun = True
            return f"Scheduled (`{schedule.timing}`): {schedule.prompt}\n\n"

        try:
            await self._session.prompt_unasked([TextContent(text=schedule.prompt)], schedule.mode, announce)
            if not begun and self._session.queue.closed:
                await self._release(schedule, following, begun)
            elif not begun:
                self._session.outbox.tell(f"The scheduled run {schedule.id} was left out: stopped while it waited.")
        except anyio.get_cancelled_exc_class():
            await self._release(schedule, following, begun)
            raise
        except AgentError as error:
            log.error("the scheduled run %s failed: %s", schedule.id, error)
            self._session.outbox.tell(f"The scheduled run {schedule.id} (`{schedule.timing}`) failed: {error}")

    async def _release(self, schedule: Schedule, following: float, begun: bool) -> None:
        """It waited for another turn, and the session ends or moves: it is due again, for whoever can run it."""
        if not begun:
            with suppress(StoreError):
                await self.store.do(self.store.release, schedule, following)

    async def _leave_out(self, late: list[Schedule], now: float) -> None:
        missed: dict[str, list[Schedule]] = {}
        try:
            for item in late:
                if await self.store.do(self.store.claim, item, self._next(item, now), at=None):
                    missed.setdefault(self._reason(item), []).append(item)
        finally:  # Claimed runs are reported, whatever happens to the others.
            for reason, items in missed.items():
                self._session.outbox.tell(_missed(items, reason))

    def _reason(self, schedule: Schedule) -> str:
        """Why it was missed; only what this session can know."""
        began, ended = self._busy
        if schedule.next_run < self._opened:
            return "because no session of this project was open and free"
        if began <= schedule.next_run <= ended:
            return "because this session was busy"
        return "because the machine was asleep or the store failed"

    def _next(self, schedule: Schedule, now: float) -> float:
        try:
            return float(load(NEXT_RUN)(schedule.timing, now, min_interval=0.0))
        except ToolError as error:
            log.warning("the schedule %s does not come again: %s", schedule.id, error)
            return now + NEVER


def _missed(schedules: list[Schedule], reason: str) -> str:
    lines = [
        f"- {item.id} (`{item.timing}`, due {datetime.fromtimestamp(item.next_run):%Y-%m-%d %H:%M}): "
        f"{' '.join(item.prompt.split())[:120]}"
        for item in schedules
    ]
    return f"Scheduled runs were missed, {reason}:\n" + "\n".join(lines)
