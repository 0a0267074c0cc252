"""What drafts of ACP ask about sessions (`protocol.unstable`), by the ids of their requirements: `pytest -k TIT`,
`-k STA`, `-k ARC`."""

from pathlib import Path
from typing import Any

import pytest

from acp_agent.errors import PeerError
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor, Turn
from acp_agent.testing.fake_model import Answer
from tests.fronts.server.test_server import editor, served

from .kit import Rig, another, in_a_file, on_stdio, put, refused, rig, went
from .test_fork import fork, texts
from .test_v2 import place

ON = "[protocol]\nunstable = true\n"
UNKNOWN = "00000000-0000-0000-0000-000000000000"
HANGS = Answer(text=("One", " two"), hang_after=1)
METHODS = {
    "session/set_title": {"title": "A"}, "session/status": {}, "session/archive": {}, "session/unarchive": {},
}  # fmt: skip


def capabilities(client: FakeEditor) -> dict[str, Any]:
    answer: dict[str, Any] = client.transcript[1].message["result"]["agentCapabilities"]["sessionCapabilities"]
    return answer


async def of_it(client: FakeEditor, method: str, session: str = "", **params: Any) -> dict[str, Any]:
    """The answer to a request about a session."""
    answer: dict[str, Any] = await client.request(method, {"sessionId": session or client.session_id, **params})
    return answer


async def listed(client: FakeEditor, **asked: Any) -> dict[str, dict[str, Any]]:
    """All pages, by the sessions' ids, in their order."""
    found: dict[str, dict[str, Any]] = {}
    while True:
        page = await client.request("session/list", asked)
        assert not found.keys() & {each["sessionId"] for each in page["sessions"]}
        found |= {each["sessionId"]: each for each in page["sessions"]}
        if "nextCursor" not in page:
            return found
        asked["cursor"] = page["nextCursor"]


def titles(client: FakeEditor, session: str = "") -> list[Any]:
    updates = client.updates[session or client.session_id]
    return [each.title for each in updates if isinstance(each, acp.SessionInfoUpdate) and each.title]


async def begun(client: FakeEditor, prompt: str = "go") -> Turn:
    """A turn in which the model has said a word."""
    turn = client.begin(prompt)
    await client.wait_until(lambda: "One" in client.text())
    return turn


async def closed(r: Rig, prompt: str = "go") -> str:
    """A session that had a turn and is not open."""
    session = (await r.editor.new_session(r.project)).session_id
    await r.editor.prompt(prompt)
    await r.editor.client.close_session(session)
    return session


async def test_off_nothing_of_it_is_advertised_asked_or_read(tmp_path):
    async with went(tmp_path, ["ok"]) as r:
        assert not {"title", "status", "archive"} & capabilities(r.editor).keys()
        for method, more in METHODS.items():
            with refused(-32601, "protocol.unstable"):
                await of_it(r.editor, method, **more)
        for archived in ("only", "nonsense", 7):
            (entry,) = (await listed(r.editor, archived=archived)).values()
            assert "archived" not in entry and entry["sessionId"] == r.editor.session_id


async def test_what_was_archived_is_listed_as_ever_once_it_is_off(tmp_path):
    async with went(tmp_path, ["ok"], config=ON) as r:
        await of_it(r.editor, "session/archive")
        (tmp_path / "config.toml").write_text("")
        assert [*await listed(r.editor)] == [r.editor.session_id]


# --- titles --------------------------------------------------------------------------------------------------------


async def test_tit_1_a_title_is_stored_and_answered(tmp_path):
    async with went(tmp_path, ["ok"], config=ON) as r:
        assert capabilities(r.editor)["title"] == {}
        assert await of_it(r.editor, "session/set_title", title="Tangerines") == {"title": "Tangerines"}


async def test_tit_2_it_is_trimmed_and_cut_and_not_empty(tmp_path):
    async with went(tmp_path, ["ok"], config=ON) as r:
        cut = (await of_it(r.editor, "session/set_title", title="x" * 5000))["title"]
        assert 100 <= len(cut) < 1000 and set(cut) == {"x"}
        assert (await of_it(r.editor, "session/set_title", title=" a \n b\t"))["title"] == "a b"
        for wrong in ({"title": " \n\t"}, {"title": ""}, {"title": None}, {}, {"title": 7}):
            with refused(-32602):
                await of_it(r.editor, "session/set_title", **wrong)
        with refused(-32002):
            await of_it(r.editor, "session/set_title", UNKNOWN, title="A")
        assert (await listed(r.editor))[r.editor.session_id]["title"] == "a b"


async def test_tit_3_a_session_that_is_not_open_has_it_at_once_and_stays_closed(tmp_path):
    async with rig(tmp_path, ["ok"], config=ON) as r:
        session = await closed(r)
        await of_it(r.editor, "session/set_title", session, title="Plums")
        assert (await listed(r.editor))[session]["title"] == "Plums"
        assert await of_it(r.editor, "session/status", session) == {"status": "saved"}


async def test_tit_4_no_automatic_title_takes_its_place(tmp_path):
    async with rig(tmp_path, ["ok"] * 2, config=ON) as r:
        await of_it(r.editor, "session/set_title", title="Mine")
        await r.editor.prompt("Peel the tangerine.")
        assert (await listed(r.editor))[r.editor.session_id]["title"] == "Mine"


@on_stdio
async def test_tit_4_nor_one_that_is_being_made_while_it_is_set_by_another_agent(tmp_path):
    """The agent that makes it does not know of the other's."""
    async with rig(tmp_path, ["ok"] * 2, config=ON) as r, another(r.environ) as other:
        await of_it(other, "session/set_title", r.editor.session_id, title="Theirs")
        await r.editor.prompt("Peel the tangerine.")
        assert (await listed(r.editor))[r.editor.session_id]["title"] == "Theirs" == titles(r.editor)[-1]


async def test_tit_4_nor_one_while_the_turn_that_makes_it_runs(tmp_path):
    async with rig(tmp_path, [HANGS], config=ON) as r:
        turn = await begun(r.editor, "Peel the tangerine.")
        await of_it(r.editor, "session/set_title", title="Mine")
        r.editor.cancel()
        await turn.response()
        assert (await listed(r.editor))[r.editor.session_id]["title"] == "Mine" == titles(r.editor)[-1]


async def test_tit_5_other_clients_at_the_session_are_told(tmp_path: Path) -> None:
    async with served(tmp_path, ["ok"], config=ON) as at, editor(at) as first, editor(at) as second:
        session = (await first.new_session(at.project)).session_id
        await first.prompt("go")
        await second.load_session(session, at.project)
        await of_it(first, "session/set_title", session, title="Ours")
        await second.wait_until(lambda: titles(second, session)[-1:] == ["Ours"])


# --- whether it is open --------------------------------------------------------------------------------------------


async def test_sta_1_a_session_is_open_or_saved(tmp_path):
    async with went(tmp_path, ["ok"], config=ON) as r:
        assert capabilities(r.editor)["status"] == {}
        assert await of_it(r.editor, "session/status") == {"status": "open"}
        await r.editor.client.close_session(r.editor.session_id)
        assert await of_it(r.editor, "session/status") == {"status": "saved"}


async def test_sta_1_open_is_what_any_connection_has_open(tmp_path: Path) -> None:
    async with served(tmp_path, config=ON) as at, editor(at) as first, editor(at) as second:
        session = (await first.new_session(at.project)).session_id
        assert await of_it(second, "session/status", session) == {"status": "open"}
        async with editor(at, at.identities.add("watcher", scope="watch", owner="me")) as looks:
            assert await of_it(looks, "session/status", session) == {"status": "open"}
            with refused(-32003):
                await of_it(looks, "session/archive", session)


async def test_sta_2_asking_changes_nothing_and_an_unknown_session_is_named(tmp_path):
    async with rig(tmp_path, ["ok"], config=ON) as r:
        session = await closed(r)
        before = await listed(r.editor)
        await of_it(r.editor, "session/status", session)
        assert await listed(r.editor) == before and session not in r.agent.sessions.ids
        with pytest.raises(PeerError) as error:
            await of_it(r.editor, "session/status", UNKNOWN)
        assert (error.value.code, error.value.data) == (-32002, {"sessionId": UNKNOWN})


# --- archives ------------------------------------------------------------------------------------------------------


async def test_arc_1_and_3_it_is_put_away_and_taken_back_also_twice(tmp_path):
    async with went(tmp_path, ["ok"], config=ON) as r:
        assert capabilities(r.editor)["archive"] == {}
        for method, shown in (("archive", False), ("unarchive", True)):
            for _ in range(2):
                assert await of_it(r.editor, f"session/{method}") == {}
                assert (r.editor.session_id in await listed(r.editor)) is shown
            with refused(-32002):
                await of_it(r.editor, f"session/{method}", UNKNOWN)


async def test_arc_2_work_in_an_open_session_is_cancelled_and_it_is_closed_first(tmp_path):
    async with rig(tmp_path, [HANGS], config=ON) as r:
        turn = await begun(r.editor)
        assert await of_it(r.editor, "session/archive") == {}
        assert (await turn.response()).stop_reason == "cancelled"
        assert await of_it(r.editor, "session/status") == {"status": "saved"}
        with refused(-32002):
            await r.editor.prompt("more")
        assert (await listed(r.editor, archived="only"))[r.editor.session_id]["archived"] is True


async def test_arc_2_also_if_others_look_on_and_it_may_be_opened_again(tmp_path: Path) -> None:
    async with served(tmp_path, [HANGS, "ok"], config=ON) as at, editor(at) as first, editor(at) as second:
        session = (await first.new_session(at.project)).session_id
        turn = await begun(first)
        await second.resume_session(session, at.project)
        await of_it(second, "session/archive", session)
        assert (await turn.response()).stop_reason == "cancelled"
        assert await of_it(second, "session/status", session) == {"status": "saved"}
        await first.load_session(session, at.project)
        assert (await first.prompt("more")).stop_reason == "end_turn"


async def test_arc_4_and_6_a_list_excludes_them_includes_them_or_has_only_them(tmp_path):
    async with rig(tmp_path, ["ok"] * 2, config=ON) as r:
        away, here = await closed(r), await closed(r)
        await of_it(r.editor, "session/archive", away)
        for asked, shown in (
            ({}, {here: False}), ({"archived": None}, {here: False}), ({"archived": "exclude"}, {here: False}),
            ({"archived": "include"}, {here: False, away: True}), ({"archived": "only"}, {away: True}),
        ):  # fmt: skip
            found = await listed(r.editor, **asked)
            assert {name: entry["archived"] for name, entry in found.items() if name in (away, here)} == shown
        for wrong in ("all", "", "_mine", 7):
            with refused(-32602):
                await listed(r.editor, archived=wrong)


async def test_arc_4_a_session_without_a_turn_can_be_put_away_and_found(tmp_path):
    async with rig(tmp_path, config=ON) as r:
        await of_it(r.editor, "session/archive")
        assert [*await listed(r.editor, archived="only")] == [r.editor.session_id]


async def test_arc_5_the_filter_holds_with_a_folder_and_before_paging(tmp_path):
    pages = f"{ON}[limits]\nlist_page = 2\n"
    async with rig(tmp_path, ["ok"] * 7, config=pages) as r:
        sessions = [await closed(r) for _ in range(6)]
        (tmp_path / "elsewhere").mkdir()
        other = (await r.editor.new_session(tmp_path / "elsewhere")).session_id
        await r.editor.prompt("go")
        for each in (*sessions[::2], other):
            await of_it(r.editor, "session/archive", each)
        assert [*await listed(r.editor, cwd=str(r.project), archived="only")] == sessions[::-1][1::2]
        shown = [*await listed(r.editor, cwd=str(r.project))]
        assert [each for each in shown if each in sessions] == sessions[::-1][::2]


async def test_arc_7_taking_it_back_opens_nothing_and_a_load_leaves_it_where_it_is(tmp_path):
    async with rig(tmp_path, ["ok"] * 2, config=ON) as r:
        session = await closed(r)
        await of_it(r.editor, "session/archive", session)
        await r.editor.load_session(session, r.project)
        assert "ok" in texts(r, session)
        await r.editor.prompt("more")
        assert session in await listed(r.editor, archived="only")
        copy = await fork(r, session)
        assert (await listed(r.editor))[copy["sessionId"]]["archived"] is False
        await r.editor.client.close_session(session)
        await of_it(r.editor, "session/unarchive", session)
        assert await of_it(r.editor, "session/status", session) == {"status": "saved"}


@in_a_file
async def test_arc_8_it_is_stored_and_the_order_of_the_list_stays(tmp_path):
    async with rig(tmp_path, ["ok"], config=ON) as r:
        session = await closed(r)
        before = (await listed(r.editor))[session]["updatedAt"]
        await of_it(r.editor, "session/archive", session)
    async with another(r.environ) as again:
        assert (await listed(again, archived="only"))[session]["updatedAt"] == before


async def test_in_v2_it_is_the_same(tmp_path: Path) -> None:
    async with place(tmp_path, ["ok"]) as here:
        put(tmp_path / "config.toml", ON)
        here.environ = {**here.environ, "ACP_CODER_CONFIG": str(tmp_path / "config.toml")}
        async with here.client() as client:
            session_capabilities = (await client.initialize())["capabilities"]["session"]
            assert {name: session_capabilities[name] for name in ("title", "status", "archive")} == {
                "title": {}, "status": {}, "archive": {}
            }  # fmt: skip
            session = (await client.ask("session/new", cwd=str(here.project)))["sessionId"]
            assert await client.ask("session/set_title", sessionId=session, title=" A ") == {"title": "A"}
            assert await client.ask("session/status", sessionId=session) == {"status": "open"}
            assert await client.ask("session/archive", sessionId=session) == {}
            (entry,) = (await client.ask("session/list", archived="only"))["sessions"]
            assert entry["archived"] is True and entry["title"] == "A"
            assert await client.ask("session/unarchive", sessionId=session) == {}
            assert (await client.refused("session/status", sessionId=UNKNOWN))["data"] == {"sessionId": UNKNOWN}
