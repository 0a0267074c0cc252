"""The chain of hashes in the audit log: what happens to the log is noticed, whatever agents do meanwhile and after."""

import json
import multiprocessing
import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.config.safety_settings import AuditConfig
from acp_agent.safety.deciding.audit import AuditLog
from acp_agent.safety.deciding.audit_chain import Checked, check, files_of
from acp_agent.safety.deciding.audit_file import AuditFile, Head
from acp_agent.store.stores import sqlite_store
from tests.nightly import examples
from tests.tables import table


class Place:
    """A log and the store that records its end."""

    def __init__(self, folder: Path, *, patience: float = 10.0, **config: int) -> None:
        self.path = folder.resolve() / "audit.jsonl"
        self.config = AuditConfig(**config)  # type: ignore[arg-type]
        self.store = sqlite_store(folder / "sessions.db", busy_timeout=patience)
        self.told: list[str] = []

    def agent(self) -> AuditLog:
        return AuditLog(self.path, self.config, str, self.told.append, self.store.audit_heads)

    def write(self, count: int, agent: AuditLog | None = None) -> AuditLog:
        agent = agent or self.agent()
        for number in range(count):
            assert agent.write("notice", reason=f"{number} " + "x" * 150)
        return agent

    def check(self) -> Checked:
        head = self.store.audit_heads.read(str(self.path))
        return check(self.path, Head(*head) if head is not None else None)

    def lines(self) -> list[tuple[Path, bytes]]:
        return [(file, line) for file in files_of(self.path) for line in file.read_bytes().splitlines(keepends=True)]

    def put(self, lines: list[tuple[Path, bytes]]) -> None:
        for file in files_of(self.path):
            file.write_bytes(b"".join(line for where, line in lines if where == file))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def edited(lines: list[tuple[Path, bytes]], how: str, at: int, other: int) -> list[tuple[Path, bytes]]:
    at, other, done = at % len(lines), other % len(lines), list(lines)
    file, line = lines[at]
    match how:
        case "change":
            done[at] = (file, line.replace(b"x", b"y", 1))
        case "remove":
            del done[at]
        case "repeat":
            done.insert(at, (file, lines[other][1]))
        case "swap":
            done[at], done[other] = (file, lines[other][1]), (lines[other][0], line)
        case "cut":
            done = done[:at]
        case "bytes":
            done = [*done[:at], (file, line[: max(1, other % len(line))])]
        case "forge":
            done.insert(at, (file, b'{"schema":"acp_coder.audit.v1","event":"notice","reason":"forged"}\n'))
        case "link":  # With the right number and hash of the line before it.
            done.insert(at, (file, line.replace(b"x", b"y", 1)))
    return done


EDITS = st.sampled_from(["change", "remove", "repeat", "swap", "cut", "bytes", "forge", "link"])


@settings(max_examples=examples(120))
@given(EDITS, st.integers(1, 150), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 2), st.booleans())
def test_no_edit_is_ever_taken_for_the_log_also_after_an_agent_has_gone_on(how, count, at, other, after, same):
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), max_bytes=10_000, backups=2)
        agent = place.write(count)
        assert not place.check().trouble
        before = place.lines()
        changed = edited(before, how, at, other)
        if changed == before:
            return
        place.put(changed)
        place.write(after, agent if same else None)
        if len(place.lines()) < len(changed) + after:
            return  # What was changed may have been rotated away with the oldest file.
        assert place.check().trouble
        place.store.close()


@table(("how", "at", "words"), [
    ("change", 4, "audit.jsonl:5 was changed"),
    ("remove", 4, "audit.jsonl:5: line number 5 was before this one removed"),
    ("forge", 4, "audit.jsonl:5 was inserted or changed"),
    ("link", 4, "audit.jsonl:6 was inserted, or moved here: its number is 5"),
    ("cut", 4, "the end was cut off after line number 4: the store has recorded 9 lines"),
    ("change", 8, "audit.jsonl:9: the end was changed"),
])  # fmt: skip
def test_the_first_line_that_is_wrong_is_named(how, at, words):
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        place.write(9)
        place.put(edited(place.lines(), how, at, 0))
        assert words in place.check().trouble


def test_a_user_is_told_once_when_an_agent_finds_the_log_changed(place):
    place.write(5)
    place.put(place.lines()[:3])
    place.write(3)
    assert len(place.told) == 1 and "`acp-coder audit verify` says where" in place.told[0]


def test_a_removed_log_and_removed_old_files_are_noticed(place):
    place.config = AuditConfig(max_bytes=10_000, backups=3)
    place.write(150)
    done = place.check()
    assert not done.trouble and done.first > 1
    oldest, *_ = files_of(place.path)
    kept = oldest.read_bytes()
    oldest.unlink()
    assert "removed" in place.check().trouble
    oldest.write_bytes(kept)
    assert not place.check().trouble
    for file in files_of(place.path):
        file.unlink()
    assert "cut off from the beginning" in place.check().trouble
    place.write(1)
    assert "removed" in place.check().trouble


@pytest.mark.parametrize("backups", [0, 1, 3])
def test_what_is_rotated_away_is_not_missed(place, backups):
    place.config = AuditConfig(max_bytes=10_000, backups=backups)
    agents = [place.agent(), place.agent()]
    for number in range(200):
        place.write(1, agents[number % 2])
        assert not place.check().trouble


class Killed(BaseException):
    pass


def test_a_line_whose_agent_was_killed_before_it_was_recorded_is_said_and_breaks_nothing(place, monkeypatch):
    place.write(3)

    def killed(*given: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(AuditFile, "_record", killed)
        place.write(1)
    assert "the last 1 lines are not recorded" in place.check().trouble
    place.write(2)
    done = place.check()
    assert (done.trouble, done.lines) == ("", 6)
    assert done.unrecorded[0].endswith("audit.jsonl:5 says that 1 lines before it had not been recorded")
    assert not place.told


def test_a_locked_store_loses_no_line_and_hides_no_cut(tmp_path):
    place = Place(tmp_path, patience=0.01)
    place.write(6)
    other = sqlite3.connect(place.store.where, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    place.write(2)
    other.execute("ROLLBACK")
    place.write(1)
    done = place.check()
    assert (done.trouble, done.lines) == ("", 9)
    other.execute("BEGIN EXCLUSIVE")
    place.put(place.lines()[:4])
    place.write(2)
    other.execute("ROLLBACK")
    place.write(2)
    assert place.check().trouble
    other.close()


def test_lines_from_before_the_chain_are_told_apart(place):
    place.path.write_text('{"schema":"acp_coder.audit.v1","event":"notice","reason":"old"}\n' * 4)
    assert place.check().before == 4
    place.write(2)
    done = place.check()
    assert (done.trouble, done.lines, done.before) == ("", 2, 4)
    place.put(edited(place.lines(), "remove", 3, 0)[:3] + place.lines()[4:])
    assert not place.check().trouble, "control: what is not in the chain is not protected, but for its last line"
    place.put([(place.path, b'{"reason":"forged"}\n'), *place.lines()[3:]])
    assert "was changed or removed" in place.check().trouble


def test_a_line_that_does_not_fit_on_the_disk_leaves_nothing_behind(place, monkeypatch):
    agent = place.write(2)
    before = place.path.read_bytes()
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 20:
            return write(fd, data[:20])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: full(fd, data) if data.startswith(b"{") else full(fd, b""))
        assert not agent.write("notice", reason="lost")
    assert place.path.read_bytes() == before
    place.write(1, agent)
    assert not place.check().trouble


def _write_many(folder: Path, mark: str) -> None:
    place = Place(folder, max_bytes=20_000, backups=100)
    agent = place.agent()
    for number in range(150):
        assert agent.write("notice", reason=f"{mark} {number} " + "x" * 100)
    assert not place.told


def test_agents_that_write_and_rotate_at_once_make_one_chain(tmp_path):
    writers = [multiprocessing.get_context("spawn").Process(target=_write_many, args=(tmp_path, mark)) for mark in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    place = Place(tmp_path)
    done = place.check()
    assert (done.trouble, done.lines, done.unrecorded) == ("", 300, ())
    assert len(files_of(place.path)) > 2


def test_a_program_that_keeps_the_log_locked_costs_lines_and_not_the_session(place):
    agent = place.write(1)
    with AuditFile(place.path, 10_000, 1).locked():
        assert not agent.write("notice", reason="lost")
    assert "keeps it locked" in place.told[0]
    place.write(1, agent)
    assert place.check().lines == 2


def test_numbers_and_hashes_are_in_every_line(place):
    place.write(3)
    lines = [json.loads(line) for _, line in place.lines()]
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert lines[0]["prev"] == "0" * 64
