"""The one SQLite file of a user: WAL, short transactions, shared by all their agents.

WAL with `synchronous=NORMAL` keeps every committed transaction through `kill -9` (a power cut may cost the last ones,
never the file). A file that is damaged or was created by a newer version is left untouched; one from an older version
is migrated when opened.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from acp_agent.errors import StoreBusy, StoreConflict, StoreError
from acp_agent.store.base import damaged
from acp_agent.store.database import FORMAT, Database, Words, statements_after

SQLITE_VERSION = sqlite3.sqlite_version

MIGRATIONS = "formats.sql"

WORDS = Words(
    # Each word in quotes: nothing of a query is FTS5 syntax. The beginning of a word is enough.
    wanted=lambda words: " OR ".join(f'"{word}"*' for word in words),
    all_wanted=lambda words: " AND ".join(f'"{word}"*' for word in words),
    memories="FROM memory_words JOIN memories m ON m.id = memory_words.rowid WHERE memory_words MATCH ?",
    best="bm25(memory_words, 2.0, 1.0)",
    shown="FROM shown_words JOIN shown s ON s.seq = shown_words.rowid WHERE shown_words MATCH ?",
)

NO_TEXT = "Could not decode to UTF-8"
"""What Python's SQLite says, without a code."""
OPEN_ATTEMPTS = 50
OPEN_PAUSE = 0.02
"""Two agents may create the file at the same moment: SQLite's busy handler does not cover the switch to WAL."""


class Sqlite(Database):
    """`busy_timeout` in seconds."""

    words = WORDS
    clock = "(julianday('now') - 2440587.5) * 86400.0"

    def __init__(self, path: Path, *, busy_timeout: float = 1.0) -> None:
        self.where = str(path)
        self._again = (path, busy_timeout)
        self._lock = RLock()
        """Held while the connection is in use: before the event loop runs it is used from another thread than later."""
        with self._errors():
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.touch(mode=0o600, exist_ok=True)
            except OSError as error:
                raise StoreError(f"{path}: the session database cannot be created: {error.strerror}") from error
            self._db = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
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
        if version > FORMAT:
            raise StoreError(
                f"{self.where}: created by a newer acp-coder (format {version}, this one knows {FORMAT}); "
                "update acp-coder, or choose another file with store.path. Nothing was changed."
            )
        if version == 0 and tables:
            raise StoreError(f"{self.where}: is another program's database; choose another file with store.path")
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
        if version < FORMAT:
            db.execute("BEGIN IMMEDIATE")  # Another agent may have done it meanwhile: it is looked at again.
            made = db.execute("PRAGMA user_version").fetchone()[0]
            for statement in statements_after(made, MIGRATIONS):
                db.execute(statement)
            db.execute(f"PRAGMA user_version={FORMAT}")
            db.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns errors of the database into StoreError."""
        with self._lock:
            try:
                yield
            except sqlite3.IntegrityError as error:
                raise StoreConflict(f"{self.where}: the session database does not take that: {error}") from error
            except UnicodeDecodeError as error:  # Of SQLite's own words about a text that is none.
                raise damaged(self.where, error) from error
            except sqlite3.DatabaseError as error:
                code = getattr(error, "sqlite_errorname", "")
                if code in ("SQLITE_NOTADB", "SQLITE_CORRUPT") or str(error).startswith(NO_TEXT):
                    raise damaged(self.where, error) from error
                if code.startswith("SQLITE_BUSY"):
                    words = f"{self.where}: another agent keeps the session database busy; try again"
                    raise StoreBusy(words) from error
                raise StoreError(f"{self.where}: the session database cannot be used: {error}") from error

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[_Transaction]:
        with self._errors():
            if durable:
                self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield _Transaction(self._db)
            except BaseException:
                self._db.rollback()
                raise
            self._db.execute("COMMIT")
            if durable:
                self._db.execute("PRAGMA synchronous=NORMAL")

    def rows(self, query: str, *values: object) -> list[Any]:
        with self._errors():
            return self._db.execute(query, values).fetchall()

    def insert(self, statement: str, key: str, *values: object) -> int:
        with self._errors():
            return self._db.execute(statement, values).lastrowid or 0

    def change(self, statement: str, *values: object) -> int:
        with self._errors():
            return self._db.execute(statement, values).rowcount

    def another(self) -> Sqlite:
        path, busy_timeout = self._again
        return Sqlite(path, busy_timeout=busy_timeout)

    def close(self) -> None:
        with self._lock:
            self._db.close()
        if "lane" in vars(self):
            self.lane.end()


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, query: str, *values: object) -> list[Any]:
        return self._db.execute(query, values).fetchall()

    def change(self, statement: str, *values: object) -> int:
        return self._db.execute(statement, values).rowcount

    def many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        self._db.executemany(statement, rows)
