"""Cursors (`cursor_update` of ACP's draft) and the fork at one, by the ids of their requirements: `pytest -k CUR`."""

from pathlib import Path
from typing import Any

from msgspec import UNSET

from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor
from tests.fronts.server.test_server import editor, served

from .kit import Rig, another, refused, reloads, rig, went
from .test_fork import conversation, fork, texts
from .test_session_drafts import HANGS, ON, begun
from .test_subagents import FILES, SCRIPT
from .test_undo import bash, said, write
from .test_v2 import of_v2, text

BOTH: dict[str, Any] = {"config": ON, "cursors": True}


def cursors(r: Rig, session: str = "") -> list[acp.CursorUpdate]:
    found = r.editor.updates.get(session or r.editor.session_id, [])
    return [each for each in found if isinstance(each, acp.CursorUpdate)]


def usable(r: Rig, session: str = "") -> dict[str, bool]:
    """Cursor -> whether it can be forked at."""
    found: dict[str, bool] = {}
    for each in cursors(r, session):
        if each.capabilities is None or isinstance(each.capabilities, acp.CursorCapabilities):
            found[each.cursor_id] = each.capabilities is not None and each.capabilities.fork is not None
    return found


async def forked(r: Rig, cursor: str, source: str = "") -> list[str]:
    """What the model is told in a fork at a cursor, without the system prompt; the editor goes on in it."""
    made = await fork(r, source or r.editor.session_id, cursorId=cursor)
    r.editor.session_id = made["sessionId"]
    await r.editor.prompt("In the fork.")
    return conversation(r, len(r.model.requests))


async def test_cur_1_only_a_client_that_takes_them_is_told(tmp_path):
    for number, about in enumerate(({"config": ON}, {"cursors": True}, {})):
        (home := tmp_path / str(number)).mkdir()
        async with went(home, ["ok"], **about) as r:
            await reloads(r)
            assert not cursors(r)


async def test_cur_2_4_and_10_each_prompt_has_one_before_it(tmp_path):
    async with went(tmp_path, ["ok"] * 2, **BOTH) as r:
        await r.editor.prompt("more")
        first, second = cursors(r)
        assert first.cursor_id != second.cursor_id
        for each in (first, second):
            assert isinstance(each.anchor, acp.CursorAnchor) and each.anchor.message_id
            assert (each.anchor.type, each.anchor.position) == ("user_message", "before")
        assert usable(r) == {first.cursor_id: True, second.cursor_id: True}


async def test_cur_3_and_9_an_undo_clears_what_can_be_done_and_a_redo_restores_it(tmp_path):
    async with rig(tmp_path, [write("a", "1"), "one", write("b", "2"), "two", "three"], mode="auto", **BOTH) as r:
        await said(r, "make a")
        await said(r, "make b")
        one, two = usable(r)
        await said(r, "/undo 2 conversation yes")
        assert (usable(r)[one], usable(r)[two]) == (True, False)
        assert [each.anchor for each in cursors(r) if each.cursor_id == two][1:] == [UNSET], "it stays where it was"
        with refused(-32602):
            await fork(r, r.editor.session_id, cursorId=two)
        assert (await fork(r, r.editor.session_id, cursorId=one))["sessionId"], "what stands can be forked at"
        await said(r, "/redo yes")
        assert (usable(r)[one], usable(r)[two]) == (True, True)
        assert "make b" not in str(await forked(r, two))


async def test_cur_4_and_8_a_load_tells_the_same_ones_each_behind_its_message(tmp_path):
    async with went(tmp_path, ["ok"] * 2, **BOTH) as r:
        await r.editor.prompt([acp.TextContent(text="two"), acp.TextContent(text="blocks")])
        before = usable(r)
        await reloads(r)
        assert usable(r) == before
        shown: list[Any] = r.editor.updates[r.editor.session_id]
        for at, each in enumerate(shown):
            if isinstance(each, acp.CursorUpdate):
                assert isinstance(each.anchor, acp.CursorAnchor)
                assert shown[at - 1].message_id == each.anchor.message_id
                assert getattr(shown[at + 1], "message_id", "") != each.anchor.message_id


async def test_cur_5_and_7_a_fork_at_one_has_what_was_before_it_and_nothing_of_it(tmp_path):
    async with went(tmp_path, ["one", "two", "three", "four"], prompt="First.", **BOTH) as r:
        await r.editor.prompt("Second.")
        session, (first, second) = r.editor.session_id, usable(r)
        told = await forked(r, second)
        assert "First." in told and "one" in told and not {"Second.", "two"} & {*told}
        assert not {"First.", "one"} & {*await forked(r, first, session)}
        assert [*usable(r)][-1] not in (first, second), "the fork has its own"


async def test_cur_7_what_is_no_cursor_is_refused_and_null_is_the_whole(tmp_path):
    async with went(tmp_path, ["one", "two"], prompt="First.", **BOTH) as r:
        (cursor,) = usable(r)
        for wrong in ("", "before-", cursor + "x", cursor.removeprefix("before-"), "1", 7):
            with refused(-32602):
                await fork(r, r.editor.session_id, cursorId=wrong)
        assert [*r.agent.sessions.ids] == [r.editor.session_id]
        assert "one" in texts(r, r.editor.session_id)
        made = await fork(r, r.editor.session_id, cursorId=None)
        r.editor.session_id = made["sessionId"]
        await r.editor.prompt("More.")
        assert "First." in conversation(r, 2)


async def test_cur_7_while_it_is_off_the_field_is_not_read(tmp_path):
    async with went(tmp_path, ["one", "two"], prompt="First.") as r:
        for odd in ("nonsense", 7):
            made = await fork(r, r.editor.session_id, cursorId=odd)
        r.editor.session_id = made["sessionId"]
        await r.editor.prompt("More.")
        assert "First." in conversation(r, 2)


async def test_cur_6_one_before_a_prompt_that_runs_can_be_forked_at(tmp_path):
    async with rig(tmp_path, [HANGS, "ok"], **BOTH) as r:
        turn, session = await begun(r.editor, "Long."), r.editor.session_id
        (cursor,) = usable(r)
        assert "Long." not in await forked(r, cursor)
        r.editor.cancel(session_id=session)
        assert (await turn.response()).stop_reason == "cancelled"


async def test_cur_7_one_of_a_session_that_is_not_open_and_of_a_prompt_with_calls(tmp_path):
    script = [bash("echo made"), "one", "two", "three"]
    async with went(tmp_path, script, prompt="First.", mode="auto", **BOTH) as r:
        await r.editor.prompt("Second.")
        session, second = r.editor.session_id, [*usable(r)][1]
        await r.editor.client.close_session(session)
        told = await forked(r, second, session)
        assert any("made" in each for each in told) and "Second." not in told


async def test_cur_7_a_fork_of_a_fork_knows_the_cursors_of_what_it_has(tmp_path):
    async with went(tmp_path, ["one", "two", "three", "four"], prompt="First.", **BOTH) as r:
        await r.editor.prompt("Second.")
        first, second = usable(r)
        await forked(r, second)
        with refused(-32602):
            await fork(r, r.editor.session_id, cursorId=second)
        assert "First." not in await forked(r, first)


async def test_cur_8_a_load_with_sub_agents_shown_as_sessions_has_them_too(tmp_path):
    async with went(tmp_path, SCRIPT, files=FILES, subagents=True, **BOTH) as r:
        (before,) = usable(r)
        session = r.editor.session_id
        await r.editor.client.close_session(session)
        async with another(r.environ, subagents=True, cursors=True) as second:
            await second.load_session(session, r.project)
            for name, shown in second.updates.items():
                told = [each.cursor_id for each in shown if isinstance(each, acp.CursorUpdate)]
                assert told == ([before] if name == session else [])


async def test_cur_9_after_an_undo_a_load_tells_only_what_stands(tmp_path):
    async with rig(tmp_path, [write("a", "1"), "one", write("b", "2"), "two"], mode="auto", **BOTH) as r:
        await said(r, "make a")
        await said(r, "make b")
        await said(r, "/undo 2 conversation yes")
        stands = {cursor for cursor, can in usable(r).items() if can}
        await reloads(r)
        assert {*usable(r)} == stands


# --- over a server, and in v2 ---------------------------------------------------------------------------------------


def pointed(made: FakeEditor, session: str) -> list[tuple[str, bool, bool]]:
    """Cursor, whether its anchor was told with it, and whether it can be forked at."""
    found = [each for each in made.updates.get(session, []) if isinstance(each, acp.CursorUpdate)]
    return [(each.cursor_id, each.anchor is not UNSET, each.capabilities is not None) for each in found]


def behind_its_message(made: FakeEditor, session: str) -> bool:
    shown: list[Any] = made.updates[session]
    return all(
        shown[at - 1].message_id == each.anchor.message_id
        for at, each in enumerate(shown)
        if isinstance(each, acp.CursorUpdate) and isinstance(each.anchor, acp.CursorAnchor)
    )


async def test_cur_1_on_a_server_each_client_is_told_as_it_takes_them(tmp_path: Path) -> None:
    async with (
        served(tmp_path, ["one", "two"], config=ON) as at,
        editor(at, cursors=True) as made, editor(at, cursors=True) as looks, editor(at) as plain,
    ):  # fmt: skip
        session = (await made.new_session(at.project)).session_id
        for other in (looks, plain):
            await other.load_session(session, at.project)
        await made.prompt("First.")
        await looks.wait_until(lambda: "one'" in str(looks.updates))
        (cursor,) = pointed(made, session)
        assert cursor[1:] == (True, True) and pointed(looks, session) == [cursor]
        assert behind_its_message(looks, session)
        await plain.wait_until(lambda: "one'" in str(plain.updates))
        assert not pointed(plain, session)
        copy = await made.request(
            "session/fork", {"sessionId": session, "cwd": str(at.project), "mcpServers": [], "cursorId": cursor[0]}
        )
        made.session_id = copy["sessionId"]
        await made.prompt("Second.")
        assert "First." not in str(at.model.requests[1].body)


async def test_cur_1_on_a_server_without_drafts_nobody_is_told(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"]) as at, editor(at, cursors=True) as made:
        session = (await made.new_session(at.project)).session_id
        await made.prompt("First.")
        await made.load_session(session, at.project)
        assert not pointed(made, session)


async def test_cur_6_a_token_that_may_not_fork_is_told_none(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two"], config=ON) as at, editor(at, cursors=True) as made:
        session = (await made.new_session(at.project)).session_id
        await made.prompt("First.")
        async with editor(at, at.identities.add("watcher", scope="watch", owner="me"), cursors=True) as looks:
            await looks.load_session(session, at.project)
            await made.prompt("Second.")
            await looks.wait_until(lambda: "two'" in str(looks.updates))
            assert len(pointed(made, session)) == 2 and not pointed(looks, session)


async def test_cur_4_and_8_on_a_server_a_load_tells_the_same_ones(tmp_path: Path) -> None:
    async with (
        served(tmp_path, ["one", "two", "three"], config=ON) as at,
        editor(at, cursors=True) as made, editor(at, cursors=True) as other,
    ):  # fmt: skip
        session = (await made.new_session(at.project)).session_id
        await made.prompt("First.")
        await made.prompt("Second.")
        await other.load_session(session, at.project)
        assert pointed(other, session) == pointed(made, session) and behind_its_message(other, session)
        await other.prompt("Third.", session_id=session)
        await made.wait_until(lambda: len(pointed(made, session)) == 3)
        assert pointed(other, session) == pointed(made, session)
        assert all(told for _, told, _ in pointed(other, session)), "each anchor once"


async def test_cur_2_and_9_who_comes_back_is_told_what_it_missed(tmp_path: Path) -> None:
    """A prompt that was made meanwhile, and one that was taken back."""
    async with served(tmp_path, ["one", "two", "three"], config=ON) as at, editor(at, cursors=True) as other:
        async with editor(at, cursors=True) as made:
            session = (await made.new_session(at.project)).session_id
            await made.prompt("First.")
            await made.prompt("Second.")
            (first, *_), (second, *_) = pointed(made, session)
        await other.load_session(session, at.project)
        await other.prompt("/undo 2 conversation yes", session_id=session)
        await other.prompt("Third.", session_id=session)
        await other.wait_until(lambda: (second, False, False) in pointed(other, session))
        last = pointed(other, session)[-1][0]
        async with editor(at, cursors=True) as back:
            await back.client.resume_session(session, at.project)
            await back.wait_until(lambda: last in [cursor for cursor, *_ in pointed(back, session)])
            told = {cursor: state for cursor, *state in pointed(back, session)}
            assert told[first] == [False, True] and told[second] == [False, False] and told[last] == [True, True]


async def test_cur_in_v2_they_are_told_cleared_and_forked_at(tmp_path: Path) -> None:
    async with served(tmp_path, ["one", "two", "three"], config=ON) as at, of_v2(at) as client:
        welcome = await client.initialize(capabilities={"session": {"cursors": {}}})
        assert welcome["capabilities"]["session"]["fork"] == {}
        made = await client.ask("session/new", cwd=str(at.project))
        session = made["sessionId"]
        said = [(await client.ask("session/prompt", sessionId=session, prompt=text("First.")))["messageId"]]
        await client.ended()
        said.append((await client.ask("session/prompt", sessionId=session, prompt=text("Second.")))["messageId"])
        await client.ended(2)
        told = client.updates("cursor_update")
        assert [each["anchor"]["messageId"] for each in told] == said
        assert {(each["anchor"]["type"], each["anchor"]["position"]) for each in told} == {("user_message", "before")}
        second = told[1]["cursorId"]
        copy = await client.ask("session/fork", sessionId=session, cwd=str(at.project), cursorId=second)
        assert copy["availableCommands"] and copy["sessionId"] != session
        await client.ask("session/prompt", sessionId=copy["sessionId"], prompt=text("In the fork."))
        await client.ended(3)
        assert "First." in str(at.model.requests[2].body) and "Second." not in str(at.model.requests[2].body)
        await client.ask("session/prompt", sessionId=session, prompt=text("/undo 2 conversation yes"))
        await client.until(lambda _: client.updates("cursor_update")[-1]["capabilities"] is None)
        assert client.updates("cursor_update")[-1].keys() == {"sessionUpdate", "cursorId", "capabilities"}
        asked = {"sessionId": session, "cwd": str(at.project), "cursorId": second}
        assert (await client.refused("session/fork", **asked))["code"] == -32602
        assert (await client.refused("session/fork", **{**asked, "sessionId": "none"}))["code"] == -32002


async def test_cur_1_in_v2_a_client_that_does_not_take_them_is_not_told(tmp_path: Path) -> None:
    async with served(tmp_path, ["one"], config=ON) as at, of_v2(at) as client:
        await client.initialize()
        made = await client.ask("session/new", cwd=str(at.project))
        await client.ask("session/prompt", sessionId=made["sessionId"], prompt=text("First."))
        await client.ended()
        assert not client.updates("cursor_update")
