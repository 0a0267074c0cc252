"""What drafts of ACP ask about sessions (`protocol.unstable`), by the ids of their requirements: `pytest -k TIT`,
`-k STA`, `-k ARC`, `-k OPT`."""

from pathlib import Path
from typing import Any

import pytest

from acp_agent.errors import PeerError
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import FakeEditor, Turn
from acp_agent.testing.fake_model import Answer
from tests.fronts.server.test_server import editor, served

from .kit import Rig, agent_rig, another, in_a_file, on_stdio, put, refused, rig, trust, went
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


# --- options, and with which a session is opened -------------------------------------------------------------------


def current(answer: dict[str, Any]) -> dict[str, Any]:
    """Option -> its value."""
    return {each["id"]: each["currentValue"] for each in answer["configOptions"]}


def chosen(**values: Any) -> list[dict[str, Any]]:
    return [{"configId": name, "value": value} for name, value in values.items()]


async def opens(r: Rig, method: str, session: str = "", **more: Any) -> dict[str, Any]:
    about = {"cwd": str(r.project), "mcpServers": [], **more}
    answer: dict[str, Any] = await r.editor.request(method, {**about, "sessionId": session} if session else about)
    return answer


MODELS = f"""{ON}[providers.default]
models = ["fake-model", "other-model"]
"""


async def test_opt_off_it_is_not_there_and_no_value_is_read(tmp_path):
    async with agent_rig(tmp_path, ["ok"]) as r:
        assert "options" not in capabilities(r.editor)
        with refused(-32601, "protocol.unstable"):
            await r.editor.request("session/options", {"cwd": str(r.project)})
        for values in (chosen(mode="ask"), [{"configId": "mode", "value": "ask", "type": "colour"}], 7):
            assert current(await opens(r, "session/new", configOptions=values))["mode"] == "code"


async def test_opt_1_and_2_it_says_what_a_session_would_start_with_and_makes_none(tmp_path):
    async with agent_rig(tmp_path, ["ok"], config=f'{MODELS}[agent]\nmode = "architect"\n') as r:
        assert capabilities(r.editor)["options"] == {}
        for more in ({}, {"additionalDirectories": None}, {"additionalDirectories": []}):
            told = await r.editor.request("session/options", {"cwd": str(r.project), **more})
        assert not await listed(r.editor, archived="include") and not r.agent.sessions.ids and not r.editor.updates
        made = await opens(r, "session/new")
        assert {name: made[name] for name in ("modes", "configOptions")} == told
        assert told["modes"]["currentModeId"] == "architect"
        for wrong in ({"cwd": "relative"}, {}, {"cwd": str(r.project / "missing")}):
            with refused(-32602):
                await r.editor.request("session/options", wrong)


@on_stdio
async def test_opt_1_the_folders_own_configuration_counts_where_it_is_trusted(tmp_path):
    own = {".acp-coder.toml": '[agent]\nmode = "ask"\n'}
    async with rig(tmp_path, config=ON, files=own) as r:
        asked = {"cwd": str(r.project)}
        assert current(await r.editor.request("session/options", asked))["mode"] == "code"
        await trust(r)
        assert current(await r.editor.request("session/options", asked)) == current(await opens(r, "session/new"))


async def test_opt_5_of_a_stored_session_it_says_what_that_would_have(tmp_path):
    async with rig(tmp_path, ["ok"], config=MODELS) as r:
        session = await closed(r)
        await opens(r, "session/resume", session, configOptions=chosen(mode="ask", thought_level="low"))
        await r.editor.client.close_session(session)
        told = await r.editor.request("session/options", {"cwd": str(r.project), "sessionId": session})
        assert current(told) == {"mode": "ask", "model": "default/fake-model", "thought_level": "low"}
        assert session not in r.agent.sessions.ids
        with refused(-32002):
            await r.editor.request("session/options", {"cwd": str(r.project), "sessionId": UNKNOWN})


async def test_opt_6_there_is_no_boolean_for_a_client_that_has_none(tmp_path):
    async with agent_rig(tmp_path, config=ON) as r:
        told = await r.editor.request("session/options", {"cwd": str(r.project)})
        assert {each["type"] for each in told["configOptions"]} == {"select"}


async def test_opt_8_and_11_new_load_resume_and_fork_take_values_and_their_answers_show_them(tmp_path):
    async with rig(tmp_path, ["ok"] * 2, config=MODELS) as r:
        session = await closed(r)
        wished = {"mode": "architect", "model": "default/other-model", "thought_level": "high"}
        for method in ("session/new", "session/load", "session/resume", "session/fork"):
            of = "" if method == "session/new" else session
            answer = await opens(r, method, of, configOptions=chosen(**wished))
            assert current(answer) == wished and answer["modes"]["currentModeId"] == "architect"
            made = answer.get("sessionId", session)
            await of_it(r.editor, "session/close", made)
            kinds = {type(each) for each in r.editor.updates.get(made, ())}
            assert not kinds & {acp.ConfigOptionUpdate, acp.CurrentModeUpdate}, "nobody needs to be told"


async def test_opt_9_what_does_not_fit_is_left_out_and_the_session_starts(tmp_path):
    wrong = [
        {"configId": "unknown", "value": "x"}, {"configId": "mode", "value": "none"},
        {"configId": "model", "value": "default/missing"}, {"configId": "thought_level", "value": True},
        {"configId": "mode", "value": True, "type": "boolean"}, {"configId": "mode", "value": "ask", "type": "boolean"},
        {"configId": "mode", "value": None}, {"configId": "model", "value": {"a": [1]}},
        {"configId": "mode", "value": 7}, {"configId": "place", "value": "moon"},
    ]  # fmt: skip
    async with agent_rig(tmp_path, config=MODELS) as r:
        plain = current(await opens(r, "session/new"))
        assert current(await opens(r, "session/new", configOptions=wrong)) == plain
        mixed = [*wrong, *chosen(thought_level="low"), *wrong]
        assert current(await opens(r, "session/new", configOptions=mixed)) == {**plain, "thought_level": "low"}
        for none in (None, []):
            assert current(await opens(r, "session/new", configOptions=none)) == plain


async def test_opt_10_a_type_that_is_not_known_is_refused_and_nothing_is_opened(tmp_path):
    async with rig(tmp_path, ["ok"], config=ON) as r:
        session, before = await closed(r), [*r.agent.sessions.ids]
        odd = [*chosen(mode="ask"), {"configId": "mode", "value": "ask", "type": "colour"}]
        for method in ("session/new", "session/load", "session/resume", "session/fork"):
            with refused(-32602, "colour"):
                await opens(r, method, "" if method == "session/new" else session, configOptions=odd)
        assert [*r.agent.sessions.ids] == before
        told = await r.editor.request("session/options", {"cwd": str(r.project), "sessionId": session})
        assert current(told)["mode"] == "code"


async def test_opt_12_they_count_in_their_order(tmp_path):
    async with agent_rig(tmp_path, config=MODELS) as r:
        twice = [*chosen(mode="ask"), *chosen(mode="none"), *chosen(mode="auto")]
        assert current(await opens(r, "session/new", configOptions=twice))["mode"] == "auto"


async def test_opt_13_they_are_stored_and_win_over_what_was(tmp_path):
    async with rig(tmp_path, ["ok"], config=MODELS) as r:
        session = await closed(r)
        before = (await listed(r.editor))[session]["updatedAt"]
        await opens(r, "session/load", session, configOptions=chosen(mode="code"))
        assert (await listed(r.editor))[session]["updatedAt"] == before, "nothing has changed"
        await opens(r, "session/load", session, configOptions=chosen(mode="architect", model="default/other-model"))
        await r.editor.client.close_session(session)
        again = current(await opens(r, "session/resume", session))
        assert (again["mode"], again["model"]) == ("architect", "default/other-model")


async def test_opt_13_a_place_that_is_chosen_so_is_the_sessions(tmp_path):
    places = f'{ON}[places.shed]\nkind = "ssh"\nhost = "shed.invalid"\n'
    async with agent_rig(tmp_path, config=places) as r:
        made = await opens(r, "session/new", configOptions=chosen(place="shed"))
        assert current(made)["place"] == "shed"
        await of_it(r.editor, "session/close", made["sessionId"])
        assert current(await opens(r, "session/resume", made["sessionId"]))["place"] == "shed"


async def test_opt_14_a_token_that_may_only_watch_gives_none(tmp_path: Path) -> None:
    async with served(tmp_path, ["ok"], config=ON) as at, editor(at) as first:
        session = (await first.new_session(at.project)).session_id
        await first.prompt("go")
        watcher = at.identities.add("watcher", scope="watch", owner="me")
        asked = {"sessionId": session, "cwd": str(at.project), "mcpServers": []}
        async with editor(at, watcher) as looks:
            told = await looks.request("session/options", {"cwd": str(at.project)})
            assert current(told)["mode"] == "code"
            for method in ("session/load", "session/resume"):
                with refused(-32003):
                    await looks.request(method, {**asked, "configOptions": chosen(mode="auto")})
            told = await looks.request("session/options", {"cwd": str(at.project), "sessionId": session})
            assert current(told)["mode"] == "code"


async def test_opt_14_of_a_session_that_another_has_open_they_are_set_and_it_is_told(tmp_path: Path) -> None:
    """Also while a turn runs there."""
    async with served(tmp_path, [HANGS], config=MODELS) as at, editor(at) as first, editor(at) as second:
        session = (await first.new_session(at.project)).session_id
        turn = await begun(first)
        asked = {"sessionId": session, "cwd": str(at.project), "mcpServers": []}
        await second.load_session(session, at.project)
        answer = await second.request("session/load", {**asked, "configOptions": chosen(mode="ask", place="moon")})
        assert current(answer)["mode"] == "ask" and answer["modes"]["currentModeId"] == "ask"
        await first.wait_until(
            lambda: [each for each in first.updates[session] if isinstance(each, acp.CurrentModeUpdate)]
        )
        await first.wait_until(
            lambda: [each for each in first.updates[session] if isinstance(each, acp.ConfigOptionUpdate)]
        )
        first.cancel()
        assert (await turn.response()).stop_reason == "cancelled"


async def test_opt_15_no_login_is_needed(tmp_path):
    env = {"OPENAI_BASE_URL": "https://api.openai.com/v1"}
    async with agent_rig(tmp_path, config=ON, environ=env) as r:
        asked = {"cwd": str(r.project), "mcpServers": []}
        assert current(await r.editor.request("session/options", asked))["model"] == "default/fake-model"
        with refused(-32000):
            await r.editor.request("session/new", asked)


async def test_opt_in_v2_it_is_the_same(tmp_path: Path) -> None:
    async with place(tmp_path, ["ok"]) as here:
        put(tmp_path / "config.toml", ON)
        here.environ = {**here.environ, "ACP_CODER_CONFIG": str(tmp_path / "config.toml")}
        async with here.client() as client:
            assert (await client.initialize())["capabilities"]["session"]["options"] == {}
            about = {"cwd": str(here.project)}
            told = await client.ask("session/options", **about)
            assert "modes" not in told
            wished = [{"configId": "mode", "value": "ask", "type": "id"}]
            made = await client.ask("session/new", **about, configOptions=wished)
            values = {each["configId"]: each["currentValue"] for each in made["configOptions"]}
            assert values["mode"] == "ask" and [*values] == [each["configId"] for each in told["configOptions"]]
            odd = [{"configId": "mode", "value": "ask", "type": "colour"}]
            assert (await client.refused("session/new", **about, configOptions=odd))["code"] == -32602
