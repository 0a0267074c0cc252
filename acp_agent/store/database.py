"""The one SQLite file of a user: WAL, short transactions, shared by all their agents.

WAL with `synchronous=NORMAL` keeps every committed transaction through `kill -9` (a power cut may cost the last ones,
never the file). A file that is damaged or was created by a newer version is left untouched; one from an older version
is migrated when opened.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from acp_agent.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

SQLITE_VERSION = sqlite3.sqlite_version

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
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
        ) STRICT
        """,
        "CREATE INDEX sessions_by_time ON sessions (updated_at DESC, id DESC)",
        """
        CREATE TABLE log (
            seq INTEGER PRIMARY KEY,
            session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
            kind TEXT NOT NULL,
            payload BLOB NOT NULL
        ) STRICT
        """,
        "CREATE INDEX log_by_session ON log (session_id, seq)",
        """
        CREATE TABLE permissions (
            id INTEGER PRIMARY KEY,
            project TEXT NOT NULL,
            tool TEXT NOT NULL,
            scope TEXT NOT NULL,
            decision TEXT NOT NULL,
            created_at TEXT NOT NULL,
            UNIQUE (project, tool, scope)
        ) STRICT
        """,
    ),
    (
        """
        CREATE TABLE memories (
            id INTEGER PRIMARY KEY,
            project TEXT NOT NULL,
            key TEXT NOT NULL,
            content TEXT NOT NULL,
            category TEXT NOT NULL,
            updated_at TEXT NOT NULL,
            UNIQUE (project, key)
        ) STRICT
        """,
        "CREATE VIRTUAL TABLE memory_words USING fts5 (key, content, content='memories', content_rowid='id')",
        """
        CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
            INSERT INTO memory_words (rowid, key, content) VALUES (new.id, new.key, new.content);
        END
        """,
        """
        CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
            INSERT INTO memory_words (memory_words, rowid, key, content)
            VALUES ('delete', old.id, old.key, old.content);
        END
        """,
        """
        CREATE TRIGGER memories_changed AFTER UPDATE ON memories BEGIN
            INSERT INTO memory_words (memory_words, rowid, key, content)
            VALUES ('delete', old.id, old.key, old.content);
            INSERT INTO memory_words (rowid, key, content) VALUES (new.id, new.key, new.content);
        END
        """,
        """
        CREATE TABLE schedules (
            id TEXT PRIMARY KEY,
            project TEXT NOT NULL,
            timing TEXT NOT NULL,
            prompt TEXT NOT NULL,
            mode TEXT NOT NULL,
            created_at TEXT NOT NULL,
            next_run REAL NOT NULL,
            last_run REAL,
            runs INTEGER NOT NULL
        ) STRICT
        """,
        "CREATE INDEX schedules_by_project ON schedules (project, next_run)",
    ),
    (
        """
        CREATE TABLE tool_overflow (
            id TEXT PRIMARY KEY,
            session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
            tool TEXT NOT NULL,
            created_at TEXT NOT NULL,
            chars INTEGER NOT NULL,
            complete INTEGER NOT NULL,
            content TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX tool_overflow_by_session ON tool_overflow (session_id)",
        "CREATE INDEX tool_overflow_by_time ON tool_overflow (created_at)",
        """
        CREATE TABLE goals (
            id TEXT PRIMARY KEY,
            session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
            text TEXT NOT NULL,
            status TEXT NOT NULL,
            created_at TEXT NOT NULL,
            updated_at TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX goals_by_session ON goals (session_id, status)",
        """
        CREATE TABLE goal_tasks (
            goal_id TEXT NOT NULL REFERENCES goals (id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            id TEXT NOT NULL,
            content TEXT NOT NULL,
            priority TEXT NOT NULL,
            status TEXT NOT NULL,
            depends_on TEXT NOT NULL,
            PRIMARY KEY (goal_id, position)
        ) STRICT
        """,
    ),
    (
        """
        CREATE TABLE trajectories (
            project TEXT NOT NULL,
            steps TEXT NOT NULL,
            failures INTEGER NOT NULL,
            rejected INTEGER NOT NULL,
            updated_at TEXT NOT NULL,
            PRIMARY KEY (project, steps)
        ) STRICT
        """,
        """
        CREATE TABLE questions (
            project TEXT NOT NULL,
            tool TEXT NOT NULL,
            scope TEXT NOT NULL,
            allowed INTEGER NOT NULL,
            rejected INTEGER NOT NULL,
            updated_at TEXT NOT NULL,
            PRIMARY KEY (project, tool, scope)
        ) STRICT
        """,
    ),
)
"""The migrations: each turns format n into format n + 1, starting with an empty file."""

SCHEMA_VERSION = len(MIGRATIONS)

OPEN_ATTEMPTS = 50
OPEN_PAUSE = 0.02
"""Two agents may create the file at the same moment: SQLite's busy handler does not cover the switch to WAL."""


def now() -> str:
    """This moment, as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def clean(text: str) -> str:
    """Replaces lone surrogates, which no database accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Database:
    """Use from one thread. `busy_timeout` in seconds. Raises StoreError, with a sentence that says what to do."""

    def __init__(self, path: Path, *, busy_timeout: float = 1.0) -> None:
        self.path = path
        with self.errors():
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.touch(mode=0o600, exist_ok=True)
            except OSError as error:
                raise StoreError(f"{path}: the session database cannot be created: {error.strerror}") from error
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
                f"{self.path}: created by a newer acp-coder (format {version}, this one knows {SCHEMA_VERSION}); "
                "update acp-coder, or choose another file with store.path. Nothing was changed."
            )
        if version == 0 and tables:
            raise StoreError(f"{self.path}: is another program's database; choose another file with store.path")
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
        if version < SCHEMA_VERSION:
            db.execute("BEGIN IMMEDIATE")  # Another agent may have done it meanwhile: it is looked at again.
            for step in MIGRATIONS[db.execute("PRAGMA user_version").fetchone()[0] :]:
                for statement in step:
                    db.execute(statement)
            db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            db.execute("COMMIT")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns errors of the database into StoreError."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorname", "")
            if code in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
                raise StoreError(
                    f"{self.path}: the session database is damaged ({error}). It was left as is: move it away to start "
                    "afresh, or choose another file with store.path"
                ) from error
            if code.startswith("SQLITE_BUSY"):
                raise StoreError(f"{self.path}: another agent keeps the session database busy; try again") from error
            raise StoreError(f"{self.path}: the session database cannot be used: {error}") from error

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with self.errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.rollback()
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        with self.errors():
            yield self._db

    def close(self) -> None:
        self._db.close()
