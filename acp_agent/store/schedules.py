"""Schedules in SQLite. Agents of the same project share them: a due run is claimed by exactly one."""

from __future__ import annotations

import uuid

from acp_agent.store.base import Schedule
from acp_agent.store.database import Database, clean, now

COLUMNS = "id, project, timing, prompt, mode, created_at, next_run, last_run, runs"


class ScheduleStore:
    """All methods raise StoreError."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def add(self, project: str, timing: str, prompt: str, next_run: float, mode: str = "code") -> Schedule:
        made = Schedule(uuid.uuid4().hex[:8], project, timing, clean(prompt), mode, now(), next_run)
        with self._db.write() as db:
            db.execute(
                f"INSERT INTO schedules ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)",
                (made.id, project, timing, made.prompt, mode, made.created_at, next_run, None, 0),
            )
        return made

    def list(self, project: str) -> list[Schedule]:
        """The next first."""
        with self._db.read() as db:
            rows = db.execute(
                f"SELECT {COLUMNS} FROM schedules WHERE project = ? ORDER BY next_run, id", (project,)
            ).fetchall()
        return [Schedule(*row) for row in rows]

    def remove(self, project: str, schedule_id: str) -> bool:
        """False where there was none."""
        with self._db.write() as db:
            found = db.execute("DELETE FROM schedules WHERE project = ? AND id = ?", (project, schedule_id))
            return found.rowcount > 0

    def claim(self, schedule: Schedule, next_run: float, *, at: float | None) -> bool:
        """Sets the next run. True for exactly one of all agents that claim the same run. `at`: it runs now; `None`: the
        run is skipped."""
        ran = at is not None
        with self._db.write() as db:
            found = db.execute(
                "UPDATE schedules SET next_run = ?, last_run = coalesce(?, last_run), runs = runs + ? "
                "WHERE id = ? AND next_run = ?",
                (next_run, at, int(ran), schedule.id, schedule.next_run),
            )
            return found.rowcount > 0
