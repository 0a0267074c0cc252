"""The session store: sessions, their logs, remembered answers, and the parts beside them."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from acp_agent.errors import StoreConflict, StoreError
from acp_agent.lazy import load
from acp_agent.store.audit_heads import AuditHeads
from acp_agent.store.base import ClientPrompt, Decision, ListedSession, LogEntry, Permission, SessionRecord, read_stored
from acp_agent.store.database import Database, Part, Transaction, clean, now
from acp_agent.store.experience import QuestionStore, TrajectoryStore
from acp_agent.store.found_words import History
from acp_agent.store.goal_store import GoalStore
from acp_agent.store.memories import MemoryStore
from acp_agent.store.operation_store import OperationStore
from acp_agent.store.overflow import OverflowStore
from acp_agent.store.schedules import ScheduleStore
from acp_agent.store.spending_store import SpendingStore

if TYPE_CHECKING:
    from acp_agent.store.leases import Leases

LEASES = "acp_agent.store.leases:Leases"
"""The first `session/new` does not need it."""
INSERT_ENTRY = "INSERT INTO log (session_id, kind, payload) VALUES (?,?,?)"
INSERT_ENTRIES = "INSERT INTO log (session_id, kind, payload) VALUES {} RETURNING seq, session_id"
AT_ONCE = 500
"""Entries of one statement."""

STALE_SECONDS = 1.0
"""How long what was remembered for a project is taken as known without asking the database."""

_Entries = tuple[str, Sequence[LogEntry]]
"""What is to be stored of a session."""

LISTED = "id, cwd, additional_directories, title, created_at, updated_at, mode, model, turns, real_cwd, archived"
WHOLE = f"{LISTED}, thought_level, place, client_prompt"


class SessionStore(Part):
    """Every method has its effect on disk when it returns, in the sense that `kill -9` cannot lose it. All raise
    StoreError, with a sentence that says what to do."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self._answers: dict[str, tuple[float, list[Permission]]] = {}
        """By project, with the time at which they were read."""
        self.memories = MemoryStore(self._db)
        self.schedules = ScheduleStore(self._db)
        self.overflow = OverflowStore(self._db)
        self.goals = GoalStore(self._db)
        self.trajectories = TrajectoryStore(self._db)
        self.questions = QuestionStore(self._db)
        self.audit_heads = AuditHeads(self._db)
        self.spending = SpendingStore(self._db)
        self.operations = OperationStore(self._db)
        self.history = History(self._db)

    @cached_property
    def leases(self) -> Leases:
        made: Leases = load(LEASES)(self._db)
        return made

    # --- sessions ---------------------------------------------------------------------------------------------

    def create(self, record: SessionRecord, parent: str | None = None) -> None:
        """`parent`: the session whose sub-agent it is, with which it goes until it has a turn."""
        made = record.created_at or now()
        self._db.change(
            f"INSERT INTO sessions ({WHOLE}, parent) VALUES (?,?,?,?,?,?,?,?,?,?,0,?,?,?,?)",
            record.id,
            record.cwd,
            _directories(record.additional_directories),
            _text(record.title),
            made,
            record.updated_at or made,
            record.mode,
            record.model,
            record.turns,
            record.real,
            record.thought_level,
            record.place,
            _json(record.client_prompt),
            parent,
        )

    def create_child(self, session_id: str, parent: str, **about: Any) -> None:
        """A session for a sub-agent of `parent`, which is like that but for what is stated."""
        if (record := self.get(parent)) is None:
            raise StoreError(f"session {parent} was deleted")
        self.create(replace(record, id=session_id, turns=0, created_at="", updated_at="", **about), parent)

    def get(self, session_id: str) -> SessionRecord | None:
        rows = self._db.rows(f"SELECT {WHOLE} FROM sessions WHERE id = ?", session_id)
        if not rows:
            return None
        *listed, thought_level, place, told = rows[0]
        client_prompt = read_stored(told, type=ClientPrompt) if told else None
        whole: tuple[Any, ...] = (*_columns(listed), thought_level, place, client_prompt)
        return SessionRecord(*whole)

    def instruct(self, session_id: str, told: ClientPrompt) -> None:
        """The session has this system prompt of its client from now on."""
        text = _json(told)
        statement = "UPDATE sessions SET client_prompt = ? WHERE id = ? AND client_prompt <> ?"
        self._db.change(statement, text, session_id, text)

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
        real: str | None = None,
        new_turn: bool = False,
    ) -> str:
        """Changes what is given and sets `updated_at`, which it returns."""
        changed: dict[str, object] = {"updated_at": (at := now())}
        if additional_directories is not None:
            changed["additional_directories"] = _directories(additional_directories)
        for column, value in (
            ("cwd", cwd), ("title", _text(title)), ("mode", mode), ("model", model), ("thought_level", thought_level),
            ("place", place), ("real_cwd", real),
        ):  # fmt: skip
            if value is not None:
                changed[column] = value
        assignments = ", ".join(f"{column} = ?" for column in changed)
        if new_turn:  # A sub-agent's, from now on, is the user's.
            assignments += ", turns = turns + 1, unsearched = 1, parent = NULL"
        self._db.change(f"UPDATE sessions SET {assignments} WHERE id = ?", *changed.values(), session_id)
        return at

    def entitle(self, session_id: str, title: str) -> tuple[str, str]:
        """Gives it a title unless it has one by now; returns the one that it has, and when it was changed."""
        query = "UPDATE sessions SET title = coalesce(title, ?), updated_at = ? WHERE id = ? RETURNING title"
        rows = self._db.rows(query, _text(title), (at := now()), session_id)
        return (rows[0][0] if rows else title), at

    def archive(self, session_id: str, *, archived: bool) -> None:
        """Puts it away, or takes it back: it stays where it is in the order of lists."""
        self._db.change("UPDATE sessions SET archived = ? WHERE id = ?", int(archived), session_id)

    def sessions(
        self,
        *,
        cwd: str | None,
        before: tuple[str, str] | None,
        limit: int,
        include: Collection[str] = (),
        archived: bool | None = None,
    ) -> list[ListedSession]:
        """Newest first. Only sessions that have a turn or are archived, and those in `include`. `before`: `(updated_at,
        id)` of the last one already seen. `cwd`: only those of the folder to which this name leads. `archived`: only
        those that are, or are not."""
        places = ",".join("?" * len(include))
        included = f" OR id IN ({places})" if include else ""
        query = f"SELECT {LISTED} FROM sessions WHERE (turns > 0 OR archived = 1{included})"
        values: list[object] = list(include)
        if archived is not None:
            query += " AND archived = ?"
            values.append(int(archived))
        if cwd is not None:
            query += " AND (real_cwd = ? OR (real_cwd = '' AND cwd = ?))"
            values += [os.path.realpath(cwd), cwd]
        if before is not None:
            query += " AND (updated_at, id) < (?, ?)"
            values.extend(before)
        query += " ORDER BY updated_at DESC, id DESC LIMIT ?"
        return [ListedSession(*_columns(row)) for row in self._db.rows(query, *values, limit)]

    def count(self) -> int:
        """How many have a turn."""
        return int(self._db.rows("SELECT count(*) FROM sessions WHERE turns > 0")[0][0])

    def delete(self, session_id: str) -> bool:
        """Removes the session and its log; False when there was none."""
        return self._db.change("DELETE FROM sessions WHERE id = ?", session_id) > 0

    # --- log --------------------------------------------------------------------------------------------------

    def append(self, session_id: str, entries: Sequence[LogEntry], *, after: int | None = None) -> Sequence[int]:
        """Returns the place of each in the log. `after`: the last place before an attempt that may have stored some of
        them: these are not stored again. One process at a time writes the log of a session."""
        if not entries:
            return ()
        if after is not None:
            return self._db.again(lambda: self._append_rest(session_id, entries, after))
        return self._append(session_id, entries)

    def _append_rest(self, session_id: str, entries: Sequence[LogEntry], after: int) -> Sequence[int]:
        done: list[int] = []
        query = "SELECT seq, kind, payload FROM log WHERE session_id = ? AND seq > ? ORDER BY seq"
        for (place, *found), entry in zip(self._db.rows(query, session_id, after), entries, strict=False):
            if found != [entry.kind, entry.payload]:
                break
            done.append(place)
        rest = entries[len(done) :]
        return [*done, *(self._append(session_id, rest) if rest else ())]

    def append_soon(
        self,
        session_id: str,
        entries: Sequence[LogEntry],
        done: Callable[[Sequence[int] | None, BaseException | None], None],
    ) -> None:
        """As `append`, on the event loop, together with what other sessions have to store at that moment; `done` as in
        `call`."""
        self._db.lane.together(self._append_each, (session_id, entries), done)

    def _append_each(self, batch: Sequence[_Entries]) -> list[Sequence[int] | StoreError]:
        if len(batch) > 1:
            try:
                return list(self._insert(batch))
            except StoreConflict:  # One of the sessions was deleted.
                pass
        done: list[Sequence[int] | StoreError] = []
        for session_id, entries in batch:
            try:
                done.append(self.append(session_id, entries))
            except StoreError as error:
                done.append(error)
        return done

    def _append(self, session_id: str, entries: Sequence[LogEntry]) -> list[int]:
        try:
            if len(entries) == 1:
                return [self._db.insert(INSERT_ENTRY, "seq", session_id, entries[0].kind, entries[0].payload)]
            return self._insert([(session_id, entries)])[0]
        except StoreConflict as error:
            raise StoreError(f"session {session_id} was deleted and can store nothing more") from error

    def _insert(self, batch: Sequence[_Entries]) -> list[list[int]]:
        """Stores all or nothing; returns the places of each one's."""
        rows = [(session_id, entry.kind, entry.payload) for session_id, entries in batch for entry in entries]
        if len(rows) <= AT_ONCE:
            made = _places(self._db, rows)
        else:
            with self._db.write() as db:
                parts = [_places(db, rows[at : at + AT_ONCE]) for at in range(0, len(rows), AT_ONCE)]
            made = [place for part in parts for place in part]
        by_session: dict[str, list[int]] = {}
        for place, session_id in sorted(made):
            by_session.setdefault(session_id, []).append(place)
        places = {session_id: iter(found) for session_id, found in by_session.items()}
        return [list(islice(places[session_id], len(entries))) for session_id, entries in batch]

    def entries(self, session_id: str) -> list[LogEntry]:
        """The whole log, oldest first."""
        return self.so_far(session_id)[0]

    def so_far(self, session_id: str) -> tuple[list[LogEntry], int]:
        """The whole log, and the place of its last entry."""
        rows = self._db.rows("SELECT kind, payload, seq FROM log WHERE session_id = ? ORDER BY seq", session_id)
        return [LogEntry(*row[:2]) for row in rows], rows[-1][2] if rows else 0

    def turns(self, session_id: str, after: int) -> list[tuple[int, bytes]]:
        """The marks of turns behind a place in the log, with their places."""
        query = "SELECT seq, payload FROM log WHERE session_id = ? AND seq > ? AND kind = 'turn' ORDER BY seq"
        return [(place, bytes(payload)) for place, payload in self._db.rows(query, session_id, after)]

    def last(self, session_id: str) -> int:
        """The place of the last entry of its log; 0: there is none."""
        rows = self._db.rows("SELECT max(seq) FROM log WHERE session_id = ?", session_id)
        return rows[0][0] or 0

    def continued(self, session_id: str, after: int) -> bool:
        """Whether anybody has gone on with the conversation behind that place."""
        query = (
            "SELECT 1 FROM log WHERE session_id = ? AND seq > ? "
            "AND kind IN ('turn', 'message', 'reset', 'rewind', 'unrewind') LIMIT 1"
        )
        return bool(self._db.rows(query, session_id, after))

    def page(self, session_id: str, after: int, limit: int) -> list[tuple[int, bytes]]:
        """As `History.page`."""
        return self.history.page(session_id, after, limit)

    def shown(self, session_ids: Collection[str]) -> dict[str, int]:
        """How many of these there are, of those sessions that have any."""
        places = ",".join("?" * len(session_ids))
        query = f"SELECT session_id, count(*) FROM log WHERE session_id IN ({places}) AND kind = 'update' GROUP BY 1"
        return dict(self._db.rows(query, *session_ids)) if session_ids else {}

    # --- permissions ------------------------------------------------------------------------------------------

    async def known_permissions(self, project: str) -> list[Permission]:
        """As `permissions`, on the event loop and without waiting, where they were read within STALE_SECONDS. What this
        store remembers or revokes counts at once, what another process does after that time."""
        at, known = self._answers.get(project, (0.0, []))
        if not at or time.monotonic() > at + STALE_SECONDS:
            known = await self.do(self._read_permissions, project)
        return known

    def _read_permissions(self, project: str) -> list[Permission]:
        at, known = time.monotonic(), self.permissions(project)
        self._answers[project] = (at, known)
        return known

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
        self._answers.pop(project, None)

    def revoke(self, project: str, permission_id: int) -> bool:
        changed = self._db.change("DELETE FROM permissions WHERE project = ? AND id = ?", project, permission_id)
        self._answers.pop(project, None)
        return changed > 0

    # --- the database -----------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """Where it is, for people."""
        return self._db.where

    @property
    def tells(self) -> bool:
        """Whether processes can tell each other something by it; `notify` and `listen` need that."""
        return self._db.tells

    def notify(self, notices: Sequence[tuple[str, str]]) -> None:
        """Tells every process that listens on a channel of this owner's a payload: pairs of these, all or none, in
        order. Of equal ones, one is told."""
        self._db.notify(notices)

    def listen(self, *channels: str) -> AsyncGenerator[str, None]:
        """What is told there from now on, on the event loop; to be closed (`aclosing`). An empty payload: a connection
        was made, so something may have been missed before."""
        return self._db.listen(*channels)

    def another(self) -> SessionStore:
        """The same, for a thread that works for long: neither waits for the other."""
        return SessionStore(self._db.another())

    def close(self) -> None:
        self._db.close()


def _places(db: Database | Transaction, rows: Sequence[tuple[str, str, bytes]]) -> list[tuple[int, str]]:
    """Stores these entries; the place of each in the log, and whose it is."""
    values = [value for row in rows for value in row]
    return db.rows(INSERT_ENTRIES.format(",".join(["(?,?,?)"] * len(rows))), *values)


def _text(text: str | None) -> str | None:
    return None if text is None else clean(text)


def _json(told: ClientPrompt | None) -> str:
    return "" if told is None else msgspec.json.encode(told).decode()


def _directories(directories: tuple[str, ...]) -> str:
    return msgspec.json.encode(directories).decode()


def _columns(row: Sequence[Any]) -> tuple[Any, ...]:
    id_, cwd, directories, *rest, archived = row
    return (id_, cwd, read_stored(directories, type=tuple[str, ...]), *rest, bool(archived))
