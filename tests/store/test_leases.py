"""Leases: one process at a time holds a session; it is taken over once its time has run out."""

from __future__ import annotations

import subprocess
import sys
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
sys.stdout.write(f"{store.claim('s', sys.argv[3], 200.0, 100.0)}\\n")
"""


def test_a_lease_is_one_holders_until_it_is_let_go_or_runs_out(store: SessionStore, opened: Open) -> None:
    other = opened()
    store.create(SessionRecord("s", "/project"))
    assert store.holder("s") is None
    assert store.claim("s", "one", 110.0, 100.0)
    assert not other.claim("s", "two", 111.0, 101.0)
    assert other.holder("s") == ("one", 110.0)
    assert store.claim("s", "one", 112.0, 102.0), "it is ours already"
    assert store.renew("s", "one", 120.0)
    assert not other.renew("s", "two", 130.0)
    assert not other.let_go("s", "two")
    assert not other.claim("s", "two", 129.0, 119.9)
    assert other.claim("s", "two", 130.0, 120.0), "it has run out"
    assert not store.renew("s", "one", 140.0), "who was too late gets to know it"
    assert not store.let_go("s", "one")
    assert other.let_go("s", "two")
    assert store.holder("s") is None
    assert store.claim("s", "one", 150.0, 140.0)


def test_there_is_no_lease_of_a_session_that_is_not_there(store: SessionStore) -> None:
    assert not store.claim("gone", "one", 2.0, 1.0)
    assert not store.renew("gone", "one", 2.0)
    assert not store.let_go("gone", "one")
    assert store.holder("gone") is None


def test_of_several_processes_that_claim_at_once_one_gets_it(place: tuple[str, str]) -> None:
    with closing(open_at(place)) as store:
        store.create(SessionRecord("s", "/project"))
        store.claim("s", "dead", 99.0, 90.0)
        names = ("one", "two", "three")
        command = [sys.executable, "-c", CLAIM, *place]
        processes = [
            subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            for name in names
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        got = [process.communicate(timeout=30)[0].strip() for process in processes]
        assert sorted(got) == ["False", "False", "True"]
        assert store.holder("s") == (names[got.index("True")], 200.0)
