"""Schedules in SQLite. Agents of the same project share them: a due run is claimed by exactly one."""

from __future__ import annotations

import uuid

import msgspec

from acp_agent.store.base import Schedule
from acp_agent.store.database import Part, clean, now

COLUMNS = "id, project, timing, prompt, mode, created_at, next_run, last_run, runs"


class ScheduleStore(Part):
    """All methods raise StoreError."""

    def add(self, project: str, timing: str, prompt: str, next_run: float, mode: str = "code") -> Schedule:
        made = Schedule(uuid.uuid4().hex[:8], project, timing, clean(prompt), mode, now(), next_run)
        self._db.change(f"INSERT INTO schedules ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)", *msgspec.structs.astuple(made))
        return made

    def list(self, project: str) -> list[Schedule]:
        """The next first."""
        rows = self._db.rows(f"SELECT {COLUMNS} FROM schedules WHERE project = ? ORDER BY next_run, id", project)
        return [Schedule(*row) for row in rows]

    def remove(self, project: str, schedule_id: str) -> bool:
        """False where there was none."""
        return self._db.change("DELETE FROM schedules WHERE project = ? AND id = ?", project, schedule_id) > 0

    def claim(self, schedule: Schedule, next_run: float, *, at: float | None) -> bool:
        """Sets the next run. True for exactly one of all agents that claim the same run. `at`: it runs now; `None`: the
        run is skipped."""
        claimed = self._db.change(
            "UPDATE schedules SET next_run = ?, last_run = coalesce(?, last_run), runs = runs + ? "
            "WHERE id = ? AND next_run = ?",
            *(next_run, at, int(at is not None), schedule.id, schedule.next_run),
        )
        return claimed > 0

    def release(self, schedule: Schedule, next_run: float) -> None:
        """Takes back a claim with that `next_run`: the run has not begun, and is due again."""
        self._db.change(
            "UPDATE schedules SET next_run = ?, last_run = ?, runs = ? WHERE id = ? AND next_run = ?",
            *(schedule.next_run, schedule.last_run, schedule.runs, schedule.id, next_run),
        )
