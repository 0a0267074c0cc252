"""Several processes on one store: any of them answers for any session; one dies, another goes on."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.client.permissions import never_answers
from acp_agent.errors import PeerError
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call
from tests.forked import COMMAND
from tests.fronts.server.test_house import AUTO, WAITS, asked, cut_off, exists, log_of, places, turns
from tests.fronts.server.test_server import Place, editor, running, served
from tests.postgres_server import MISSING, PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.remove()


@asynccontextmanager
async def two(
    postgres: PostgresServer, tmp_path: Path, script: Any, config: str = AUTO, lease: float = 2.0
) -> AsyncIterator[tuple[Place, Place]]:
    """Servers with one store, one file of tokens and one model."""
    schema = f"s{uuid.uuid4().hex[:12]}"
    more = f'[store]\nurl = "{postgres.url()}"\nschema = "{schema}"\n[server]\nlease = {lease}\n{config}'
    async with served(tmp_path, script, config=more) as one, running(one) as other:
        yield one, other


def said(made: FakeEditor, words: str) -> bool:
    return words in made.text()


async def test_a_session_is_loaded_prompted_and_cancelled_in_another_process(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    script = [
        Answer(text="It is first."),
        Answer(text="It is second."),
        Answer(tool_calls=(Call("bash", {"command": WAITS}),)),
    ]
    async with two(postgres, tmp_path, script) as (one, other), editor(one) as first, editor(other) as second:
        session = (await first.new_session(one.project)).session_id
        await first.prompt("go")
        loaded = await second.load_session(session, one.project)
        assert (loaded.meta or {})["turn"] == {"state": "idle"}
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


async def test_a_question_goes_to_all_processes_and_the_first_answer_counts(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": "touch made"}),)), Answer(text="It is done.")]
    async with (
        two(postgres, tmp_path, script, "") as (one, other),
        editor(one, otherwise=never_answers) as first,
        editor(other) as second,
    ):
        session = (await first.new_session(one.project)).session_id
        await second.load_session(session, one.project)
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
        assert (await second.prompt("more")).stop_reason == "end_turn"
        assert second.text() == "It is first.It is second."
        assert other.server.agent(one.identities.known()[0]).sessions.has(session)
        stored = [row["seq"] for row in await log_of(other, session)]
        assert places(second, session) == [seq for seq in stored if seq > stored[-1] - len(places(second, session))]


# --- processes that die ------------------------------------------------------------------------------------------


@asynccontextmanager
async def process_beside(place: Place, tmp_path: Path) -> AsyncIterator[tuple[Place, Any]]:
    """A real `acp-coder serve` with the same store and tokens."""
    command = [COMMAND, "serve", "--port", "0", "--token-file", str(tmp_path / "tokens.json")]
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
                process.kill()


async def test_a_process_killed_in_a_turn_loses_nothing_and_the_turn_is_not_begun_twice(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Who was connected by another process goes on without noticing more than the loss of the turn."""
    command = f"echo once >>ran; {WAITS}"
    script = [Answer(text="It begins. ", tool_calls=(Call("bash", {"command": command}),)), Answer(text="It goes on.")]
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
    script = [Answer(tool_calls=(Call("bash", {"command": WAITS}),)), Answer(text="It goes on.")]
    async with (
        two(postgres, tmp_path, script) as (one, _),
        process_beside(one, tmp_path) as (dies, process),
        cut_off(dies, check=False) as first,
        editor(one, check=False) as second,
    ):
        session = (await first.new_session(one.project)).session_id
        await second.load_session(session, one.project)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(killed, process, one.project / "begun")
            with pytest.raises(PeerError, match="prompt again to go on"):
                await second.prompt("go")
        assert (await second.prompt("go on")).stop_reason == "end_turn"


async def killed(process: Any, once: Path) -> None:
    await exists(once)
    process.kill()
