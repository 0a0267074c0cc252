"""Sessions: new, load, resume, list, close, delete, across agents that share a store."""

import base64
import json
import sqlite3
import tempfile

import anyio
import pytest

from acp_agent.errors import PeerError, StoreBusy
from acp_agent.schema import acp
from acp_agent.store.session_store import SessionStore
from acp_agent.testing.fake_editor import NeverAnswers
from acp_agent.testing.fake_model import Answer, Call, Failure

from .kit import agent_rig, another, asks, cancels, connect, in_a_file, on_stdio, refused, rig, went


async def test_a_cwd_that_is_not_an_absolute_folder_is_invalid_and_so_are_further_folders(tmp_path):
    async with agent_rig(tmp_path) as r:
        for cwd in ("relative", "", "./x", "/does/not/exist", "/tmp/\0"):
            for method in ("session/new", "session/load", "session/resume"):
                with refused(-32602):
                    assert not await r.editor.request(method, {"sessionId": "x", "cwd": cwd, "mcpServers": []}), cwd
        params = {"cwd": str(r.project), "mcpServers": [], "additionalDirectories": ["/ok", "no"]}
        with refused(-32602, "$.additionalDirectories[1]"):
            await r.editor.request("session/new", params)


async def test_no_update_precedes_the_answer_that_names_the_session(tmp_path):
    async with rig(tmp_path) as r:
        await r.editor.wait_for(lambda u: isinstance(u, acp.AvailableCommandsUpdate))
        lines = r.editor.lines("from_agent")
        named = next(i for i, line in enumerate(lines) if line.get("result", {}).get("sessionId"))
        assert not any(line.get("method") == "session/update" for line in lines[:named])


async def test_ids_are_unique_and_choices_belong_to_one_session(tmp_path):
    async with agent_rig(tmp_path) as r:
        one = (await r.editor.new_session(r.project)).session_id
        two = (await r.editor.new_session(r.project)).session_id
        assert one != two
        await r.editor.client.set_session_mode(one, "ask")
        listed = await r.editor.client.set_config_option(two, "thought_level", "low")
        values = {option.id: option.current_value for option in listed.config_options}
        assert values["mode"] == "code"


SCRIPT = [
    Answer(thought="let me look", text="Looking.", tool_calls=(
        Call("plan", {"entries": [{"content": "look"}]}), Call("write", {"path": "new.txt", "content": "hello\n"}),
        Call("bash", {"command": "echo from bash; exit 3"}),
    )),
    Answer(text=("All ", "done.")),
]  # fmt: skip


async def test_load_replays_everything_in_order_before_it_answers(tmp_path):
    async with went(tmp_path, [*SCRIPT, "and more"], prompt="Do it") as r:
        session_id = r.editor.session_id
        async with another(r.environ, terminal=False) as other:
            assert (await other.load_session(session_id, r.project)).modes.current_mode_id == "code"
            replayed = list(other.updates[session_id])
            kinds = [type(u) for u in replayed if not isinstance(u, acp.AvailableCommandsUpdate)]
            assert kinds == [
                acp.UserMessageChunk, acp.AgentThoughtChunk, acp.AgentMessageChunk, acp.ToolCall, acp.ToolCall,
                acp.ToolCall, acp.Plan, acp.AgentMessageChunk,
            ]  # fmt: skip
            assert replayed[0].content.text == "Do it" and replayed[-1].content.text == "All done."
            write, bash = [u for u in replayed if isinstance(u, acp.ToolCall)][1:]
            assert (write.status, write.kind, write.title) == ("completed", "edit", "Write new.txt")
            assert write.content[0].new_text == "hello\n"
            assert (bash.status, bash.kind) == ("failed", "execute")
            assert "from bash" in bash.content[0].content.text
            assert not any(item.__class__.__name__ == "Terminal" for item in bash.content)
            await other.prompt("Go on")
            roles = [m["role"] for m in r.messages(3)]
            assert roles == ["system", "user", "assistant", "tool", "tool", "tool", "assistant", "user"]
            assert other.tool_calls().keys() == r.editor.tool_calls().keys()


async def test_resume_restores_without_replay(tmp_path):
    async with went(tmp_path, [*SCRIPT, "and more"], prompt="Do it") as r:
        session_id = r.editor.session_id
        async with another(r.environ) as other:
            await other.resume_session(session_id, r.project)
            told = other.updates.get(session_id, [])
            assert not any(isinstance(u, acp.UserMessageChunk | acp.ToolCall | acp.AgentMessageChunk) for u in told)
            await other.prompt("Go on")
            assert len(r.messages(3)) == 8


async def test_choices_survive_a_load(tmp_path):
    async with went(tmp_path, ["ok"], prompt="hi") as r:
        await r.editor.client.set_session_mode(r.editor.session_id, "architect")
        await r.editor.client.set_config_option(r.editor.session_id, "thought_level", "high")
        async with another(r.environ) as other:
            answer = await other.load_session(r.editor.session_id, r.project)
            assert answer.modes.current_mode_id == "architect"
            values = {option.id: option.current_value for option in answer.config_options}
            assert (values["mode"], values["thought_level"]) == ("architect", "high")


async def test_loading_an_open_session_again_is_served(tmp_path):
    async with went(tmp_path, ["a", "b"], prompt="one") as r:
        await r.editor.load_session(r.editor.session_id, r.project)
        assert r.editor.text() == "a"
        assert (await r.editor.prompt("two")).stop_reason == "end_turn"


@on_stdio
async def test_loading_a_session_with_a_running_turn_is_refused_cleanly(tmp_path):
    async with rig(tmp_path, [Answer(text="x", hang_before=True)]) as r:
        turn = r.editor.begin("one")
        await r.model.wait_for_request(1)
        with refused(-32602):
            await r.editor.client.load_session(r.editor.session_id, r.project)
        await cancels(r, turn)


async def test_an_unknown_session_is_not_found(tmp_path):
    async with agent_rig(tmp_path) as r:
        for session_id in ("", "nope", "../../etc/passwd", "'; DROP TABLE sessions; --", "\0"):
            for method in ("session/load", "session/resume"):
                with refused(-32002):
                    params = {"sessionId": session_id, "cwd": str(r.project), "mcpServers": []}
                    assert not await r.editor.request(method, params), session_id


async def test_list_is_newest_first_filtered_and_in_pages(tmp_path):
    async with agent_rig(tmp_path, [Answer(text="ok", repeat=True)], config="[limits]\nlist_page = 2\n") as r:
        (other := tmp_path / "other").mkdir()
        made = []
        for folder in (r.project, other, r.project, r.project):
            await r.editor.new_session(folder)
            await r.editor.prompt("hi")
            made.append(r.editor.session_id)
        first = await r.editor.client.list_sessions(cwd=r.project)
        assert [s.session_id for s in first.sessions] == [made[3], made[2]]
        second = await r.editor.client.list_sessions(cwd=r.project, cursor=first.next_cursor)
        assert [s.session_id for s in second.sessions] == [made[0]]
        assert second.next_cursor is None
        assert (await r.editor.client.list_sessions(cwd=tmp_path)).sessions == []
        for session in first.sessions:
            assert session.cwd == str(r.project)
            assert session.updated_at.endswith("Z")


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


async def test_an_invalid_cursor_is_an_error(tmp_path):
    texts = ("not json", "[1,2]", json.dumps(["\ud83d"] * 2), "[" * 100_000)
    async with agent_rig(tmp_path) as r:
        for cursor in ("x", "", "é", *map(encoded, texts)):
            with refused(-32602):
                assert not await r.editor.request("session/list", {"cursor": cursor}), cursor[:20]


@on_stdio
async def test_a_session_without_a_prompt_is_listed_only_where_it_is_open(tmp_path):
    async with rig(tmp_path) as r:
        assert len((await r.editor.client.list_sessions()).sessions) == 1
        async with another(r.environ) as other:
            assert (await other.client.list_sessions()).sessions == []


async def test_close_ends_the_turn_frees_the_session_and_keeps_it_in_history(tmp_path):
    async with rig(tmp_path, [Answer(text="x", hang_before=True), "later"]) as r:
        session_id = r.editor.session_id
        turn = r.editor.begin("hi")
        await r.model.wait_for_request(1)
        await r.editor.client.close_session(session_id)
        assert (await turn.response()).stop_reason == "cancelled"
        for method in ("prompt", "set_mode", "close"):
            with refused(-32002):
                params = {"sessionId": session_id, "prompt": [], "modeId": "ask"}
                assert not await r.editor.request(f"session/{method}", params), method
        assert [s.session_id for s in (await r.editor.client.list_sessions()).sessions] == [session_id]
        await r.editor.load_session(session_id, r.project)
        assert (await r.editor.prompt("again")).stop_reason == "end_turn"


async def test_delete_is_final_and_silent_for_unknown_ids(tmp_path):
    async with rig(tmp_path, ["ok"]) as r:
        session_id = r.editor.session_id
        await r.editor.prompt("hi")
        for _ in range(2):
            await r.editor.client.delete_session(session_id)
        await r.editor.client.delete_session("never was")
        assert (await r.editor.client.list_sessions()).sessions == []
        with pytest.raises(PeerError):
            await r.editor.client.load_session(session_id, r.project)


async def test_load_states_the_folders_anew(tmp_path):
    async with agent_rig(tmp_path, ["ok"]) as r:
        (extra := tmp_path / "extra").mkdir()
        await r.editor.new_session(r.project, additional_directories=[extra])
        await r.editor.prompt("hi")
        listed = (await r.editor.client.list_sessions()).sessions[0]
        assert listed.additional_directories == [str(extra)]
        await r.editor.load_session(r.editor.session_id, r.project)
        listed = (await r.editor.client.list_sessions()).sessions[0]
        assert not listed.additional_directories


@in_a_file
async def test_a_damaged_store_is_a_clear_error_and_stays_as_it_is(tmp_path):
    (store := tmp_path / "broken.db").write_bytes(b"this is no database at all" * 100)
    before = store.read_bytes()
    async with agent_rig(tmp_path, environ={"ACP_CODER_STORE": str(store)}) as r:
        with pytest.raises(PeerError) as error:
            await r.editor.new_session(r.project)
        assert str(store) in error.value.message and "damaged" in error.value.message
    assert store.read_bytes() == before


async def test_a_session_deleted_by_another_agent_says_so_and_harms_nothing(tmp_path):
    async with went(tmp_path, ["a", "b", "c"], prompt="one") as r:
        async with another(r.environ) as other:
            await other.client.delete_session(r.editor.session_id)
        with pytest.raises(PeerError) as error:
            await r.editor.prompt("two")
        assert "was deleted" in error.value.message
        await r.editor.new_session(r.project)
        assert (await r.editor.prompt("three")).stop_reason == "end_turn"


async def test_two_agents_write_to_one_store_at_once(tmp_path):
    script = [Answer(text=tuple(f"w{n} " for n in range(50)), delay=0.001, repeat=True)]
    async with rig(tmp_path, script) as r, connect(r.environ) as (other, _):
        await other.start()
        await other.new_session(r.project)
        turns = [r.editor.begin("x"), other.begin("y")]
        for turn in turns:
            assert (await turn.response()).stop_reason == "end_turn"
        listed = {s.session_id for s in (await other.client.list_sessions()).sessions}
        assert listed == {r.editor.session_id, other.session_id}


async def test_a_session_loaded_twice_at_once_is_answered_twice_and_stays_usable(tmp_path):
    async with went(tmp_path, ["a", "b"], prompt="one") as r:
        answers = []

        async def again() -> None:
            answers.append(await r.editor.client.load_session(r.editor.session_id, r.project))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(again)
        assert len(answers) == 3
        assert (await r.editor.prompt("two")).stop_reason == "end_turn"
        assert len(r.messages(2)) == 4


async def test_closing_a_session_at_once_leaves_no_folder_behind(tmp_path, monkeypatch):
    (folders := tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folders))
    async with agent_rig(tmp_path, []) as r:
        for _ in range(5):
            await r.editor.new_session(r.project)
            await r.editor.client.close_session(r.editor.session_id)
        await r.editor.new_session(r.project)
        await r.editor.wait_for(lambda u: isinstance(u, acp.AvailableCommandsUpdate))
    assert list(folders.iterdir()) == []


@pytest.mark.parametrize("ending", ["load", "delete"])
async def test_a_session_is_loaded_or_deleted_only_after_a_close_has_ended(tmp_path, ending):
    bash = asks(Call("bash", {"command": "sleep 600"}))
    async with rig(
        tmp_path, [bash, "later"], misbehave={"terminal/kill": NeverAnswers()}, config="[limits]\nkill_timeout = 0.5\n",
        check=False,  # the last update of the closing turn comes after the load was asked for, as it must
    ) as r:  # fmt: skip
        turn = r.editor.begin("go")
        await r.editor.wait_until(lambda: r.editor.lines("from_agent", "terminal/wait_for_exit"))
        session_id = r.editor.session_id
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(r.editor.client.close_session, session_id)
                await r.editor.wait_until(lambda: r.editor.lines("to_agent", "session/close"))
                if ending == "load":
                    await r.editor.client.load_session(session_id, r.project)
                else:
                    await r.editor.client.delete_session(session_id)
            assert (await turn.response()).stop_reason == "cancelled"
        if ending == "load":
            await r.editor.prompt("again")
            assert [m["role"] for m in r.messages(2)] == ["system", "user", "assistant", "tool", "user"]


async def test_a_prompt_that_comes_before_the_load_is_answered_waits_for_it(tmp_path):
    calls = tuple(Call("list_directory", {}) for _ in range(100))
    async with went(tmp_path, [Answer(tool_calls=calls), "one", "two"], prompt="first") as r:
        session_id = r.editor.session_id
        async with another(r.environ) as other:
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(other.client.load_session, session_id, r.project)
                    await other.wait_until(lambda: other.lines("to_agent", "session/load"))
                    tasks.start_soon(other.client.prompt, session_id, "second")
            users = [u.content.text for u in other.updates[session_id] if isinstance(u, acp.UserMessageChunk)]
            assert users == ["first"]
            assert r.messages(3)[-1]["content"] == "second"


async def test_a_prompt_whose_provider_fails_is_not_lost_to_the_model(tmp_path):
    async with rig(tmp_path, ["ok"], environ={"OPENAI_MODEL": ""}, models=Failure(400, {"error": "no"})) as r:
        with pytest.raises(PeerError):
            await r.editor.prompt("first")
        r.model.models = ("fake-model",)
        session_id = r.editor.session_id
        async with another({**r.environ, "OPENAI_MODEL": "fake-model"}) as other:
            await other.load_session(session_id, r.project)
            await other.client.set_config_option(session_id, "model", "default/fake-model")
            await other.prompt("second")
        content = r.messages(1)[-1]["content"]
        assert "first" in str(content) and "second" in str(content)


async def test_a_prompt_that_is_refused_is_not_kept(tmp_path):
    async with rig(tmp_path, ["ok"]) as r:
        with pytest.raises(PeerError):
            await r.editor.prompt([acp.ImageContent(data="no base64!", mime_type="image/png")])
        await r.editor.prompt("fine")
        await r.editor.load_session(r.editor.session_id, r.project)
        users = [u.content for u in r.editor.updates[r.editor.session_id] if isinstance(u, acp.UserMessageChunk)]
        assert [content.text for content in users] == ["fine"]


async def test_a_folder_is_the_same_however_it_is_written(tmp_path):
    async with agent_rig(tmp_path, ["ok"]) as r:
        answer = await r.editor.request("session/new", {"cwd": f"{r.project}/../project/", "mcpServers": []})
        listed = await r.editor.request("session/list", {"cwd": f"{r.project}/"})
        assert [session["sessionId"] for session in listed["sessions"]] == [answer["sessionId"]]
        assert listed["sessions"][0]["cwd"] == str(r.project)


@in_a_file
async def test_a_store_that_was_locked_fails_no_later_prompt_and_loses_nothing_that_was_said(tmp_path, monkeypatch):
    path = tmp_path / "home/.local/state/acp-coder/sessions.db"
    append, busy = SessionStore.append, []

    def appended(store, session_id, entries, **more):
        try:
            return append(store, session_id, entries, **more)
        except StoreBusy:
            busy.append(len(entries))
            other.execute("ROLLBACK")
            raise

    async with went(tmp_path, ["first", Answer(text=("half", " more"), hang_after=1), "third"], prompt="one") as r:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(PeerError, match="keeps the session database busy; try again"):
            await r.editor.prompt("refused")
        other.execute("ROLLBACK")
        turn = r.editor.begin("two")
        await r.editor.wait_until(lambda: "half" in r.editor.text())
        monkeypatch.setattr(SessionStore, "append", appended)
        other.execute("BEGIN EXCLUSIVE")
        r.model.release()
        assert (await turn.response()).stop_reason == "end_turn"
        assert len(busy) == 1
        assert (await r.editor.prompt("three")).stop_reason == "end_turn"
        assert [m["content"] for m in r.messages(3)[1:]] == ["one", "first", "two", "half more", "three"]
        other.close()
        stored = sqlite3.connect(path).execute("SELECT payload FROM log ORDER BY seq").fetchall()
        assert ["half" in str(stored), " more" in str(stored), "refused" in str(stored)] == [True, True, False]


async def test_a_session_gets_the_title_that_the_user_gives_it(tmp_path):
    async with rig(tmp_path, ["ok"]) as r:
        assert "It has no title" in await r.says("/rename")
        await r.editor.prompt("hi")
        assert "The session is called `A better name`." in await r.says("/rename  A better\nname ")
        told = [each.title for each in r.editor.updates[r.editor.session_id] if isinstance(each, acp.SessionInfoUpdate)]
        assert told[-1] == "A better name"
        (listed,) = (await r.editor.client.list_sessions()).sessions
        assert listed.title == "A better name"
        assert len(r.model.requests) == 1
