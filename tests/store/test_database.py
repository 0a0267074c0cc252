"""The store's file: damaged, foreign, newer, locked."""

import os
import sqlite3
import stat
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.errors import StoreError
from acp_agent.llm.base import TextPart, UserMessage
from acp_agent.loop.memory.history import decode_message
from acp_agent.loop.memory.rewinding import TurnMark, kept
from acp_agent.store.base import LogEntry, SessionRecord
from acp_agent.store.database import FORMAT, migrations
from acp_agent.store.sqlite import MIGRATIONS
from acp_agent.store.stores import sqlite_store
from tests.nightly import examples


def test_a_damaged_file_is_left_as_it_is(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    content = b"this is no database" * 1000
    database.write_bytes(content)
    with pytest.raises(StoreError, match=r"damaged .* left as is: move it away"):
        sqlite_store(database)
    assert database.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_damage_inside_is_told_when_it_is_met(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    with closing(sqlite_store(database)) as store:
        store.create(SessionRecord("s", "/x"))
        store.append("s", [LogEntry("update", b"x" * 10_000) for _ in range(50)])
    with closing(sqlite3.connect(database)) as plain:
        plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(database.read_bytes())
    data[8192:] = b"\xaa" * (len(data) - 8192)
    database.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"), closing(sqlite_store(database)) as store:
        store.entries("s")
        store.get("s")


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=40))
@settings(max_examples=examples(40))
def test_flipped_bytes_are_damage_or_not_met(flips: list[tuple[float, int]]) -> None:
    with TemporaryDirectory() as folder:
        database = Path(folder, "s.db")
        data = bytearray(_stored())
        for where, byte in flips:
            data[int(where * len(data))] = byte
        database.write_bytes(data)
        with suppress(StoreError), closing(sqlite_store(database)) as store:
            store.sessions(cwd=None, before=None, limit=10)
            for entry in store.entries("s"):
                if entry.kind == "message":
                    decode_message(entry.payload)
            list(kept(store.entries("s")))
            store.shown(["s"])
            store.append("s", [LogEntry("update", b"{}")])


@cache
def _stored() -> bytes:
    with TemporaryDirectory() as folder:
        database = Path(folder, "s.db")
        with closing(sqlite_store(database)) as store:
            store.create(SessionRecord("s", "/x", ("/y",), "A title"))
            message = msgspec.json.encode(UserMessage((TextPart("said"),)))
            store.append("s", [LogEntry("turn", msgspec.json.encode(TurnMark(1))), LogEntry("message", message)] * 50)
        with closing(sqlite3.connect(database)) as plain:
            plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return database.read_bytes()


def test_a_newer_file_or_one_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    sqlite_store(tmp_path / "newer.db").close()
    for name, made, words in (
        ("newer.db", f"PRAGMA user_version={FORMAT + 1}; PRAGMA journal_mode=DELETE", "newer acp-coder"),
        ("theirs.db", "CREATE TABLE theirs (x)", "another program"),
    ):
        with closing(sqlite3.connect(tmp_path / name)) as plain:
            plain.executescript(made)
        content = (tmp_path / name).read_bytes()
        with pytest.raises(StoreError, match=words):
            sqlite_store(tmp_path / name)
        assert (tmp_path / name).read_bytes() == content


def test_an_empty_file_becomes_a_store_which_is_for_its_owner_only(tmp_path: Path) -> None:
    (database := tmp_path / "s.db").touch()
    with closing(sqlite_store(database)) as store:
        store.create(SessionRecord("s", "/x"))
        assert store.get("s") is not None
    database = tmp_path / "new" / "s.db"
    with closing(sqlite_store(database)) as store:
        store.create(SessionRecord("s", "/x"))
        for path in (database, *database.parent.glob("s.db-*")):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_written_or_read_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be created"):
        sqlite_store(tmp_path / "file" / "s.db")
    (tmp_path / "s.db").mkdir()
    with pytest.raises(StoreError, match=r"s\.db: "):
        sqlite_store(tmp_path / "s.db")
    locked = Path("/sys/kernel")  # where even root may make nothing
    if os.geteuid() != 0:
        (locked := tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(StoreError, match=r"Permission denied"):
        sqlite_store(locked / "s.db")


def test_another_agent_that_holds_the_file_is_told_in_words(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    with closing(sqlite_store(database, busy_timeout=0.05)) as store, closing(sqlite3.connect(database)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="keeps the session database busy"):
            store.create(SessionRecord("s", "/x"))
        other.rollback()
        store.create(SessionRecord("s", "/x"))
        assert store.get("s") is not None


def test_every_format_has_its_statements():
    made = migrations(MIGRATIONS)
    assert list(made) == list(range(1, FORMAT + 1))
    assert all(sqlite3.complete_statement(f"{statement};") for step in made.values() for statement in step)


def test_sessions_of_the_format_before_archives_are_kept_and_none_is_archived(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for number, statements in migrations(MIGRATIONS).items():
            for statement in statements if number < 13 else ():
                old.execute(statement)
        columns = "id, cwd, additional_directories, created_at, updated_at, mode, model, thought_level, turns, title"
        old.execute(f"INSERT INTO sessions ({columns}) VALUES ('s', '/x', '[]', 'a', 'b', '', '', '', 1, 'T')")
        old.execute("PRAGMA user_version=12")
    with closing(sqlite_store(path)) as store:
        (found,) = store.sessions(cwd=None, before=None, limit=9, archived=False)
        assert (found.id, found.title, found.archived) == ("s", "T", False)
        store.archive("s", archived=True)
    with closing(sqlite_store(path)) as store:
        assert [each.id for each in store.sessions(cwd=None, before=None, limit=9, archived=True)] == ["s"]
