"""Leases: one process at a time holds a session; it is taken over once its time has run out."""

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from acp_agent.store.base import SessionRecord
from acp_agent.store.session_store import SessionStore
from tests.store.conftest import Open, open_at

ROOT = Path(__file__).resolve().parents[2]

CLAIM = """
import sys
from tests.store.conftest import open_at
store = open_at((sys.argv[1], sys.argv[2]))
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
sys.stdout.write(f"{store.leases.claim('s', sys.argv[3], 100.0)}\\n")
"""
LONG, OVER = 100.0, -1.0
"""Seconds."""


def test_a_lease_is_one_holders_until_it_is_let_go_or_runs_out(store: SessionStore, opened: Open) -> None:
    first, other = store.leases, opened().leases
    store.create(SessionRecord("s", "/project"))
    assert first.holder("s") == "" and first.claim("s", "one", LONG)
    assert not other.claim("s", "two", LONG) and other.holder("s") == "one" and other.held() == ["s"]
    assert first.claim("s", "one", LONG), "it is ours already"
    assert first.renew(["s"], "one", LONG) == {"s"}
    assert other.renew(["s"], "two", LONG) == set() and not other.let_go("s", "two")
    assert first.renew(["s"], "one", OVER) == {"s"}
    assert other.holder("s") == "" and other.held() == []
    assert other.claim("s", "two", LONG), "it has run out"
    assert first.renew(["s"], "one", LONG) == set(), "who was too late gets to know it"
    assert not first.let_go("s", "one")
    assert other.let_go("s", "two")
    assert first.holder("s") == "" and first.claim("s", "one", LONG)


def test_there_is_no_lease_of_a_session_that_is_not_there(store: SessionStore) -> None:
    assert not store.leases.claim("gone", "one", LONG) and store.leases.renew(["gone"], "one", LONG) == set()
    assert not store.leases.let_go("gone", "one") and store.leases.holder("gone") == ""


def test_a_lease_runs_out_by_the_clock_of_the_database(store: SessionStore, opened: Open) -> None:
    store.create(SessionRecord("s", "/project"))
    store.create(SessionRecord("kept", "/project"))
    assert store.leases.claim("s", "one", 0.2) and store.leases.claim("kept", "one", LONG)
    deadline = time.monotonic() + 30
    while not opened().leases.claim("s", "two", LONG):
        assert time.monotonic() < deadline
    assert store.leases.renew(["s", "kept"], "one", LONG) == {"kept"}


def test_of_several_processes_that_claim_at_once_one_gets_it(place: tuple[str, str]) -> None:
    with closing(open_at(place)) as store:
        store.create(SessionRecord("s", "/project"))
        store.leases.claim("s", "dead", OVER)
        names = ("one", "two", "three")
        command = [sys.executable, "-c", CLAIM, *place]
        processes = [
            subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            for name in names
        ]
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        got = [process.communicate(timeout=30)[0].strip() for process in processes]
        assert sorted(got) == ["False", "False", "True"]
        assert store.leases.holder("s") == names[got.index("True")]


def test_a_lease_that_is_longer_than_any_is_cut_short(store: SessionStore) -> None:
    """The database's clock was set back by an hour: a process that lives renews its lease, a dead one does not."""
    for session in ("dead", "alive"):
        store.create(SessionRecord(session, "/project"))
        assert store.leases.claim(session, "one", 0.2)
        store._db.change(f"UPDATE sessions SET held_until = {store._db.clock} + 3600 WHERE id = ?", session)
        assert not store.leases.claim(session, "two", 0.2)
        if session == "alive":
            assert store.leases.renew(["alive"], "one", LONG) == {"alive"}
    deadline = time.monotonic() + 30
    while not store.leases.claim("dead", "two", 0.2):
        assert time.monotonic() < deadline
    assert store.leases.holder("alive") == "one"
