"""Several processes on one store: any of them answers for any session; one dies, another goes on."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from acp_agent.client.permissions import never_answers
from acp_agent.errors import PeerError
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer
from tests.agent.kit import asks, bash, environ_for
from tests.forked import COMMAND
from tests.fronts.server.test_house import AUTO, WAITS, asked, cut_off, exists, log_of, places, turns
from tests.fronts.server.test_server import BOUND, Place, editor, running, served
from tests.postgres_server import PostgresServer


@asynccontextmanager
async def two(
    postgres: PostgresServer, tmp_path: Path, script: Any, config: str = AUTO, lease: float = 2.0
) -> AsyncIterator[tuple[Place, Place]]:
    """Servers with one store, one file of tokens and one model."""
    schema = f"s{uuid.uuid4().hex[:12]}"
    more = f'[store]\nurl = "{postgres.url()}"\nschema = "{schema}"\n[server]\nlease = {lease}\n{config}'
    async with served(tmp_path, script, config=more) as one, running(one) as other:
        try:
            yield one, other
        finally:
            (one.project / "go").touch()  # A command of a process that was killed waits for ever otherwise.


def said(made: FakeEditor, words: str) -> bool:
    return words in made.text()


async def test_a_session_is_loaded_prompted_and_cancelled_in_another_process(postgres: PostgresServer, tmp_path: Path):
    script = [Answer(text="It is first."), Answer(text="It is second."), asks(bash(WAITS))]
    async with two(postgres, tmp_path, script) as (one, other), editor(one) as first, editor(other) as second:
        session = (await first.new_session(one.project)).session_id
        await first.prompt("go")
        assert ((await second.load_session(session, one.project)).meta or {})["turn"] == {"state": "idle"}
        assert second.text() == "It is first."
        assert (await second.prompt("more")).stop_reason == "end_turn"
        for made in (first, second):
            await made.wait_until(partial(said, made, "It is second."))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked, second)
            await exists(one.project / "begun")
            second.cancel()
        await first.wait_until(lambda: {"state": "idle", "stopReason": "cancelled"} in turns(first))
        await second.client.set_session_mode(session, "ask")
        for made in (first, second):
            await made.wait_for(lambda each: isinstance(each, acp.CurrentModeUpdate | acp.ConfigOptionUpdate))
            assert not made.violations
        assert [each.session_id for each in (await second.client.list_sessions()).sessions] == [session]
        assert one.server.agent(one.identities.known()[0]).sessions.has(session)
        assert not other.server.agent(one.identities.known()[0]).sessions.has(session)


async def test_a_question_goes_to_all_processes_and_the_first_answer_counts(postgres: PostgresServer, tmp_path: Path):
    async with (
        two(postgres, tmp_path, [asks(bash("touch made")), Answer(text="It is done.")], "") as (one, other),
        editor(one, otherwise=never_answers) as first, editor(other) as second,
    ):  # fmt: skip
        await second.load_session((await first.new_session(one.project)).session_id, one.project)
        assert (await first.prompt("make it")).stop_reason == "end_turn"
        await first.wait_until(lambda: first.lines("from_agent", "$/cancel_request"))
        for made in (first, second):
            await made.wait_until(partial(said, made, "It is done."))
            assert len(made.lines("from_agent", "session/request_permission")) == 1


async def test_a_process_that_stops_hands_its_sessions_over(postgres: PostgresServer, tmp_path: Path) -> None:
    script = [Answer(text="It is first."), Answer(text="It is second."), Answer(text="It is third.")]
    async with two(postgres, tmp_path, script, lease=600.0) as (one, other), editor(other) as second:
        async with editor(one) as first:
            session = (await first.new_session(one.project)).session_id
            await first.prompt("go")
            await second.load_session(session, one.project)
        one.stop.set()
        assert (await second.prompt("more")).stop_reason == "end_turn" and second.text() == "It is first.It is second."
        assert other.server.agent(one.identities.known()[0]).sessions.has(session)
        stored = [row["seq"] for row in await log_of(other, session)]
        assert places(second, session) == [seq for seq in stored if seq > stored[-1] - len(places(second, session))]


@asynccontextmanager
async def process_beside(place: Place, tmp_path: Path, *more: str) -> AsyncIterator[tuple[Place, Any]]:
    """A real `acp-coder serve` with the same store and tokens."""
    command = [COMMAND, "serve", "--port", "0", "--token-file", str(tmp_path / "tokens.json"), *more]
    async with await anyio.open_process(command, env=place.environ, stderr=None) as process:
        try:
            assert process.stdout is not None
            said_ = b""
            while b"/acp" not in said_:
                said_ += await process.stdout.receive()
            url = next(word for word in said_.decode().split() if word.startswith("ws://"))
            yield replace(place, url=url, http=url.removesuffix("/acp").replace("ws", "http", 1)), process
        finally:
            with suppress(ProcessLookupError):
                process.terminate()


async def test_a_process_killed_in_a_turn_loses_nothing_and_begins_none_twice(postgres: PostgresServer, tmp_path: Path):
    """Who was connected by another process goes on without noticing more than the loss of the turn."""
    script = [Answer(text="It begins. ", tool_calls=(bash(f"echo once >>ran; {WAITS}"),)), Answer(text="It goes on.")]
    async with two(postgres, tmp_path, script) as (one, _), process_beside(one, tmp_path) as (dies, process):
        async with editor(dies, check=False) as first, editor(one, check=False) as second:
            session = (await first.new_session(one.project)).session_id
            await second.load_session(session, one.project)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(asked, first)
                await second.wait_until(lambda: second.tool_calls() and second.tool_call().status == "in_progress")
                await exists(one.project / "begun")
                process.kill()
            await second.client.set_session_mode(session, "auto")  # Waits for the lease to run out.
            assert one.server.agent(one.identities.known()[0]).sessions.has(session)
            assert (await second.prompt("go on")).stop_reason == "end_turn"
            await second.wait_until(partial(said, second, "It goes on."))
            stored = [row["seq"] for row in await log_of(one, session)]
            own = [row["seq"] for row in await log_of(one, session) if row["event_type"] == "user_message_chunk"]
            assert sorted({*places(second, session), own[-1]}) == stored
            assert len(places(second, session)) == len(set(places(second, session)))
        async with editor(one) as third:
            await third.load_session(session, one.project)
            assert third.text() == "It begins. It goes on."
            third.tool_call().assert_finished("failed")
    assert (one.project / "ran").read_text() == "once\n"


async def test_a_prompt_whose_process_dies_is_answered(postgres: PostgresServer, tmp_path: Path) -> None:
    async with (
        two(postgres, tmp_path, [asks(bash(WAITS)), Answer(text="It goes on.")]) as (one, _),
        process_beside(one, tmp_path) as (dies, process), cut_off(dies, check=False) as first,
        editor(one, check=False) as second,
    ):  # fmt: skip
        await second.load_session((await first.new_session(one.project)).session_id, one.project)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(killed, process, one.project / "begun")
            with pytest.raises(PeerError, match="prompt again to go on"):
                await second.prompt("go")
        assert (await second.prompt("go on")).stop_reason == "end_turn"


async def killed(process: Any, once: Path) -> None:
    await exists(once)
    process.kill()


async def test_who_lost_the_lease_stops_and_its_clients_go_on_elsewhere(postgres: PostgresServer, tmp_path: Path):
    """As after a process was stopped, or cut off from the database, for longer than the lease."""
    script = [asks(bash(WAITS)), Answer(text="It goes on.")]
    async with two(postgres, tmp_path, script, lease=0.6) as (one, other), editor(one, check=False) as first:
        session = (await first.new_session(one.project)).session_id
        me = one.identities.known()[0]
        _, store = one.server.house(me.owner).opening.own()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked, first)
            await exists(one.project / "begun")
            await store.do(store.leases.let_go, session, one.server.process)
            assert await store.do(store.leases.claim, session, other.server.process, 600.0)
            await first.wait_until(lambda: first.tool_calls() and first.tool_call().status == "failed")
        async with editor(other) as second:
            await second.load_session(session, one.project)
            assert (await second.prompt("go on")).stop_reason == "end_turn"
            await first.wait_until(partial(said, first, "It goes on."))
        assert not one.server.agent(me).sessions.has(session)
        assert other.server.agent(me).sessions.has(session)


async def test_who_only_looks_on_sees_what_another_process_begins(postgres: PostgresServer, tmp_path: Path) -> None:
    async with two(postgres, tmp_path, [Answer(text="It is first."), Answer(text="It is second.")]) as (one, other):
        watches = one.identities.add("wall", owner="me", scope="watch")
        async with editor(one) as first:
            session = (await first.new_session(one.project)).session_id
            await first.prompt("go")
            await first.client.close_session(session)
        async with editor(other, token=watches) as second, editor(one) as first:
            await second.load_session(session, one.project)
            await first.load_session(session, one.project)
            await first.prompt("more")
            await second.wait_until(partial(said, second, "It is second."))
            assert second.text() == "It is first.It is second."


async def test_a_session_of_another_process_is_deleted_if_nobody_uses_it(postgres: PostgresServer, tmp_path: Path):
    async with (
        two(postgres, tmp_path, [Answer(text="It is first.")]) as (one, other),
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {one.token}"}) as web,
    ):
        async with editor(one) as first:
            session = (await first.new_session(one.project)).session_id
            await first.prompt("go")
            assert (await web.delete(f"{other.http}/sessions/{session}")).status_code == 409
        while (await web.delete(f"{other.http}/sessions/{session}")).status_code == 409:
            await anyio.sleep(0.01)  # The link is being closed.
        assert (await web.get(f"{one.http}/sessions/{session}")).status_code == 404


async def test_arc_2_and_sta_1_a_session_that_another_process_runs_is_open_and_is_archived_there(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    on = f"{AUTO}\n[protocol]\nunstable = true\n"
    script = [asks(bash(WAITS)), Answer(text="It is second.")]
    async with (
        two(postgres, tmp_path, script, on) as (one, other), editor(one) as first, editor(other) as second,
    ):  # fmt: skip
        session = (await first.new_session(one.project)).session_id
        about = {"sessionId": session}
        turn = first.begin("go")
        await exists(one.project / "begun")
        assert await second.request("session/status", about) == {"status": "open"}
        assert await second.request("session/set_title", {**about, "title": "Theirs"}) == {"title": "Theirs"}
        assert await second.request("session/archive", about) == {}
        assert (await turn.response()).stop_reason == "cancelled"
        for made in (first, second):
            assert await made.request("session/status", about) == {"status": "saved"}
            (entry,) = (await made.request("session/list", {"archived": "only"}))["sessions"]
            assert (entry["title"], entry["archived"]) == ("Theirs", True)
        await second.load_session(session, one.project)
        assert (await second.prompt("more")).stop_reason == "end_turn"
        assert await first.request("session/status", about) == {"status": "open"}


async def test_workers_share_a_port_and_count_together(postgres: PostgresServer, tmp_path: Path) -> None:
    async with (
        two(postgres, tmp_path, [Answer(text="It is first."), Answer(text="It is second.")]) as (one, _),
        process_beside(one, tmp_path, "--workers", "2") as (many, run),
    ):
        async with AsyncExitStack() as stack:
            made = [await stack.enter_async_context(editor(many)) for _ in range(6)]
            session = (await made[0].new_session(one.project)).session_id
            for each in made[1:]:
                await each.load_session(session, one.project)
            for each in made[:2]:
                assert (await each.prompt("go")).stop_reason == "end_turn"
            for each in made:
                await each.wait_until(partial(said, each, "It is second."))
            async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {one.token}"}) as web:
                for _ in range(5):
                    text = (await web.get(f"{many.http}/metrics")).text
                    assert 'acp_coder_turns_total{reason="end_turn"} 2.0' in text
        run.terminate()
        assert await run.wait() == 0


WORKERS = """
import os, sys
from acp_agent.fronts.server import workers
workers.SOON = float(sys.argv[1])

def work(ends):
    os.write(1, b"%d\\n" % os.getpid())
    os.read(ends, 1)

sys.exit(workers.Workers(2, work).run())
"""


def test_a_worker_that_ends_is_replaced_and_all_end_with_the_first_process(tmp_path: Path) -> None:
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", WORKERS, "0"], stdout=subprocess.PIPE, env=environ) as run:
        assert run.stdout is not None
        first, second = int(run.stdout.readline()), int(run.stdout.readline())
        os.kill(first, signal.SIGKILL)
        assert int(run.stdout.readline()) not in (first, second)
        run.kill()
        assert run.stdout.read() == b"", "nobody has it open any more"


def test_workers_that_cannot_begin_or_share_no_store_end_the_server(tmp_path: Path) -> None:
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", WORKERS, "60"], stdout=subprocess.PIPE, env=environ) as run:
        try:
            assert run.stdout is not None
            os.kill(int(run.stdout.readline()), signal.SIGKILL)
            assert run.wait(BOUND) == 1
        finally:
            run.kill()
    ended = subprocess.run(
        [COMMAND, "serve", "--port", "0", "--workers", "2"], env=environ_for(tmp_path, "http://127.0.0.1:9"),
        capture_output=True, text=True, timeout=BOUND,
    )  # fmt: skip
    assert ended.returncode == 2 and "on PostgreSQL: set `store.url`" in ended.stderr
