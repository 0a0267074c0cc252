"""Sub-agents: their own history, their calls below the parent, permissions with attribution, an end with the parent."""

import re
from contextlib import closing

import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.errors import PeerError
from acp_agent.loop.memory.replay import rebuild_history
from acp_agent.schema.acp import AgentMessageChunk, ToolCall, ToolCallProgress
from acp_agent.store.stores import sqlite_store
from acp_agent.testing.fake_model import Answer, Call, Failure

from .kit import asks, bash, cancels, reloads, rig, went
from .test_fork import conversation, texts


def delegate(**arguments: object) -> Answer:
    return asks(Call("delegate", {"prompt": "Find the number.", "title": "find it", **arguments}))


READ = asks(Call("read", {"path": "a.txt"}))


def last(r, number: int) -> str:
    return r.messages(number)[-1]["content"]


async def test_a_sub_agent_works_with_a_history_of_its_own_and_its_calls_stand_below_the_parent(tmp_path):
    script, words = [delegate(), READ, "It is 42.", "done"], "What is the number? (secret: tangerine)"
    async with went(tmp_path, script, files={"a.txt": "42\n"}, prompt=words) as r:
        sub = r.messages(2)
        assert [message["role"] for message in sub] == ["system", "user"]
        assert sub[1]["content"] == "Find the number." and "tangerine" not in str(sub)
        assert "You are a sub-agent" in sub[0]["content"]
        assert last(r, 4) == "It is 42.", "its last words are the result"
        updates = [*r.editor.updates[r.editor.session_id]]
        assert not any(isinstance(u, AgentMessageChunk) and "42" in u.content.text for u in updates)
        parent, read = r.editor.tool_calls().values()
        parent.assert_finished("completed")
        read.assert_finished("completed")
        assert parent.title == "Sub-agent: find it"
        begun = [u for u in updates if isinstance(u, ToolCall)]
        assert "parentToolUseId" not in begun[0].meta["claudeCode"]
        assert begun[1].meta["claudeCode"]["parentToolUseId"] == parent.id
        shown = [u for u in updates if isinstance(u, ToolCallProgress) and u.tool_call_id == parent.id]
        assert [u.content[0].content.text for u in shown if u.content and not u.status] == ["1. Read a.txt"]
        await reloads(r)
        again, read = r.editor.tool_calls().values()
        assert (again.id, again.status, read.status) == (parent.id, "completed", "completed")
        assert read.meta["claudeCode"]["parentToolUseId"] == parent.id


async def test_its_permission_requests_say_whose_they_are(tmp_path):
    write = asks(Call("write", {"path": "b.txt", "content": "x"}))
    async with went(tmp_path, [delegate(), write, "written", "done"], permissions=[reject_once]) as r:
        (asked,) = r.editor.permission_requests
        assert asked.tool_call.title == "Write b.txt (sub-agent: find it)"
        parent = next(iter(r.editor.tool_calls().values()))
        assert asked.tool_call.meta["claudeCode"]["parentToolUseId"] == parent.id
        assert not (r.project / "b.txt").exists()
        assert "confirmation_required" in last(r, 3)


async def test_it_gets_only_the_tools_it_was_given_and_an_unknown_one_is_told(tmp_path):
    script = [delegate(tools=["grep", "read_file"]), asks(bash("ls")), "no", delegate(tools=["teleport"]), "done"]
    async with went(tmp_path, script) as r:
        assert r.tool_names(2) == {"grep", "read"}
        assert "not among the tools of this sub-agent" in last(r, 3)
        assert "cannot have the tools teleport" in last(r, 5) and last(r, 5).startswith("[tool_error] ")


async def test_it_ends_at_its_own_cap_and_says_so(tmp_path):
    async with went(tmp_path, [delegate(max_iterations=1), READ, "done"], files={"a.txt": "42\n"}) as r:
        assert "reached its limit" in last(r, 3)
        parent = next(iter(r.editor.tool_calls().values()))
        parent.assert_finished("failed")


async def test_two_levels_are_the_depth_and_no_more(tmp_path):
    async with went(tmp_path, [delegate(), delegate(), READ, "inner", "outer", "done"], files={"a.txt": "42\n"}) as r:
        assert "delegate" in r.tool_names(1) and "delegate" in r.tool_names(2) and "delegate" not in r.tool_names(3)
        outer, inner, read = r.editor.tool_calls().values()
        assert read.meta["claudeCode"]["parentToolUseId"] == inner.id
        assert inner.meta["claudeCode"]["parentToolUseId"] == outer.id
        assert last(r, 6) == "outer"


async def test_cancel_reaches_it(tmp_path):
    async with rig(tmp_path, [delegate(), asks(bash("sleep 600"))], mode="auto") as r:
        turn = r.editor.begin("go")
        await r.editor.wait_until(
            lambda: [call.status for call in r.editor.tool_calls().values()] == ["in_progress"] * 2
        )
        await cancels(r, turn)
        for call in r.editor.tool_calls().values():
            call.assert_finished("failed")


async def test_a_model_that_fails_fails_the_call_and_not_the_turn(tmp_path):
    async with went(tmp_path, [delegate(), Failure(401, {"error": {"message": "no"}}), "done"]) as r:
        assert "The sub-agent's model failed" in last(r, 3)


async def test_in_a_reading_mode_it_only_reads(tmp_path):
    async with went(tmp_path, [delegate(), READ, "It is 42.", "done"], mode="ask", files={"a.txt": "42\n"}) as r:
        assert "write" not in r.tool_names(2) and "read" in r.tool_names(2)


async def test_a_sub_agent_cannot_delegate_what_it_may_not_do_itself(tmp_path):
    write = asks(Call("write", {"path": "b.txt", "content": "x"}))
    inner = asks(Call("delegate", {"prompt": "Write it.", "tools": ["write"]}))
    script = [delegate(tools=["read", "delegate"]), inner, delegate(), write, "no", "no", "done"]
    async with went(tmp_path, script, mode="auto") as r:
        assert "cannot have the tools write" in last(r, 3)
        assert r.tool_names(4) == {"read"}
        assert not (r.project / "b.txt").exists()


async def test_what_a_sub_folder_says_is_told_to_both(tmp_path):
    look = asks(Call("read", {"path": "sub/a.txt"}))
    files = {"sub/AGENTS.md": "tangerine", "sub/a.txt": "a\n"}
    async with went(tmp_path, [delegate(), look, "seen", look, "done"], files=files) as r:
        assert "tangerine" in last(r, 3) and "tangerine" in last(r, 5)


async def test_its_shell_and_what_it_has_read_are_its_own(tmp_path):
    away = asks(bash("mkdir sub; cd sub; export X=1"), Call("read", {"path": "a.txt"}))
    here = asks(bash("pwd; echo x=$X"), Call("write", {"path": "a.txt", "content": "b"}))
    async with went(tmp_path, [delegate(), away, "moved", here, "done"], mode="auto", files={"a.txt": "a\n"}) as r:
        shell, written = (message["content"] for message in r.messages(5)[-2:])
        assert shell == f"{r.project}\nx=\n"
        assert "has not been read" in written


async def test_delegation_can_be_switched_off(tmp_path):
    async with went(tmp_path, ["hi"], config="[tools.delegate]\nmax_depth = 0\n") as r:
        assert "delegate" not in r.tool_names(1)


async def test_what_a_sub_agent_changed_can_be_read_and_edited_by_the_one_above(tmp_path):
    read = asks(Call("read", {"path": "a.txt"}))
    change = asks(bash("echo two > a.txt"))
    edit = asks(Call("edit", {"path": "a.txt", "old_string": "two", "new_string": "three"}))
    script = [read, delegate(), change, read, "changed", read, edit, "done"]
    async with went(tmp_path, script, mode="auto", files={"a.txt": "one\n"}) as r:
        assert (r.project / "a.txt").read_text() == "three\n"


def child(r) -> str:
    """The session of the sub-agent that the first call of `delegate` started."""
    calls = [call for call in r.editor.tool_calls().values() if call.title.startswith("Sub-agent")]
    return calls[0].meta["subAgent"]["sessionId"]


async def listed(r) -> list[str]:
    return [each["sessionId"] for each in (await r.editor.request("session/list", {}))["sessions"]]


async def test_its_conversation_is_a_session_that_can_be_shown_and_gone_on_with_and_goes_with_its_parent(tmp_path):
    script = [delegate(), READ, "It is 42.", "done", "Twice that is 84.", delegate(), "Nothing.", "done"]
    async with went(tmp_path, script, files={"a.txt": "42\n"}) as r:
        parent, sub = r.editor.session_id, child(r)
        assert await listed(r) == [parent]
        await r.editor.load_session(sub, r.project)
        assert texts(r, sub, "user_message_chunk") == ["Find the number."] and texts(r, sub) == ["It is 42."]
        (read,) = r.editor.tool_calls().values()
        assert read.status == "completed" and "parentToolUseId" not in read.meta["claudeCode"]
        await r.editor.prompt("And twice?")
        said = conversation(r, 5)
        assert said[0] == "Find the number." and "42" in said[2] and said[-2:] == ["It is 42.", "And twice?"]
        assert await listed(r) == [sub, parent], "what was prompted is a session like any other"
        await r.editor.load_session(parent, r.project)
        await r.editor.prompt("Again.")
        unseen = [call for call in r.editor.tool_calls().values() if call.title.startswith("Sub-agent")][-1]
        await r.editor.request("session/delete", {"sessionId": parent})
        assert await listed(r) == [sub], "what the user has gone on with stays"
        with pytest.raises(PeerError, match="does not exist"):
            await r.editor.load_session(unseen.meta["subAgent"]["sessionId"], r.project)


async def test_a_sub_agent_of_a_sub_agent_is_a_child_of_it_and_reads_the_outputs_of_both(tmp_path):
    config = "[tools]\nmax_output_chars = 1000\n"
    count = asks(bash("seq 5000"))
    script = [delegate(), delegate(), count, "inner", "outer", "done"]
    async with went(tmp_path, script, mode="auto", config=config) as r:
        kept = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", last(r, 4))
        for words in ("outer", "inner"):
            await r.editor.load_session(child(r), r.project)
            assert texts(r, r.editor.session_id) == [words]
        script += [asks(Call("read_overflow", {"id": kept[0], "offset": 0, "limit": 50})), "Read."]
        await r.editor.prompt("Read it.")
        assert "\n7\n" in last(r, 8)


async def test_what_a_cancelled_or_failed_sub_agent_had_said_is_stored(tmp_path):
    script = [delegate(), READ, Failure(401, {"error": {"message": "no"}}), "done"]
    async with went(tmp_path, script, files={"a.txt": "42\n"}) as r:
        with closing(sqlite_store(tmp_path / "home/.local/state/acp-coder/sessions.db")) as store:
            (sub,) = [row[0] for row in store._db.rows("SELECT id FROM sessions WHERE parent = ?", r.editor.session_id)]
            assert [entry.kind for entry in store.entries(sub)][:3] == ["fork", "message", "update"]
            assert len(rebuild_history(store.entries(sub))[0].messages) == 3
