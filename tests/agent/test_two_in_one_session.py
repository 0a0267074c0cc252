"""Two agents in one session: one works in it at a time, the other is told, and nothing is lost."""

import os
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from acp_agent.loop import turn_lease
from acp_agent.loop.turn_lease import TurnLease
from acp_agent.store.session_store import SessionStore
from acp_agent.store.stores import sqlite_store

from .kit import Rig, another, asks, bash, cancels, in_a_file, on_stdio, refused, results, rig, went

WAITS = "while [ ! -e go ]; do sleep 0.05; done; echo the result"
pytestmark = on_stdio


@asynccontextmanager
async def unheld(lease, **more):
    yield


def running(r: Rig):
    """A turn whose command waits for the file `go`, in progress."""
    turn = r.editor.begin("first")
    return turn, r.editor.wait_until(lambda: r.editor.lines("from_agent", "terminal/wait_for_exit"))


@pytest.mark.parametrize("controlled", [False, True])
async def test_no_result_is_lost_and_the_second_is_told(tmp_path, monkeypatch, controlled):
    if controlled:
        monkeypatch.setattr(TurnLease, "held", unheld)
    script = [asks(bash(WAITS)), *(["said by the second"] if controlled else []), "done", "again", "more"]
    async with rig(tmp_path, script, mode="auto") as r, another(r.environ) as second:
        turn, begun = running(r)
        await begun
        await second.load_session(r.editor.session_id, r.project)
        if controlled:
            await second.prompt("meanwhile")
        else:
            with refused(-32603, "Another acp-coder works in it now"):
                await second.prompt("meanwhile")
        (r.project / "go").touch()
        assert (await turn.response()).stop_reason == "end_turn"
        if not controlled:
            with refused(-32603, "was continued by another acp-coder"):
                await second.prompt("its memory is old")
        await second.load_session(r.editor.session_id, r.project)
        await second.prompt("what was it?")
        (told,) = results(r)
        assert ("the result" in told) is not controlled, told
        if not controlled:
            with refused(-32603, "was continued by another acp-coder"):
                await r.editor.prompt("the first one's memory is old")
            await r.editor.load_session(r.editor.session_id, r.project)
            await r.editor.prompt("now it is not")
            said = [message["content"] for message in r.messages(len(r.model.requests)) if message["role"] == "user"]
            assert [text for text in said if text in ("first", "meanwhile", "what was it?", "now it is not")] == [
                "first", "what was it?", "now it is not",
            ]  # fmt: skip


async def test_who_opens_a_session_and_says_nothing_disturbs_nobody(tmp_path):
    async with went(tmp_path, ["one", "two"]) as r:
        async with another(r.environ) as second:
            await second.load_session(r.editor.session_id, r.project)
        assert (await r.editor.prompt("go on")).stop_reason == "end_turn"


async def test_a_turn_that_ended_in_any_way_lets_the_session_go(tmp_path):
    async with rig(tmp_path, [asks(bash(WAITS)), "done"], mode="auto") as r, another(r.environ) as second:
        turn, begun = running(r)
        await begun
        await cancels(r, turn)
        await second.load_session(r.editor.session_id, r.project)
        assert (await second.prompt("go")).stop_reason == "end_turn"


def store_of(tmp_path: Path) -> SessionStore:
    (file,) = (tmp_path / "home").rglob("sessions.db")
    return sqlite_store(file)


@in_a_file
@pytest.mark.parametrize("there", ["gone", "alive", "late"])
async def test_a_holder_that_was_killed_is_waited_for_no_longer_than_its_lease(tmp_path, there):
    """`late`: it is alive, as far as anybody can know, but has not renewed it."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    process = ended.pid if there == "gone" else os.getpid()
    async with went(tmp_path, ["one", "two"]) as r:
        holder = f"{turn_lease._here()}{process}:0"
        with closing(store_of(tmp_path)) as store:
            assert store.leases.claim(r.editor.session_id, holder, -1.0 if there == "late" else 100.0)
        if there == "alive":
            with refused(-32603, "Another acp-coder works in it now"):
                await r.editor.prompt("go on")
        else:
            assert (await r.editor.prompt("go on")).stop_reason == "end_turn"


@in_a_file
async def test_the_lease_is_renewed_and_who_loses_it_stops(tmp_path):
    async with rig(tmp_path, [asks(bash(WAITS))], mode="auto", config="[server]\nlease = 0.3\n") as r:
        turn, begun = running(r)
        await begun
        with closing(store_of(tmp_path)) as store:
            renewed = store._db.rows("SELECT held_until FROM sessions")[0][0]
            while store._db.rows("SELECT held_until FROM sessions")[0][0] <= renewed:
                await r.editor.client.list_sessions()
            assert store.leases.holder(r.editor.session_id).startswith(turn_lease.TURN)
            store._db.change("UPDATE sessions SET holder = 'another', held_until = held_until + 100")
        with refused(-32603, "Another acp-coder has taken it over"):
            await turn.response()


@in_a_file
async def test_nothing_is_held_between_turns(tmp_path):
    async with went(tmp_path, ["one"]) as r:
        with closing(store_of(tmp_path)) as store:
            assert store.leases.holder(r.editor.session_id) == ""
