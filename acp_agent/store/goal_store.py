"""Goals and their task graphs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from acp_agent.store.base import Goal, GoalStatus, GoalTask, read_stored
from acp_agent.store.database import Part, clean, now

LIVE = "status IN ('active', 'paused')"


class GoalStore(Part):
    """All methods raise StoreError."""

    def begin(self, session_id: str, text: str) -> Goal:
        """Creates an active goal; the previous one is abandoned."""
        goal = Goal(str(uuid.uuid4()), session_id, clean(text), "active", now())
        with self._db.write() as db:
            db.change(
                f"UPDATE goals SET status = 'abandoned', updated_at = ? WHERE session_id = ? AND {LIVE}",
                *(goal.created_at, session_id),
            )
            db.change(
                "INSERT INTO goals (id, session_id, text, status, created_at, updated_at) VALUES (?,?,?,?,?,?)",
                *(goal.id, session_id, goal.text, goal.status, goal.created_at, goal.created_at),
            )
        return goal

    def current(self, session_id: str) -> Goal | None:
        """The goal that is active or paused."""
        goals = self._db.rows(
            f"SELECT id, session_id, text, status, created_at FROM goals WHERE session_id = ? AND {LIVE}", session_id
        )
        if not goals:
            return None
        goal_id, session, text, status, created_at = goals[0]
        rows = self._db.rows(
            "SELECT id, content, priority, status, depends_on FROM goal_tasks WHERE goal_id = ? ORDER BY position",
            goal_id,
        )
        tasks = (
            GoalTask(id_, content, priority, done, read_stored(needs, type=tuple[str, ...]))
            for id_, content, priority, done, needs in rows
        )
        return Goal(goal_id, session, text, status, created_at, tuple(tasks))

    def set_tasks(self, goal_id: str, tasks: Sequence[GoalTask]) -> None:
        """Replaces the task graph."""
        rows = [
            (
                goal_id,
                position,
                clean(task.id),
                clean(task.content),
                task.priority,
                task.status,
                clean(msgspec.json.encode(task.depends_on).decode()),
            )
            for position, task in enumerate(tasks)
        ]
        with self._db.write() as db:
            db.change("DELETE FROM goal_tasks WHERE goal_id = ?", goal_id)
            db.many(
                "INSERT INTO goal_tasks (goal_id, position, id, content, priority, status, depends_on) "
                "VALUES (?,?,?,?,?,?,?)",
                rows,
            )
            db.change("UPDATE goals SET updated_at = ? WHERE id = ?", now(), goal_id)

    def set_status(self, goal_id: str, status: GoalStatus) -> None:
        self._db.change("UPDATE goals SET status = ?, updated_at = ? WHERE id = ?", status, now(), goal_id)
