"""Schedules run when they are due, once, and missed runs are reported."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from acp_agent.errors import ProviderError, StoreError
from acp_agent.loop.beside.scheduler import PUNCTUAL, Scheduler
from acp_agent.store.stores import sqlite_store

NOW = 1_000_000.0


class Office:
    """A store, a clock, and what happened."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = sqlite_store(tmp_path / "s.db")
        self.now = NOW
        self.ran: list[str] = []
        self.told: list[str] = []
        self.during: dict[str, float | Exception] = {}
        """What a run takes, by its prompt: seconds, or an error."""
        self.behind: list[str] = []
        """Prompts that wait for another turn."""
        self.waits = True
        self.queue = SimpleNamespace(closed=False)
        self.awaited = 1
        self.happened = anyio.Event()

    def scheduler(self, store=None) -> Scheduler:
        async def run(blocks, mode, announce) -> None:
            prompt = blocks[0].text
            if prompt in self.behind:
                self.happened.set()
                if self.waits:
                    await anyio.sleep_forever()
                return  # As a prompt that is cancelled in the queue.
            announce()
            self.ran.append(prompt)
            if len(self.ran) == self.awaited:
                self.happened.set()
            match self.during.get(prompt, 0.0):
                case Exception() as error:
                    raise error
                case seconds:
                    self.now += seconds

        roots, outbox = SimpleNamespace(project="/p"), SimpleNamespace(tell=self.told.append)
        session: Any = SimpleNamespace(roots=roots, outbox=outbox, prompt_unasked=run, queue=self.queue)
        return Scheduler(session, store or self.store.schedules, clock=lambda: self.now)


@pytest.fixture
def office(tmp_path):
    made = Office(tmp_path)
    yield made
    made.store.close()


async def until(office: Office, *schedulers: Scheduler) -> None:
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
    assert office.ran == ["due"] and office.told == []
    (_, due) = office.store.schedules.list("/p")
    assert (due.prompt, due.next_run, due.last_run, due.runs) == ("due", NOW + 3600, NOW, 1)


async def test_what_was_missed_is_told_once_and_not_made_up_for(office):
    office.store.schedules.add("/p", "1h", "missed", NOW - PUNCTUAL - 1)
    office.store.schedules.add("/p", "1h", "due", NOW - 5)
    await until(office, office.scheduler(), office.scheduler())
    assert office.ran == ["due"]
    (told,) = office.told
    assert "missed" in told and "due)" not in told


async def test_one_that_is_added_meanwhile_is_noticed(office):
    scheduler = office.scheduler()
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
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduler.live)
        while len(office.ran) < 2:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert office.ran == ["never again", "due"]


class Flaky:
    """A store that fails for a while."""

    def __init__(self, store) -> None:
        self.store = store
        self.works = False
        self.failed = anyio.Event()

    async def do(self, call, *args, **kwargs):
        return call(*args, **kwargs)

    def list(self, project):
        if not self.works:
            self.failed.set()
            raise StoreError("gone")
        return self.store.list(project)

    def claim(self, schedule, next_run, *, at):
        return self.store.claim(schedule, next_run, at=at)


async def test_a_store_that_fails_is_looked_at_again_later(office, caplog):
    office.store.schedules.add("/p", "1h", "due", NOW - 5)
    flaky = Flaky(office.store.schedules)
    scheduler = office.scheduler(flaky)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduler.live)
        await flaky.failed.wait()
        await anyio.lowlevel.checkpoint()
        flaky.works = True
        scheduler.changed()  # As after the pause.
        await office.happened.wait()
        tasks.cancel_scope.cancel()
    assert office.ran == ["due"]
    assert "schedules do not run for 30 s: gone" in caplog.text


@pytest.mark.parametrize("error", [StoreError("the disk is full"), ProviderError("network", "no answer")])
async def test_a_run_that_fails_is_told_and_the_next_one_runs(office, error):
    office.store.schedules.add("/p", "1h", "fails", NOW - 5)
    office.store.schedules.add("/p", "1h", "runs", NOW - 4)
    office.during["fails"] = error
    office.awaited = 2
    await until(office, office.scheduler())
    assert office.ran == ["fails", "runs"]
    (told,) = office.told
    assert told.endswith(f"failed: {error}")


async def test_one_that_waits_behind_another_is_not_missed(office):
    office.store.schedules.add("/p", "1h", "long", NOW - 5)
    office.store.schedules.add("/p", "1h", "behind it", NOW - 4)
    office.during["long"] = 2 * PUNCTUAL
    office.awaited = 2
    await until(office, office.scheduler())
    assert office.ran == ["long", "behind it"] and office.told == []
    assert [item.next_run for item in office.store.schedules.list("/p")] == [NOW + 3600, office.now + 3600]


async def test_what_was_missed_is_told_with_the_reason(office):
    office.store.schedules.add("/p", "1d", "before", NOW - PUNCTUAL - 1)
    office.store.schedules.add("/p", "1d", "long", NOW - 5)
    office.store.schedules.add("/p", "1d", "meanwhile", NOW + 10)
    office.during["long"] = 3600.0
    scheduler = office.scheduler()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduler.live)
        while len(office.told) < 2:
            await anyio.lowlevel.checkpoint()
        office.store.schedules.add("/p", "1d", "in the night", office.now + 10)
        office.now += 30_000
        scheduler.changed()
        while len(office.told) < 3:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert office.ran == ["long"]
    assert "no session of this project was open and free" in office.told[0] and "before" in office.told[0]
    assert "this session was busy" in office.told[1] and "meanwhile" in office.told[1]
    assert "the machine was asleep" in office.told[2] and "in the night" in office.told[2]


async def test_one_that_waits_for_a_turn_when_its_session_ends_is_due_again(office):
    made = office.store.schedules.add("/p", "1h", "waits", NOW - 5)
    office.behind = ["waits"]
    await until(office, office.scheduler())
    assert office.store.schedules.list("/p") == [made]
    office.behind, office.happened = [], anyio.Event()
    await until(office, office.scheduler())
    assert office.ran == ["waits"]


@pytest.mark.parametrize("closed", [True, False])
async def test_one_that_is_stopped_while_it_waits_is_told_or_due_again_if_the_session_ends(office, closed):
    made = office.store.schedules.add("/p", "1h", "waits", NOW - 5)
    office.behind, office.waits, office.queue.closed = ["waits"], False, closed
    await office.scheduler()._round()
    assert (office.store.schedules.list("/p") == [made]) is closed
    assert [("was left out" in words) for words in office.told] == [True] * (not closed)
