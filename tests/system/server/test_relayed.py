"""What may go wrong between a client and the process that runs its session."""

import asyncio
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest

from acp_agent.errors import PeerError
from acp_agent.fronts.server.process_links import ALL, PIECE
from acp_agent.fronts.server.relay import GIVE_UP, LEFT
from acp_agent.store.leases import Leases
from acp_agent.store.session_store import SessionStore
from acp_agent.testing.fake_model import Answer, Call
from tests.agent.test_v2 import Client, text
from tests.fronts.server.test_house import AUTO, SCRIPT, WAITS, asked, cut_off, exists, turns
from tests.fronts.server.test_server import BOUND, INITIALIZE, editor, running, served
from tests.postgres_server import PostgresServer
from tests.system.server.test_processes import said, two
from tests.waits import until
from tests.websockets_client import connected


async def test_a_turn_goes_on_without_its_client_that_was_connected_elsewhere(postgres: PostgresServer, tmp_path: Path):
    async with two(postgres, tmp_path, SCRIPT) as (one, other), editor(one, check=False) as first:
        session = (await first.new_session(one.project)).session_id
        async with cut_off(other) as second, anyio.create_task_group() as tasks:
            await second.load_session(session, one.project)
            tasks.start_soon(asked, second)
            await exists(one.project / "begun")
            second._transport.close()
        await until(lambda: len(one.server.house("me").watched(session)) == 1)
        (one.project / "go").touch()
        await first.wait_until(lambda: turns(first)[-1:] != [{"state": "running"}])
        assert turns(first)[-1] == {"state": "idle", "stopReason": "end_turn"}


async def test_a_cancel_right_behind_its_prompt_counts(tmp_path: Path) -> None:
    async with served(tmp_path, [Answer(text="It is done.")], config=AUTO) as place, editor(place) as first:
        session = (await first.new_session(place.project)).session_id
        (agent,) = (each._handler for each in place.server._open)
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
        asking = asyncio.create_task(agent.handle_request("session/prompt", prompt))
        telling = asyncio.create_task(agent.handle_notification("session/cancel", {"sessionId": session}))
        assert (await asking).stop_reason == "cancelled"
        await telling


@pytest.mark.parametrize("scope", ["prompt", "watch"])
async def test_clients_cannot_send_what_is_between_processes(postgres: PostgresServer, tmp_path: Path, scope: Any):
    async with two(postgres, tmp_path, [Answer(text="It is done.")]) as (one, other), editor(one) as first:
        session = (await first.new_session(one.project)).session_id
        async with editor(other, one.identities.add("another", owner="me", scope=scope), check=False) as second:
            await second.load_session(session, one.project)
            for params in ({"sessionId": session, "seq": 1000}, {"sessionId": session, "seq": "x"}):
                second.notify(LEFT, params)
            with pytest.raises(PeerError, match="Method not found"):
                await second.request(GIVE_UP, {"sessionId": session})
            await first.prompt("go")
            await second.wait_until(partial(said, second, "It is done."))


async def test_an_opening_that_is_cancelled_leaves_no_link(postgres: PostgresServer, tmp_path: Path) -> None:
    async with two(postgres, tmp_path, ()) as (one, other), editor(one) as first:
        await first.new_session(one.project)
        there, here = one.server._links, other.server._links
        opening = asyncio.create_task(here.open(there.name))
        while not here._links:
            await anyio.lowlevel.checkpoint()
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await opening
        await until(lambda: not (here._links or there._links))


async def test_what_cannot_be_opened_here_may_be_opened_elsewhere(postgres: PostgresServer, tmp_path: Path) -> None:
    async with (
        two(postgres, tmp_path, [Answer(text="ok")], config="max_sessions = 1\n", lease=600.0) as (one, other),
        editor(one) as first, editor(other) as second,
    ):  # fmt: skip
        stored = (await first.new_session(one.project)).session_id
        await first.prompt("go")
        await first.client.close_session(stored)
        await first.new_session(one.project)
        for _ in range(2):
            with pytest.raises(PeerError, match="sessions are open already"):
                await first.load_session(stored, one.project)
        _, store = one.server.house("me").opening.own()
        with anyio.fail_after(BOUND):
            while await store.do(store.leases.holder, stored):  # It is let go behind the answer.
                await anyio.sleep(0.01)
        await second.load_session(stored, one.project)
        assert other.server.house("me").sessions.has(stored)
        assert not one.server.house("me").watched(stored)


async def test_a_lease_that_is_let_go_of_in_between_is_taken(postgres: PostgresServer, tmp_path: Path) -> None:
    async with two(postgres, tmp_path, [Answer(text="ok")], lease=600.0) as (one, other), editor(one) as first:
        session = (await first.new_session(one.project)).session_id
        house, there = other.server.house("me"), one.server.house("me")
        runs_at = house.runs_at

        async def too_late(session_id: str) -> str:
            await there._let_go(session_id)
            return await runs_at(session_id)

        house.runs_at = too_late
        assert await house.take(session) == ""
        assert await there.runs_at(session) == other.server.process


async def test_turns_are_cancelled_without_the_database(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": WAITS}),))]
    async with two(postgres, tmp_path, script, lease=1.0) as (one, _), editor(one) as first:
        await first.new_session(one.project)
        released = threading.Event()
        renew = Leases.renew

        def hangs(*about: Any) -> set[str]:
            released.wait(BOUND)
            return renew(*about)

        cancelled = anyio.Event()
        sessions = one.server.house("me").sessions
        cancel_turns = sessions.cancel_turns

        def noted() -> None:
            cancel_turns()
            cancelled.set()

        monkeypatch.setattr(sessions, "cancel_turns", noted)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked, first)
            await exists(one.project / "begun")
            monkeypatch.setattr(Leases, "renew", hangs)
            try:
                await cancelled.wait()
            finally:
                released.set()
        assert first.lines("from_agent", "session/update")


async def test_a_replay_that_is_cut_off_is_an_error_and_not_shown_twice(postgres: PostgresServer, tmp_path: Path):
    async with two(postgres, tmp_path, [Answer(text="ok " * PIECE)] * 3) as (one, other), editor(one) as first:
        session = (await first.new_session(one.project)).session_id
        for word in ("a", "b", "c"):
            await first.prompt(word)
        async with editor(other, check=False) as second:
            (agent,) = (each._handler for each in other.server._open)
            notified = agent.connection.notify

            def cut(method: str, params: Any) -> None:
                notified(method, params)
                for link in tuple(other.server._links._links.values()):
                    link._came.clear()
                    link.close()

            agent.connection.notify = cut
            with pytest.raises(PeerError, match="load it again"):
                await second.load_session(session, one.project)
            agent.connection.notify = notified
            await second.load_session(session, one.project)


async def test_a_stream_whose_link_breaks_ends_its_connection(postgres: PostgresServer, tmp_path: Path) -> None:
    async with (
        two(postgres, tmp_path, ()) as (one, other),
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {one.token}"}) as web,
    ):
        named = {"Acp-Connection-Id": (await web.post(f"{one.http}/acp", json=INITIALIZE)).headers["acp-connection-id"]}
        async with web.stream("GET", f"{other.http}/acp", headers={**named, "Accept": "text/event-stream"}) as events:
            assert events.status_code == 200
            for link in tuple(other.server._links._links.values()):
                link.close(lost=True)
            assert not [line async for line in events.aiter_lines() if line.startswith("data")]
        note = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "x"}}
        while (
            await web.post(f"{other.http}/acp", json=note, headers={**named, "Acp-Session-Id": "x"})
        ).status_code != 404:
            await anyio.sleep(0.01)


async def test_a_notice_of_something_else_ends_nothing(postgres: PostgresServer, tmp_path: Path) -> None:
    async with two(postgres, tmp_path, ()) as (one, other), editor(one) as first:
        store = one.server._store
        for words in ("x", "- - 0 x", "a d x y"):
            await store.do(store.notify, [(ALL, words)])
        session = (await first.new_session(one.project)).session_id
        async with editor(other) as second:
            await second.load_session(session, one.project)


async def test_who_asks_where_a_session_has_just_left_is_led_on_to_it(postgres: PostgresServer, tmp_path: Path) -> None:
    script = [Answer(text="It is first."), Answer(text="It is second.")]
    async with (
        two(postgres, tmp_path, script, lease=600.0) as (one, other), running(one) as third,
        editor(one, check=False) as first, editor(other, check=False) as second, editor(third, check=False) as last,
    ):  # fmt: skip
        session = (await first.new_session(one.project)).session_id
        await first.prompt("go")
        await second.load_session(session, one.project)
        house = one.server.house("me")
        for agent in one.server._relayed.values():
            agent._taken_over = lambda session_id: None  # It has not been told yet.
        house.onlookers.clear()
        await house._close(session, house.sessions.get(session))
        assert await third.server.house("me").take(session) == ""
        assert (await second.prompt("more")).stop_reason == "end_turn"
        await last.load_session(session, one.project)
        assert last.text() == second.text() == "It is first.It is second."


async def test_many_loads_at_once_keep_one_log_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path, [Answer(text="It is done.")], config=AUTO) as place, editor(place) as first:
        session = (await first.new_session(place.project)).session_id
        await first.prompt("go")
        (agent,) = (each._handler for each in place.server._open)
        read, free, waits = [], anyio.Event(), anyio.Event()
        so_far = SessionStore.so_far

        def counted(store: SessionStore, session_id: str) -> Any:
            read.append(session_id)
            return so_far(store, session_id)

        async def full() -> None:
            waits.set()
            await free.wait()

        monkeypatch.setattr(SessionStore, "so_far", counted)
        monkeypatch.setattr(agent.connection, "drain", full)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(partial(first.load_session, session, place.project))
            await waits.wait()
            await first.client.list_sessions()
            assert len(read) == 1
            free.set()
        assert len(read) == 5


async def test_who_is_second_is_relayed(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with two(postgres, tmp_path, [Answer(text="It is first.")], lease=600.0) as (one, other):
        async with editor(one) as first:
            session = (await first.new_session(one.project)).session_id
            await first.prompt("go")
            await first.client.close_session(session)
        house, faster = other.server.house("me"), one.server.house("me")
        take = house.take
        asked_: list[str] = []

        async def second(session_id: str) -> str:
            if asked_:
                return await take(session_id)
            asked_.append(session_id)
            return await faster.take(session_id)

        monkeypatch.setattr(house, "take", second)
        async with editor(other) as made:
            await made.load_session(session, one.project)
            assert made.text() == "It is first."
            assert faster.sessions.has(session)


async def test_a_session_of_another_process_is_there_in_v2_too(postgres: PostgresServer, tmp_path: Path) -> None:
    script = ["It is one.", Answer(text=("It is", " two."), hang_after=1)]
    async with (
        two(postgres, tmp_path, script, '[agent]\nmode = "auto"\n[protocol]\nv2 = true\n') as (here, there),
        connected(there.url, there.token) as transport, editor(here) as old, anyio.create_task_group() as tasks,
    ):  # fmt: skip
        client = Client(transport)
        tasks.start_soon(client.run)
        await client.initialize()
        session = (await old.new_session(here.project)).session_id
        await client.ask("session/resume", sessionId=session, cwd=str(here.project))
        answer = await client.ask("session/prompt", sessionId=session, prompt=text("one"))
        await client.ended()
        (message,) = client.updates("user_message_chunk")
        assert message["messageId"] == answer["messageId"]
        await client.ask("session/prompt", sessionId=session, prompt=text("two"))
        await client.tell("session/cancel", sessionId=session)
        assert (await client.ended(2))["stopReason"] == "cancelled"
        assert not old.violations
        tasks.cancel_scope.cancel()
