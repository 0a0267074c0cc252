"""Failures, and questions to the user."""

from __future__ import annotations

from collections.abc import Sequence

from acp_agent.store.base import Asked, Trajectory
from acp_agent.store.database import Part, clean, now


class TrajectoryStore(Part):
    """All methods raise StoreError."""

    def learned(self, project: str) -> list[Trajectory]:
        """The newest first."""
        rows = self._db.rows(
            "SELECT steps, failures, rejected FROM trajectories WHERE project = ? ORDER BY updated_at DESC, steps",
            project,
        )
        return [Trajectory(steps, failures, bool(rejected)) for steps, failures, rejected in rows]

    def keep(self, project: str, trajectory: Trajectory, limit: int) -> None:
        """Replaces the one with the same steps; beyond `limit` drops the oldest."""
        with self._db.write() as db:
            db.change(
                "INSERT INTO trajectories (project, steps, failures, rejected, updated_at) VALUES (?,?,?,?,?) "
                "ON CONFLICT (project, steps) DO UPDATE SET failures = excluded.failures, "
                "rejected = excluded.rejected, updated_at = excluded.updated_at",
                *(project, clean(trajectory.steps), trajectory.failures, int(trajectory.rejected), now()),
            )
            db.change(
                "DELETE FROM trajectories WHERE project = ? AND steps NOT IN "
                "(SELECT steps FROM trajectories WHERE project = ? ORDER BY updated_at DESC, steps LIMIT ?)",
                *(project, project, limit),
            )

    def drop(self, project: str, steps: str) -> bool:
        """Removes the one with these steps; False if there is none."""
        return self._db.change("DELETE FROM trajectories WHERE project = ? AND steps = ?", project, steps) > 0

    def forget(self, project: str) -> int:
        """Removes all; returns how many."""
        return self._db.change("DELETE FROM trajectories WHERE project = ?", project)


class QuestionStore(Part):
    """All methods raise StoreError."""

    def answered(self, project: str, tool: str, scopes: Sequence[str], *, allowed: bool) -> None:
        """Counts one question."""
        at = now()
        rows = [(project, tool, clean(scope), int(allowed), int(not allowed), at) for scope in scopes]
        with self._db.write() as db:
            db.many(
                "INSERT INTO questions (project, tool, scope, allowed, rejected, updated_at) VALUES (?,?,?,?,?,?) "
                "ON CONFLICT (project, tool, scope) DO UPDATE SET allowed = questions.allowed + excluded.allowed, "
                "rejected = questions.rejected + excluded.rejected, updated_at = excluded.updated_at",
                rows,
            )

    def counts(self, project: str, limit: int) -> list[Asked]:
        """The most often asked first."""
        rows = self._db.rows(
            "SELECT tool, scope, allowed, rejected FROM questions WHERE project = ? "
            "ORDER BY allowed + rejected DESC, updated_at DESC LIMIT ?",
            project,
            limit,
        )
        return [Asked(*row) for row in rows]
