"""The rows of the undo log: operations and what each changed. Entries are text that `undo` reads; here they mean
nothing."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from acp_agent.errors import StoreConflict, StoreError
from acp_agent.store.base import read_stored
from acp_agent.store.database import Part, Transaction, clean, now

COLUMNS = "id, session_id, prompt, call, made_by, title, created_at, state, uncovered, undoes, rewound"


class OperationRow(msgspec.Struct, frozen=True, array_like=True):
    id: int
    session_id: str
    prompt: int
    call: str
    made_by: str
    title: str
    created_at: str
    """ISO 8601, UTC."""
    state: str
    uncovered: str
    undoes: tuple[int, ...]
    rewound: int


ChangeRow = tuple[int, int, bytes, str, str | None]
"""Its id, its operation's, path, entry before, entry after (`None`: not known yet)."""


class OperationStore(Part):
    """All methods raise StoreError."""

    def add(
        self,
        session_id: str,
        prompt: int,
        call: str,
        made_by: str,
        title: str,
        state: str,
        changes: Iterable[tuple[bytes, str, str | None]] = (),
        undoes: Iterable[int] = (),
        rewound: int = 0,
    ) -> tuple[int, list[int]]:
        """One operation with its changes; their ids. One that is running is on the disk when this returns."""
        try:
            with self._db.write(durable=state == "running") as db:
                values = (session_id, prompt, call, made_by, clean(title), now(), state, "")
                ((added,),) = db.rows(
                    "INSERT INTO operations (session_id, prompt, call, made_by, title, created_at, state, uncovered, "
                    "undoes, rewound) VALUES (?,?,?,?,?,?,?,?,?,?) RETURNING id",
                    *(*values, msgspec.json.encode(tuple(undoes)).decode(), rewound),
                )
                return added, _insert(db, added, changes)
        except StoreConflict as error:
            raise StoreError(f"session {session_id} was deleted and can store nothing more") from error

    def more(self, operation: int, changes: Iterable[tuple[bytes, str, str | None]]) -> list[int]:
        """Adds changes to an operation; their ids."""
        with self._db.write() as db:
            return _insert(db, operation, changes)

    def more_at_once(self, operation: int, changes: Iterable[tuple[bytes, str, str | None]]) -> None:
        """As `more`, for many."""
        with self._db.write() as db:
            rows = ((operation, *change) for change in changes)
            db.many("INSERT INTO changes (operation, path, before, after) VALUES (?,?,?,?)", rows)

    def know(self, after: Iterable[tuple[int, str]]) -> None:
        """What is at the paths of these changes (by id) after them."""
        with self._db.write() as db:
            db.many("UPDATE changes SET after = ? WHERE id = ?", [(text, id_) for id_, text in after])

    def drop(self, changes: Iterable[int]) -> None:
        """Removes changes that were none."""
        with self._db.write() as db:
            db.many("DELETE FROM changes WHERE id = ?", [(id_,) for id_ in changes])

    def set_states(self, states: Iterable[tuple[int, str]]) -> None:
        """Of operations, by id; all at once."""
        with self._db.write() as db:
            db.many("UPDATE operations SET state = ? WHERE id = ?", [(state, id_) for id_, state in states])

    def say(self, operation: int, uncovered: str) -> None:
        """Says what of it cannot be taken back."""
        self._db.change("UPDATE operations SET uncovered = ? WHERE id = ?", clean(uncovered), operation)

    def of_session(self, session_id: str) -> list[OperationRow]:
        """Oldest first."""
        return self._operations("session_id = ? ORDER BY id", session_id)

    def running(self) -> list[OperationRow]:
        """Undos that have not ended, of all sessions."""
        return self._operations("state = 'running'")

    def get(self, operation: int) -> OperationRow | None:
        return next(iter(self._operations("id = ?", operation)), None)

    def _operations(self, where: str, *values: object) -> list[OperationRow]:
        rows = self._db.rows(f"SELECT {COLUMNS} FROM operations WHERE {where}", *values)
        return [msgspec.convert((*row[:9], read_stored(row[9]), row[10]), OperationRow) for row in rows]

    def changes(self, operations: Iterable[int]) -> list[ChangeRow]:
        """Of these operations, in the order in which they were made."""
        found: list[ChangeRow] = []
        for operation in operations:
            query = "SELECT id, operation, path, before, after FROM changes WHERE operation = ?"
            found += self._db.rows(query, operation)
        return sorted(found)

    def expire(self, before: str) -> int:
        """Removes operations made before that time (ISO 8601, UTC), but no running ones; how many."""
        return self._db.change("DELETE FROM operations WHERE created_at < ? AND state <> 'running'", before)

    def oldest(self, count: int) -> list[int]:
        """The ids of the oldest operations that are not running."""
        rows = self._db.rows("SELECT id FROM operations WHERE state <> 'running' ORDER BY id LIMIT ?", count)
        return [row[0] for row in rows]

    def remove(self, operations: Iterable[int]) -> None:
        with self._db.write() as db:
            db.many("DELETE FROM operations WHERE id = ?", [(id_,) for id_ in operations])

    def entries(self) -> list[str]:
        """The texts of all entries."""
        query = "SELECT before FROM changes UNION SELECT after FROM changes WHERE after IS NOT NULL"
        return [row[0] for row in self._db.rows(query)]


def _insert(db: Transaction, operation: int, changes: Iterable[tuple[bytes, str, str | None]]) -> list[int]:
    added = []
    for change in changes:
        query = "INSERT INTO changes (operation, path, before, after) VALUES (?,?,?,?) RETURNING id"
        added.append(db.rows(query, operation, *change)[0][0])
    return added
