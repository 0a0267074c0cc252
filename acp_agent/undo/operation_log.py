"""The log of operations of one session: what was done to which path, and what was there before and after."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from acp_agent.store.base import read_stored
from acp_agent.store.operation_store import OperationRow, OperationStore
from acp_agent.undo.base import By, Change, Entry, Operation, State


class Log:
    """All methods raise StoreError, and are to be called off the event loop: on it, by the store's `do`."""

    def __init__(self, store: OperationStore, session_id: str) -> None:
        self._store = store
        self.do = store.do
        self.session_id = session_id

    def begin(self, prompt: int, call: str, by: By, title: str) -> Writer:
        return Writer(self._store, self.session_id, prompt, call, by, title)

    def operations(self) -> list[Operation]:
        """Oldest first."""
        return [operation_of(row) for row in self._store.of_session(self.session_id)]

    def changes(self, operations: Iterable[Operation]) -> list[Change]:
        """What these did, in the order in which they did it."""
        return changes_of(self._store, [operation.id for operation in operations])

    def changes_by_operation(self, operations: Sequence[Operation]) -> dict[int, list[Change]]:
        found: dict[int, list[Change]] = {operation.id: [] for operation in operations}
        for _, operation, path, before, after in self._store.changes(found):
            found[operation].append(_change(path, before, after))
        return found

    def add_undo(self, title: str, changes: Iterable[Change], undoes: Iterable[int], rewound: int, prompt: int) -> int:
        """An undo that is about to begin; its id."""
        rows = [_row(change.path, change.before, change.after) for change in changes]
        added, _ = self._store.add(self.session_id, prompt, "", "undo", title, "running", rows, undoes, rewound)
        return added

    def settle(self, operation: int) -> None:
        """The undo is done: what it took back has been taken back. An undo that takes back another is a redo: what
        that took back is done again."""
        settle(self._store, operation)

    def drop(self, operation: int) -> None:
        """The undo did nothing after all."""
        self._store.remove([operation])


Row = tuple[bytes, str, str | None]


def rows_of(changes: Iterable[Change]) -> list[Row]:
    """Changes as the store keeps them; takes a while for many, and may be done in any thread."""
    return [_row(change.path, change.before, change.after) for change in changes]


class Writer:
    """The rows of one call; as `Log`. Nothing is written before the first change or the first words."""

    def __init__(self, store: OperationStore, session_id: str, prompt: int, call: str, by: By, title: str) -> None:
        self._store = store
        self.do, self.later = store.do, store.later
        self._facts = (session_id, prompt, call, by, title, "done")
        self.operation = 0
        """0 until something is written."""

    def before(self, pictures: Sequence[tuple[Path, Entry]]) -> list[int]:
        """Notes what is at paths that are about to be changed; an id for each."""
        return self._add([_row(path, entry, None) for path, entry in pictures])

    def after(self, ids: Sequence[int], before: Sequence[Entry], after: Sequence[Entry]) -> None:
        """Notes what is there now."""
        rows = list(zip(ids, before, after, strict=True))
        if same := [id_ for id_, old, new in rows if _equal(old, new)]:
            self._store.drop(same)
        if changed := [(id_, text_of(new)) for id_, old, new in rows if not _equal(old, new)]:
            self._store.know(changed)

    def changed(self, rows: Sequence[Row], uncovered: str = "") -> None:
        """Notes what was changed, see `rows_of`, and says what cannot be taken back."""
        if not self.operation:
            self._add([])
        self._store.more_at_once(self.operation, rows)
        if uncovered:
            self._store.say(self.operation, uncovered)

    def say(self, uncovered: str) -> None:
        """Says what cannot be taken back."""
        if not self.operation:
            self._add([])
        self._store.say(self.operation, uncovered)

    def _add(self, rows: list[tuple[bytes, str, str | None]]) -> list[int]:
        if self.operation:
            return self._store.more(self.operation, rows)
        self.operation, ids = self._store.add(*self._facts, rows)
        return ids


def settle(store: OperationStore, operation: int) -> None:
    """See `Log.settle`."""
    states: list[tuple[int, State]] = [(operation, "done")]
    done = store.get(operation)
    for taken in done.undoes if done is not None else ():
        states.append((taken, "taken back"))
        row = store.get(taken)
        if row is not None and row.made_by == "undo":
            states += [(again, "done") for again in row.undoes]
    store.set_states(states)


def operation_of(row: OperationRow) -> Operation:
    by: By = next((by for by in get_args(By) if by == row.made_by), "call")
    state: State = next((state for state in get_args(State) if state == row.state), "done")
    facts = (row.id, row.session_id, row.prompt, row.call, by, row.title, row.created_at, state)
    return Operation(*facts, row.uncovered, row.undoes, row.rewound)


def changes_of(store: OperationStore, operations: Iterable[int]) -> list[Change]:
    return [_change(path, before, after) for _, _, path, before, after in store.changes(operations)]


def _equal(old: Entry, new: Entry) -> bool:
    return old.same(new) and old.unsaved == new.unsaved


def text_of(entry: Entry) -> str:
    """An entry as the store keeps it."""
    return msgspec.json.encode(_printable(entry)).decode()


def entry_of(text: str) -> Entry:
    entry = read_stored(text, type=Entry)
    return msgspec.structs.replace(entry, target=os.fsdecode(bytes.fromhex(entry.target))) if entry.target else entry


def _printable(entry: Entry) -> Entry:
    """Targets of links are bytes, not always text."""
    if not entry.target:
        return entry
    return msgspec.structs.replace(entry, target=os.fsencode(entry.target).hex())


def _row(path: Path, before: Entry, after: Entry | None) -> tuple[bytes, str, str | None]:
    return os.fsencode(path), text_of(before), None if after is None else text_of(after)


def _change(path: bytes, before: str, after: str | None) -> Change:
    return Change(Path(os.fsdecode(path)), entry_of(before), None if after is None else entry_of(after))
