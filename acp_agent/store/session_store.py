"""The session store in one SQLite file (`database.py`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from acp_agent.errors import StoreError
from acp_agent.store.audit_heads import AuditHeads
from acp_agent.store.base import Decision, LogEntry, Permission, SessionRecord
from acp_agent.store.database import Database, clean, now
from acp_agent.store.experience import QuestionStore, TrajectoryStore
from acp_agent.store.goal_store import GoalStore
from acp_agent.store.memories import MemoryStore
from acp_agent.store.operation_store import OperationStore
from acp_agent.store.overflow import OverflowStore
from acp_agent.store.schedules import ScheduleStore
from acp_agent.store.spending_store import SpendingStore

INSERT_ENTRY = "INSERT INTO log (session_id, kind, payload) VALUES (?,?,?)"

COLUMNS = "id, cwd, additional_directories, title, created_at, updated_at, mode, model, thought_level, turns, place"


class SessionStore:
    """Every method has its effect on disk when it returns, in the sense that `kill -9` cannot lose it. All raise
    StoreError, with a sentence that says what to do.

    Use from one thread. `busy_timeout` in seconds.
    """

    def __init__(self, path: Path, *, busy_timeout: float = 1.0) -> None:
        self.path = path
        self._db = Database(path, busy_timeout=busy_timeout)
        self.memories = MemoryStore(self._db)
        self.schedules = ScheduleStore(self._db)
        self.overflow = OverflowStore(self._db)
        self.goals = GoalStore(self._db)
        self.trajectories = TrajectoryStore(self._db)
        self.questions = QuestionStore(self._db)
        self.audit_heads = AuditHeads(self._db)
        self.spending = SpendingStore(self._db)
        self.operations = OperationStore(self._db)

    # --- sessions ---------------------------------------------------------------------------------------------

    def create(self, record: SessionRecord) -> None:
        made = record.created_at or now()
        self._db.change(
            f"INSERT INTO sessions ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            record.id,
            record.cwd,
            _directories(record.additional_directories),
            _text(record.title),
            made,
            record.updated_at or made,
            record.mode,
            record.model,
            record.thought_level,
            record.turns,
            record.place,
        )

    def get(self, session_id: str) -> SessionRecord | None:
        rows = self._db.rows(f"SELECT {COLUMNS} FROM sessions WHERE id = ?", session_id)
        return _record(rows[0]) if rows else None

    def change(
        self,
        session_id: str,
        *,
        cwd: str | None = None,
        additional_directories: tuple[str, ...] | None = None,
        title: str | None = None,
        mode: str | None = None,
        model: str | None = None,
        thought_level: str | None = None,
        place: str | None = None,
        new_turn: bool = False,
    ) -> str:
        """Changes what is given and sets `updated_at`, which it returns."""
        changed: dict[str, object] = {"updated_at": (at := now())}
        if additional_directories is not None:
            changed["additional_directories"] = _directories(additional_directories)
        for column, value in (
            ("cwd", cwd), ("title", _text(title)), ("mode", mode), ("model", model), ("thought_level", thought_level),
            ("place", place),
        ):  # fmt: skip
            if value is not None:
                changed[column] = value
        assignments = ", ".join(f"{column} = ?" for column in changed)
        if new_turn:
            assignments += ", turns = turns + 1"
        self._db.change(f"UPDATE sessions SET {assignments} WHERE id = ?", *changed.values(), session_id)
        return at

    def sessions(
        self, *, cwd: str | None, before: tuple[str, str] | None, limit: int, include: Collection[str] = ()
    ) -> list[SessionRecord]:
        """Newest first. Only sessions that have a turn, and those in `include`. `before`: `(updated_at, id)` of the
        last one already seen."""
        places = ",".join("?" * len(include))
        query = f"SELECT {COLUMNS} FROM sessions WHERE (turns > 0 OR id IN ({places}))"
        values: list[object] = list(include)
        if cwd is not None:
            query += " AND cwd = ?"
            values.append(cwd)
        if before is not None:
            query += " AND (updated_at, id) < (?, ?)"
            values.extend(before)
        query += " ORDER BY updated_at DESC, id DESC LIMIT ?"
        return [_record(row) for row in self._db.rows(query, *values, limit)]

    def delete(self, session_id: str) -> bool:
        """Removes the session and its log; False when there was none."""
        return self._db.change("DELETE FROM sessions WHERE id = ?", session_id) > 0

    # --- log --------------------------------------------------------------------------------------------------

    def append(self, session_id: str, entries: Sequence[LogEntry]) -> Sequence[int]:
        """Returns the place of each in the log."""
        if not entries:
            return ()
        rows = [(session_id, entry.kind, entry.payload) for entry in entries]
        try:
            if len(rows) == 1:
                with self._db.read() as db:  # One statement is a transaction by itself.
                    return (db.execute(INSERT_ENTRY, rows[0]).lastrowid or 0,)
            with self._db.write() as db:
                db.executemany(INSERT_ENTRY, rows)
                last = int(db.execute("SELECT last_insert_rowid()").fetchone()[0])
            return range(last - len(rows) + 1, last + 1)  # Of one transaction they follow each other.
        except StoreError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise StoreError(f"session {session_id} was deleted and can store nothing more") from error
            raise

    def entries(self, session_id: str) -> list[LogEntry]:
        """The whole log, oldest first."""
        rows = self._db.rows("SELECT kind, payload FROM log WHERE session_id = ? ORDER BY seq", session_id)
        return [LogEntry(*row) for row in rows]

    def so_far(self, session_id: str) -> tuple[list[LogEntry], int]:
        """The whole log, and the place of its last entry."""
        rows = self._db.rows("SELECT kind, payload, seq FROM log WHERE session_id = ? ORDER BY seq", session_id)
        return [LogEntry(*row[:2]) for row in rows], rows[-1][2] if rows else 0

    def last(self, session_id: str) -> int:
        """The place of the last entry of its log; 0: there is none."""
        rows = self._db.rows("SELECT max(seq) FROM log WHERE session_id = ?", session_id)
        return rows[0][0] or 0

    def page(self, session_id: str, after: int, limit: int) -> list[tuple[int, bytes]]:
        """What the client was shown, oldest first: the place of each in the log, behind `after`, and its JSON."""
        query = "SELECT seq, payload FROM log WHERE session_id = ? AND seq > ? AND kind = 'update' ORDER BY seq LIMIT ?"
        return [(row[0], row[1]) for row in self._db.rows(query, session_id, after, limit)]

    def shown(self, session_id: str) -> int:
        """How many of these there are."""
        rows = self._db.rows("SELECT count(*) FROM log WHERE session_id = ? AND kind = 'update'", session_id)
        return int(rows[0][0])

    # --- permissions ------------------------------------------------------------------------------------------

    def permissions(self, project: str) -> list[Permission]:
        rows = self._db.rows(
            "SELECT id, project, tool, scope, decision, created_at FROM permissions WHERE project = ? ORDER BY id",
            project,
        )
        return [Permission(*row) for row in rows]

    def remember(self, project: str, tool: str, scope: str, decision: Decision) -> None:
        """Replaces an earlier answer of the same scope."""
        self._db.change(
            "INSERT INTO permissions (project, tool, scope, decision, created_at) VALUES (?,?,?,?,?) "
            "ON CONFLICT (project, tool, scope) DO UPDATE SET decision = excluded.decision",
            *(project, tool, scope, decision, now()),
        )

    def revoke(self, project: str, permission_id: int) -> bool:
        return self._db.change("DELETE FROM permissions WHERE project = ? AND id = ?", project, permission_id) > 0

    def close(self) -> None:
        self._db.close()


def _text(text: str | None) -> str | None:
    return None if text is None else clean(text)


def _directories(directories: tuple[str, ...]) -> str:
    return msgspec.json.encode(directories).decode()


def _record(row: tuple[Any, ...]) -> SessionRecord:
    id_, cwd, directories, *rest = row
    return SessionRecord(id_, cwd, msgspec.json.decode(directories, type=tuple[str, ...]), *rest)
