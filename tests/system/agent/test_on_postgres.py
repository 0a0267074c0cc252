"""The agent with its sessions on a PostgreSQL server."""

from collections.abc import Iterator
from threading import Event, Thread

import anyio
import psycopg
import pytest

from acp_agent.errors import PeerError
from acp_agent.schema.acp import UserMessageChunk
from tests.agent.kit import Answer, another, asks, bash, in_a_file, went
from tests.postgres_server import MISSING, PostgresServer

pytestmark = [in_a_file, pytest.mark.skipif(bool(MISSING), reason=MISSING)]  # It brings its own server.


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = PostgresServer()
    yield made
    made.remove()


def configured(server: PostgresServer, away: float = 0.1) -> str:
    return f'[store]\nurl = "{server.url()}"\ntimeout = 5.0\naway = {away}\n'


async def test_a_session_is_opened_again_by_another_agent_with_all_that_was_said(tmp_path, server):
    script = [asks(bash("echo made > made.txt")), "It is made.", "Again."]
    async with went(tmp_path, script, config=configured(server), prompt="make it") as r:
        session_id = r.editor.session_id
        assert not list((tmp_path / "home").rglob("sessions.db"))
        async with another(r.environ) as other:
            await other.load_session(session_id, r.project)
            assert "It is made." in other.text()
            assert [u.content.text for u in other.updates[session_id] if isinstance(u, UserMessageChunk)] == ["make it"]
            await other.prompt("and?")
            assert [m["content"] for m in r.messages(3) if m["role"] == "user"] == ["make it", "and?"]


async def test_a_server_that_is_away_for_a_while_costs_nothing_that_was_said(tmp_path, server):
    script = ["first", Answer(text=("half", " more"), hang_after=1), "third"]
    async with went(tmp_path, script, config=configured(server), prompt="one") as r:
        turn = r.editor.begin("two")
        await r.editor.wait_until(lambda: "half" in r.editor.text())
        server.stop()
        r.model.release()
        await r.editor.wait_until(lambda: "half more" in r.editor.text())
        with pytest.raises(PeerError, match=r"cannot be reached; try again"):
            await turn.response()
        server.start()
        assert (await r.editor.prompt("three")).stop_reason == "end_turn"
        async with another(r.environ) as other:
            await other.load_session(r.editor.session_id, r.project)
            assert [line for line in ("first", "half more", "third") if line in other.text()] == [
                "first", "half more", "third",
            ]  # fmt: skip
            assert other.text().count("half") == 1


async def test_connections_that_are_lost_all_the_time_end_no_turn_and_double_nothing(tmp_path, server):
    script = [answer for number in range(8) for answer in (asks(bash(f"echo {number}")), f"said {number}.")]
    async with went(tmp_path, script, config=configured(server, 20), prompt="go", mode="auto") as r:
        ended, stop = [0], Event()
        cuts = Thread(target=cut_connections, args=(server, stop, ended), daemon=True)
        cuts.start()
        try:
            for _ in range(7):
                assert (await r.editor.prompt("go")).stop_reason == "end_turn"
        finally:
            stop.set()
            await anyio.to_thread.run_sync(cuts.join)
        assert ended[0] > 7
        async with another(r.environ) as other:
            await other.load_session(r.editor.session_id, r.project)
            assert [other.text().count(f"said {number}.") for number in range(8)] == [1] * 8


def cut_connections(server: PostgresServer, stop: Event, ended: list[int]) -> None:
    """Of everybody else, those that do something at that moment, too."""
    query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    with psycopg.connect(server.url(), autocommit=True) as db:
        while not stop.wait(0.02):
            ended[0] += db.execute(f"{query} AND backend_type = 'client backend'").fetchall()[0][0]


async def test_a_server_that_is_away_for_a_moment_ends_no_turn(tmp_path, server):
    script = ["first", Answer(text=("half", " more"), hang_after=1), "third"]
    async with went(tmp_path, script, config=configured(server, 20), prompt="one") as r:
        turn = r.editor.begin("two")
        await r.editor.wait_until(lambda: "half" in r.editor.text())
        server.stop()
        r.model.release()
        await anyio.sleep(1)
        server.start()
        assert (await turn.response()).stop_reason == "end_turn" and "half more" in r.editor.text()
