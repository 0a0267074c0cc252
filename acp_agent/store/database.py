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
from typing import TYPE_CHECKING, Any

from acp_agent.errors import StoreBusy, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

SQLITE_VERSION = sqlite3.sqlite_version

FORMATS = Path(__file__).with_name("formats.sql")
FORMAT = 8
"""The last of them."""

OPEN_ATTEMPTS = 50
OPEN_PAUSE = 0.02
"""Two agents may create the file at the same moment: SQLite's busy handler does not cover the switch to WAL."""


def now() -> str:
    """This moment, as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def clean(text: str) -> str:
    """Replaces lone surrogates, which no database accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


def migrations() -> list[list[str]]:
    """The statements of each format, from nothing on."""
    _, *formats = FORMATS.read_text(encoding="utf-8").split("-- format ")
    return [step.strip().split("\n\n")[1:] for step in formats]


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
        if version > FORMAT:
            raise StoreError(
                f"{self.path}: created by a newer acp-coder (format {version}, this one knows {FORMAT}); "
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
        if version < FORMAT:
            db.execute("BEGIN IMMEDIATE")  # Another agent may have done it meanwhile: it is looked at again.
            for step in migrations()[db.execute("PRAGMA user_version").fetchone()[0] :]:
                for statement in step:
                    db.execute(statement)
            db.execute(f"PRAGMA user_version={FORMAT}")
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
                raise StoreBusy(f"{self.path}: another agent keeps the session database busy; try again") from error
            raise StoreError(f"{self.path}: the session database cannot be used: {error}") from error

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction. `durable`: a power cut cannot lose it either."""
        with self.errors():
            if durable:
                self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.rollback()
                raise
            self._db.execute("COMMIT")
            if durable:
                self._db.execute("PRAGMA synchronous=NORMAL")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        with self.errors():
            yield self._db

    def rows(self, query: str, *values: object) -> list[Any]:
        """All that the query finds."""
        with self.read() as db:
            return db.execute(query, values).fetchall()

    def change(self, statement: str, *values: object) -> int:
        """One statement as a transaction; how many rows it was about."""
        with self.write() as db:
            return db.execute(statement, values).rowcount

    def close(self) -> None:
        self._db.close()
