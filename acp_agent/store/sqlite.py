"""The session store in one SQLite file: WAL, short transactions, shared by all agents of a person.

WAL with `synchronous=NORMAL` keeps every committed transaction through `kill -9` (a power cut may cost the last ones,
never the file). A file that is damaged or made by a newer program is left exactly as it is.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from acp_agent.errors import StoreError
from acp_agent.store.base import Decision, LogEntry, Permission, SessionRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SCHEMA_VERSION", "SQLITE_VERSION", "SqliteStore", "now"]

SQLITE_VERSION = sqlite3.sqlite_version

SCHEMA_VERSION = 1

SCHEMA = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    cwd TEXT NOT NULL,
    additional_directories TEXT NOT NULL,
    title TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    mode TEXT NOT NULL,
    model TEXT NOT NULL,
    thought_level TEXT NOT NULL,
    turns INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_time ON sessions (updated_at DESC, id DESC);
CREATE TABLE log (
    seq INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    payload BLOB NOT NULL
) STRICT;
CREATE INDEX log_by_session ON log (session_id, seq);
CREATE TABLE permissions (
    id INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    tool TEXT NOT NULL,
    scope TEXT NOT NULL,
    decision TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (project, tool, scope)
) STRICT;
"""

INSERT_ENTRY = "INSERT INTO log (session_id, kind, payload) VALUES (?,?,?)"

COLUMNS = "id, cwd, additional_directories, title, created_at, updated_at, mode, model, thought_level, turns"

OPEN_ATTEMPTS = 50
OPEN_PAUSE = 0.02
"""Two agents that make the file at the same moment: SQLite's own busy handler does not cover the switch to WAL."""


def now() -> str:
    """This moment, as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class SqliteStore:
    """Use from one thread. `busy_timeout` in seconds."""

    def __init__(self, path: Path, *, busy_timeout: float = 1.0) -> None:
        self.path = path
        with self._errors():
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.touch(mode=0o600, exist_ok=True)
            except OSError as error:
                raise StoreError(f"{path}: the session database cannot be made: {error.strerror}") from error
            self._db = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise

    def _open(self) -> None:
        db = self._db
        # One statement, one snapshot: another agent may be making the tables at this moment.
        version, tables = db.execute(
            "SELECT (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_master)"
        ).fetchone()
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}: made by a newer acp-agent (format {version}, this one knows {SCHEMA_VERSION}); "
                "update acp-agent, or choose another file with store.path. Nothing was changed."
            )
        if version == 0 and tables:
            raise StoreError(f"{self.path}: is a database of another program; choose another file with store.path")
        for attempt in range(OPEN_ATTEMPTS):
            try:
                db.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError:
                if attempt + 1 == OPEN_ATTEMPTS:
                    raise
                time.sleep(OPEN_PAUSE)
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA foreign_keys=ON")
        if version == 0:
            db.execute("BEGIN IMMEDIATE")
            if db.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            db.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorname", "")
            if code in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
                raise StoreError(
                    f"{self.path}: the session database is damaged ({error}). It was left as it is: move it away to "
                    "start afresh, or choose another file with store.path"
                ) from error
            if code.startswith("SQLITE_BUSY"):
                raise StoreError(f"{self.path}: another agent keeps the session database busy; try again") from error
            raise StoreError(f"{self.path}: the session database cannot be used: {error}") from error

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.rollback()
                raise
            self._db.execute("COMMIT")

    # --- sessions ---------------------------------------------------------------------------------------------

    def create(self, record: SessionRecord) -> None:
        made = record.created_at or now()
        with self._write() as db:
            db.execute(
                f"INSERT INTO sessions ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)",
                (
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
                ),
            )

    def get(self, session_id: str) -> SessionRecord | None:
        with self._errors():
            row = self._db.execute(f"SELECT {COLUMNS} FROM sessions WHERE id = ?", (session_id,)).fetchone()
        return None if row is None else _record(row)

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
        new_turn: bool = False,
    ) -> str:
        changed: dict[str, object] = {"updated_at": (at := now())}
        if additional_directories is not None:
            changed["additional_directories"] = _directories(additional_directories)
        for column, value in (
            ("cwd", cwd), ("title", _text(title)), ("mode", mode), ("model", model), ("thought_level", thought_level),
        ):  # fmt: skip
            if value is not None:
                changed[column] = value
        assignments = ", ".join(f"{column} = ?" for column in changed)
        if new_turn:
            assignments += ", turns = turns + 1"
        with self._write() as db:
            db.execute(f"UPDATE sessions SET {assignments} WHERE id = ?", (*changed.values(), session_id))
        return at

    def sessions(
        self, *, cwd: str | None, before: tuple[str, str] | None, limit: int, include: Collection[str] = ()
    ) -> list[SessionRecord]:
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
        with self._errors():
            return [_record(row) for row in self._db.execute(query, (*values, limit))]

    def delete(self, session_id: str) -> bool:
        with self._write() as db:
            return db.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount > 0

    # --- log --------------------------------------------------------------------------------------------------

    def append(self, session_id: str, entries: Sequence[LogEntry]) -> None:
        if not entries:
            return
        rows = [(session_id, entry.kind, entry.payload) for entry in entries]
        try:
            if len(rows) == 1:
                with self._errors():  # One statement is a transaction by itself.
                    self._db.execute(INSERT_ENTRY, rows[0])
                return
            with self._write() as db:
                db.executemany(INSERT_ENTRY, rows)
        except StoreError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise StoreError(f"session {session_id} was deleted and can keep nothing more") from error
            raise

    def entries(self, session_id: str) -> list[LogEntry]:
        with self._errors():
            rows = self._db.execute(
                "SELECT kind, payload FROM log WHERE session_id = ? ORDER BY seq", (session_id,)
            ).fetchall()
        return [LogEntry(kind, payload) for kind, payload in rows]

    # --- permissions ------------------------------------------------------------------------------------------

    def permissions(self, project: str) -> list[Permission]:
        with self._errors():
            rows = self._db.execute(
                "SELECT id, project, tool, scope, decision, created_at FROM permissions WHERE project = ? ORDER BY id",
                (project,),
            ).fetchall()
        return [Permission(*row) for row in rows]

    def remember(self, project: str, tool: str, scope: str, decision: Decision) -> None:
        with self._write() as db:
            db.execute(
                "INSERT INTO permissions (project, tool, scope, decision, created_at) VALUES (?,?,?,?,?) "
                "ON CONFLICT (project, tool, scope) DO UPDATE SET decision = excluded.decision",
                (project, tool, scope, decision, now()),
            )

    def revoke(self, project: str, permission_id: int) -> bool:
        with self._write() as db:
            found = db.execute("DELETE FROM permissions WHERE project = ? AND id = ?", (project, permission_id))
            return found.rowcount > 0

    def close(self) -> None:
        self._db.close()


def _text(text: str | None) -> str | None:
    """Without lone surrogates, which no database takes."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


def _directories(directories: tuple[str, ...]) -> str:
    return msgspec.json.encode(directories).decode()


def _record(row: tuple[Any, ...]) -> SessionRecord:
    id_, cwd, directories, *rest = row
    return SessionRecord(id_, cwd, msgspec.json.decode(directories, type=tuple[str, ...]), *rest)
