"""The store's file: shared by processes, killed at any moment, damaged, foreign, newer."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from acp_agent.errors import StoreError
from acp_agent.store.base import LogEntry, SessionRecord
from acp_agent.store.sqlite import FORMAT, migrations
from acp_agent.store.stores import sqlite_store

WRITER = Path(__file__).with_name("writer.py")
ROOT = Path(__file__).resolve().parents[2]


def writer(database: Path, session: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(database), session],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def acknowledged(process: subprocess.Popen[bytes], count: int) -> list[int]:
    """Lets the writer write until it has said `count` numbers, kills it, and gives every number it said."""
    assert process.stdout is not None
    with process:
        lines = [process.stdout.readline() for _ in range(count)]
        process.kill()
        lines += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    return [int(line) for line in lines if line.endswith(b"\n")]


def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    chance = random.Random(7)
    for _ in range(5):
        said = acknowledged(writer(database, "s"), chance.randint(1, 60))
        with closing(sqlite_store(database)) as store:
            kept = [int(entry.payload) for entry in store.entries("s")]
        assert kept == list(range(len(kept))), "in order, without a gap"
        assert kept[-1] >= said[-1]


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    writers = {name: writer(database, name) for name in ("a", "b", "c")}
    said = {name: acknowledged(process, 20) for name, process in writers.items()}
    with closing(sqlite_store(database)) as store:
        for name, numbers in said.items():
            assert [int(entry.payload) for entry in store.entries(name)][: len(numbers)] == numbers


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


def test_a_newer_file_is_left_as_it_is(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    sqlite_store(database).close()
    with closing(sqlite3.connect(database)) as plain:
        plain.execute(f"PRAGMA user_version={FORMAT + 1}")
        plain.execute("PRAGMA journal_mode=DELETE")
    content = database.read_bytes()
    with pytest.raises(StoreError, match="newer acp-coder"):
        sqlite_store(database)
    assert database.read_bytes() == content


def test_a_database_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    with closing(sqlite3.connect(database)) as plain:
        plain.execute("CREATE TABLE theirs (x)")
        plain.commit()
    content = database.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        sqlite_store(database)
    assert database.read_bytes() == content


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    database.touch()
    with closing(sqlite_store(database)) as store:
        store.create(SessionRecord("s", "/x"))
        assert store.get("s") is not None


def test_the_store_is_for_its_owner_only(tmp_path: Path) -> None:
    database = tmp_path / "new" / "s.db"
    with closing(sqlite_store(database)) as store:
        store.create(SessionRecord("s", "/x"))
        for path in (database, *database.parent.glob("s.db-*")):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be created"):
        sqlite_store(tmp_path / "file" / "s.db")


def test_a_folder_in_its_place_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "s.db").mkdir()
    with pytest.raises(StoreError, match=r"s\.db: "):
        sqlite_store(tmp_path / "s.db")


def test_a_folder_that_cannot_be_written_is_told_in_words(tmp_path: Path) -> None:
    locked = Path("/sys/kernel")  # where even root may make nothing
    if os.geteuid() != 0:
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
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


def test_many_can_make_the_file_at_the_same_moment(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    writers = [writer(database, f"s{number}") for number in range(4)]
    assert all(acknowledged(process, 1)[0] == 0 for process in writers)


def test_a_title_with_lone_surrogates_is_kept_without_them(tmp_path: Path) -> None:
    with closing(sqlite_store(tmp_path / "s.db")) as store:
        store.create(SessionRecord("s", "/x", title="a\ud800b"))
        store.change("s", title="c\udfffd")
        found = store.get("s")
        assert found is not None
        assert found.title == "c?d"


def test_every_format_has_its_statements():
    assert len(migrations()) == FORMAT
    assert all(sqlite3.complete_statement(f"{statement};") for step in migrations() for statement in step)
