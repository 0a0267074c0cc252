"""Schedules run when they are due, once, and what was missed is told."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from acp_agent.errors import StoreError
from acp_agent.loop.scheduler import PUNCTUAL, Scheduler
from acp_agent.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

NOW = 1_000_000.0


class Office:
    """A store, a clock, and what happened."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = SqliteStore(tmp_path / "s.db")
        self.now = NOW
        self.ran: list[str] = []
        self.told: list[str] = []
        self.happened = anyio.Event()

    def scheduler(self) -> Scheduler:
        async def run(schedule) -> None:
            self.ran.append(schedule.prompt)
            self.happened.set()

        return Scheduler("/p", self.store.schedules, run=run, tell=self.told.append, clock=lambda: self.now)


@pytest.fixture
def office(tmp_path):
    made = Office(tmp_path)
    yield made
    made.store.close()


async def until(office: Office, *schedulers: Scheduler) -> None:
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for scheduler in schedulers:
                tasks.start_soon(scheduler.live)
            await office.happened.wait()
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def test_what_is_due_runs_once_and_the_next_time_is_set(office):
    office.store.schedules.add("/p", "1h", "due", NOW - 5)
    office.store.schedules.add("/p", "1h", "later", NOW + 500)
    office.store.schedules.add("/q", "1h", "of another project", NOW - 5)
    await until(office, office.scheduler(), office.scheduler())
    assert office.ran == ["due"]
    assert office.told == []
    (_, due) = office.store.schedules.list("/p")
    assert (due.prompt, due.next_run, due.last_run, due.runs) == ("due", NOW + 3600, NOW, 1)


async def test_what_was_missed_is_told_once_and_not_made_up_for(office):
    office.store.schedules.add("/p", "1h", "missed", NOW - PUNCTUAL - 1)
    office.store.schedules.add("/p", "1h", "due", NOW - 5)
    await until(office, office.scheduler(), office.scheduler())
    assert office.ran == ["due"]
    (told,) = office.told
    assert "missed" in told
    assert "due)" not in told


async def test_one_that_is_added_meanwhile_is_noticed(office):
    scheduler = office.scheduler()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduler.live)
            await anyio.lowlevel.checkpoint()
            office.store.schedules.add("/p", "1h", "new", NOW)
            scheduler.changed()
            await office.happened.wait()
            tasks.cancel_scope.cancel()
    assert office.ran == ["new"]


async def test_one_that_never_comes_again_is_put_off_and_stops_nothing(office):
    office.store.schedules.add("/p", "0 0 31 2 *", "never again", NOW - 5)
    office.store.schedules.add("/p", "1h", "due", NOW - 4)
    scheduler = office.scheduler()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduler.live)
            while len(office.ran) < 2:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert office.ran == ["never again", "due"]


async def test_a_store_that_fails_ends_the_scheduler_and_nothing_else(office, caplog):
    class Broken:
        def list(self, project):
            raise StoreError("gone")

    scheduler = Scheduler("/p", Broken(), run=None, tell=office.told.append)
    with anyio.fail_after(10):
        await scheduler.live()
    assert "schedules do not run: gone" in caplog.text
