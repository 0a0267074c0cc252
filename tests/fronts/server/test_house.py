"""Sessions that outlive the links to them: turns go on, what was missed comes once and in order, several watch."""

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.client.permissions import never_answers, reject_once
from acp_agent.errors import ConnectionClosed, PeerError
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call
from tests.fronts.server.documented import checking
from tests.fronts.server.test_server import Place, editor, served
from tests.websockets_client import connected

WAITS = "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo over"
SCRIPT = [Answer(text="First. ", tool_calls=(Call("bash", {"command": WAITS}),)), Answer(text="It is done.")]
AUTO = '[agent]\nmode = "auto"\n'


@asynccontextmanager
async def cut_off(place: Place, token: str = "", **more: Any) -> AsyncIterator[FakeEditor]:
    """An editor whose link is cut at the end, in the middle of what it waits for."""
    async with connected(place.url, token or place.token) as transport, FakeEditor(transport, **more) as made:
        await made.start()
        yield made
        transport.close()


async def asked(made: FakeEditor, words: str = "go") -> None:
    with suppress(ConnectionClosed):
        await made.prompt(words)


async def exists(file: Path) -> None:
    while not file.exists():
        await anyio.sleep(0.01)


def places(made: FakeEditor, session: str) -> list[int]:
    """Of all updates that it was sent, those in the log."""
    notes = [note["params"] for note in made.lines("from_agent", "session/update")]
    return [note["_meta"]["seq"] for note in notes if note["sessionId"] == session and "seq" in note.get("_meta", {})]


def turns(made: FakeEditor) -> list[dict[str, Any]]:
    """What it was told of the turns of others, without what they used and changed."""
    notes = [note["params"]["update"] for note in made.lines("from_agent", "session/update")]
    told = [note["_meta"]["turn"] for note in notes if "turn" in (note.get("_meta") or {})]
    return [{key: value for key, value in turn.items() if key not in ("usage", "files")} for turn in told]


async def log_of(place: Place, session: str, token: str = "") -> list[dict[str, Any]]:
    async with checking(headers={"Authorization": f"Bearer {token or place.token}"}) as web:
        return list((await web.get(f"{place.http}/sessions/{session}/messages?limit=1000")).json())


async def test_a_turn_goes_on_without_its_client_and_who_comes_back_sees_the_rest(tmp_path: Path) -> None:
    async with served(tmp_path, SCRIPT, config=AUTO) as place:
        async with cut_off(place) as first, anyio.create_task_group() as tasks:
            session = (await first.new_session(place.project)).session_id
            tasks.start_soon(asked, first)
            await exists(place.project / "begun")
            first._transport.close()
        async with editor(place) as second:
            assert ((await second.load_session(session, place.project)).meta or {})["turn"] == {"state": "running"}
            assert second.tool_call().status == "in_progress"
            (place.project / "go").touch()
            await second.wait_until(lambda: "It is done." in second.text())
            assert second.text() == "First. It is done."
            second.tool_call().assert_finished("completed")
            assert second.tool_call().statuses.count("completed") == 1
            await second.wait_until(lambda: {"state": "idle", "stopReason": "end_turn"} in turns(second))
            assert not second.violations


async def test_who_resumes_gets_what_was_missed_once_and_in_order(tmp_path: Path) -> None:
    async with served(tmp_path, SCRIPT, config=AUTO) as place:
        async with cut_off(place) as first, anyio.create_task_group() as tasks:
            session = (await first.new_session(place.project)).session_id
            tasks.start_soon(asked, first)
            await first.wait_until(lambda: first.tool_calls() and first.tool_call().status == "in_progress")
            await exists(place.project / "begun")
            first._transport.close()
        while place.server._open:  # It has noticed.
            await anyio.sleep(0.01)
        (place.project / "go").touch()
        while "It is done." not in json.dumps(await log_of(place, session)):
            await anyio.sleep(0.02)
        async with editor(place, check=False) as second:  # It was told of the call before.
            await second.resume_session(session, place.project)
            await second.wait_until(lambda: "It is done." in second.text())
            stored = [row["seq"] for row in await log_of(place, session)]
            seen = places(first, session)
            assert [seen[-1] < place_ for place_ in places(second, session)] == [True] * len(places(second, session))
            own = {row["seq"] for row in await log_of(place, session) if row["event_type"] == "user_message_chunk"}
            assert sorted([*own, *seen, *places(second, session)]) == stored
        async with editor(place, check=False) as third:  # It says itself how far it had come.
            params = {"sessionId": session, "cwd": str(place.project), "_meta": {"after": seen[0]}}
            await third.request("session/resume", params)
            await third.wait_until(lambda: len(places(third, session)) == len([seq for seq in stored if seq > seen[0]]))
            assert places(third, session) == [seq for seq in stored if seq > seen[0]]
            for wrong in ("x", -1, 1.5, True):
                with pytest.raises(PeerError, match="_meta.after"):
                    await third.request("session/resume", {**params, "_meta": {"after": wrong}})


async def test_two_watch_both_see_all_and_the_first_answer_counts(tmp_path: Path) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": "touch made"}),)), Answer(text="It is done.")]
    async with served(tmp_path, script) as place:
        async with editor(place, otherwise=never_answers) as first, editor(place) as second:
            session = (await first.new_session(place.project)).session_id
            await second.load_session(session, place.project)
            assert (await first.prompt("make it")).stop_reason == "end_turn"
            await second.wait_until(lambda: "It is done." in second.text())
            await first.wait_until(lambda: first.lines("from_agent", "$/cancel_request"))
            for made in (first, second):
                assert len(made.lines("from_agent", "session/request_permission")) == 1
            assert not second.lines("from_agent", "$/cancel_request")
            chunks = [each for each in second.updates[session] if isinstance(each, acp.UserMessageChunk)]
            assert [getattr(each.content, "text", "") for each in chunks] == ["make it"]
            assert not [each for each in first.updates[session] if isinstance(each, acp.UserMessageChunk)]
            await second.wait_until(lambda: [turn["state"] for turn in turns(second)][-1:] == ["idle"])
            assert not turns(first)
            await second.client.set_session_mode(session, "ask")
            await first.wait_for(lambda each: isinstance(each, acp.CurrentModeUpdate | acp.ConfigOptionUpdate))
            await first.client.close_session(session)  # The other one stays.
            await second.client.set_session_mode(session, "code")
        assert (place.project / "made").exists()


async def test_a_question_is_put_to_who_comes_later_and_given_up_in_time(tmp_path: Path) -> None:
    call = Answer(tool_calls=(Call("bash", {"command": "touch made"}),))
    script = [call, Answer(text="It is done."), call, Answer(text="never")]
    async with served(tmp_path, script) as place:
        async with cut_off(place, otherwise=never_answers) as first, anyio.create_task_group() as tasks:
            session = (await first.new_session(place.project)).session_id
            tasks.start_soon(asked, first)
            await first.wait_until(lambda: first.permission_requests)
            first._transport.close()
        async with editor(place) as second:
            await second.load_session(session, place.project)
            await second.wait_until(lambda: "It is done." in second.text())
            assert len(second.permission_requests) == 1
    (tmp_path / "project/made").unlink()
    async with served(tmp_path / "b", script[2:], config="[server]\nquestion_minutes = 0.001\n") as place:
        async with cut_off(place, otherwise=never_answers) as first, anyio.create_task_group() as tasks:
            session = (await first.new_session(place.project)).session_id
            tasks.start_soon(asked, first)
            await first.wait_until(lambda: first.permission_requests)
            first._transport.close()
        while '"failed"' not in json.dumps(await log_of(place, session)):
            await anyio.sleep(0.02)
        async with editor(place) as second:
            await second.load_session(session, place.project)
            assert second.tool_call().status == "failed" and not second.permission_requests
            assert not (place.project / "made").exists()


async def test_what_a_token_may_do_is_its_scope(tmp_path: Path) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": "touch made"}),)), Answer(text="It is done.")]
    async with served(tmp_path, script) as place:
        tokens = {scope: place.identities.add(scope, scope=scope, owner="me") for scope in ("watch", "approve")}
        async with (
            editor(place, otherwise=never_answers) as main, editor(place, tokens["watch"]) as watches,
            editor(place, tokens["approve"]) as approves,
        ):  # fmt: skip
            assert main.initialized is not None and (main.initialized.meta or {})["scope"] == "prompt"
            session = (await main.new_session(place.project)).session_id
            about = {"sessionId": session, "cwd": str(place.project), "mcpServers": []}
            block = [{"type": "text", "text": "hello"}]
            for made, scope in ((watches, "watch"), (approves, "approve")):
                assert made.initialized is not None and (made.initialized.meta or {})["scope"] == scope
                await made.load_session(session, place.project)
                for method, params in (
                    ("session/new", {"cwd": str(place.project), "mcpServers": []}), ("session/fork", about),
                    ("session/delete", about), ("session/prompt", {**about, "prompt": block}),
                    ("_session/steering", {**about, "prompt": block}), ("_session/undo", about),
                    ("_session/redo", about), ("session/set_mode", {**about, "modeId": "auto"}),
                    ("session/set_config_option", {**about, "configId": "mode", "value": "auto"}),
                    ("authenticate", {"methodId": "agent"}),
                ):  # fmt: skip
                    with pytest.raises(PeerError, match=f"its scope is `{scope}`") as refused:
                        await made.request(method, params)
                    assert refused.value.code == -32003
                with pytest.raises(PeerError, match="Method not found"):
                    await made.request("logout")
                assert [each.session_id for each in (await made.client.list_sessions()).sessions] == [session]
                await made.request("_session/checkpoints", {"sessionId": session})
            assert (await main.prompt("make it")).stop_reason == "end_turn"  # `approve` has answered.
            assert not watches.permission_requests and len(approves.permission_requests) == 1
            await watches.wait_until(lambda: "It is done." in watches.text())
        async with checking(headers={"Authorization": f"Bearer {tokens['watch']}"}) as web:
            answer = await web.delete(f"{place.http}/sessions/{session}")
            assert (answer.status_code, "its scope is `watch`" in answer.text) == (403, True)
            assert (await web.get(f"{place.http}/sessions/{session}")).status_code == 200


async def test_only_who_may_stop_a_turn_stops_it(tmp_path: Path) -> None:
    async with served(tmp_path, SCRIPT, config=AUTO) as place:
        tokens = {scope: place.identities.add(scope, scope=scope, owner="me") for scope in ("watch", "approve")}
        stranger = place.identities.add("stranger")
        async with (
            editor(place) as main, editor(place, tokens["watch"]) as watches,
            editor(place, tokens["approve"]) as approves, editor(place, stranger) as strange,
        ):  # fmt: skip
            session = (await main.new_session(place.project)).session_id
            turn = main.begin("go")
            await exists(place.project / "begun")
            await watches.load_session(session, place.project)
            for made in (watches, strange, approves):  # The last one has not loaded it.
                made.notify("session/cancel", {"sessionId": session})
                await made.client.list_sessions()
            with pytest.raises(PeerError, match="does not exist"):
                await strange.load_session(session, place.project)
            assert not turn.done
            await approves.load_session(session, place.project)
            approves.notify("session/cancel", {"sessionId": session})
            assert (await turn.response()).stop_reason == "cancelled"


async def test_a_token_for_some_folders_sees_no_session_of_others(tmp_path: Path) -> None:
    async with served(tmp_path, [Answer(text="a"), Answer(text="b")]) as place:
        (inner := place.project / "inner").mkdir()
        phone = place.identities.add("phone", (str(inner),), owner="me")
        async with editor(place) as main, editor(place, phone) as small:
            outside = (await main.new_session(place.project)).session_id
            await main.prompt("one")
            inside = (await main.new_session(inner)).session_id
            await main.prompt("two")
            assert [each.session_id for each in (await small.client.list_sessions()).sessions] == [inside]
            for cwd in (inner, place.project):
                with pytest.raises(PeerError):
                    await small.load_session(outside, cwd)
            await small.client.delete_session(outside)
            await small.load_session(inside, inner)
        async with checking(headers={"Authorization": f"Bearer {phone}"}) as web:
            assert [row["id"] for row in (await web.get(f"{place.http}/sessions")).json()] == [inside]
            assert (await web.get(f"{place.http}/sessions/{outside}/messages")).status_code == 404
            assert (await web.delete(f"{place.http}/sessions/{outside}")).status_code == 404
        assert await log_of(place, outside)


async def test_who_reads_slowly_holds_nobody_up_and_misses_nothing(tmp_path: Path) -> None:
    lines = [
        Answer(text=tuple(f"line {number} " + str(list(range(number * 7, number * 7 + 3500))) for number in range(250)))
    ]
    async with (
        served(tmp_path, lines, config="[agent]\nmax_answer_bytes = 10_000_000\n") as place, editor(place) as main,
        connected(place.url, place.token) as transport, FakeEditor(transport) as slow,
    ):  # fmt: skip
        session = (await main.new_session(place.project)).session_id
        await slow.start()
        await slow.load_session(session, place.project)
        gate, read = anyio.Event(), transport.read

        async def reads_later() -> bytes:
            await gate.wait()
            return await read()

        transport.read = reads_later  # type: ignore[method-assign]
        assert (await main.prompt("go")).stop_reason == "end_turn"
        gate.set()
        await slow.wait_for(lambda update: "line 249 " in str(update))
        assert slow.text() == main.text() and places(slow, session) == sorted(set(places(slow, session)))


async def test_a_question_rejected_elsewhere_is_rejected(tmp_path: Path) -> None:
    script = [Answer(tool_calls=(Call("bash", {"command": "touch made"}),)), Answer(text="It is not done.")]
    async with (
        served(tmp_path, script) as place, editor(place, otherwise=never_answers) as first,
        editor(place, otherwise=reject_once) as second,
    ):  # fmt: skip
        await second.load_session((await first.new_session(place.project)).session_id, place.project)
        await first.prompt("make it")
        assert not (place.project / "made").exists()


def _has(made: FakeEditor, session: str, most: int) -> bool:
    return len(places(made, session)) >= most


async def test_links_cut_at_any_moment_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    chunks = [f"{number} " for number in range(400)]
    async with served(tmp_path, [Answer(text=tuple(chunks), delay=0.002)], config=AUTO) as place:
        async with cut_off(place) as first, anyio.create_task_group() as tasks:
            session = (await first.new_session(place.project)).session_id
            tasks.start_soon(asked, first)
            await first.wait_until(lambda: first.text())
            first._transport.close()
        seen, text = places(first, session), first.text()
        while not text.endswith("399 "):
            async with cut_off(place, check=False) as again:
                params = {"sessionId": session, "cwd": str(place.project), "_meta": {"after": seen[-1]}}
                await again.request("session/resume", params)
                enough = partial(_has, again, session, chance.randrange(1, 60))
                with suppress(TimeoutError):
                    await again.wait_until(enough, seconds=2)
            seen, text = [*seen, *places(again, session)], text + again.text(session_id=session)
        assert text == "".join(chunks)
        assert seen == sorted(set(seen))


async def test_a_session_that_nobody_uses_is_closed_and_opened_again(tmp_path: Path) -> None:
    async with served(
        tmp_path, [Answer(text="a"), Answer(text="b")], config="[server]\nidle_minutes = 0.001\n"
    ) as place:
        async with editor(place) as first:
            session = (await first.new_session(place.project)).session_id
            await first.prompt("one")
        async with editor(place) as second:
            await second.load_session(session, place.project)
            assert (await second.prompt("two")).stop_reason == "end_turn"


async def test_an_owner_has_only_so_many_sessions_open(tmp_path: Path) -> None:
    async with served(tmp_path, config="[server]\nmax_sessions = 2\n") as place, editor(place) as made:
        first = (await made.new_session(place.project)).session_id
        await made.new_session(place.project)
        with pytest.raises(PeerError, match="2 sessions are open already"):
            await made.new_session(place.project)
        await made.client.close_session(first)
        await made.new_session(place.project)


async def test_a_revoked_token_ends_its_connections(tmp_path: Path) -> None:
    async with served(tmp_path, config="[server]\nping_interval = 0.05\n") as place:
        other = place.identities.add("other")
        async with editor(place) as stays, cut_off(place, other) as goes:
            place.identities.revoke("other")
            with pytest.raises((ConnectionClosed, PeerError)):
                while True:
                    await goes.client.list_sessions()
            await stays.client.list_sessions()
