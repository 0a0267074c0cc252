"""Sub-agents as sessions of their own (ACP's draft `subagents`), in v1 and v2: `pytest -k SUB`."""

from typing import Any

from acp_agent.client.permissions import reject_once
from acp_agent.testing.fake_editor import FakeEditor
from acp_agent.testing.fake_model import Answer, Call
from acp_conformance.v2.v2_client import allows
from tests.fronts.server.test_server import editor, served

from .kit import another, asks, bash, rig, went
from .test_delegate import READ, delegate, last
from .test_v2 import Client, place, text

FILES = {"a.txt": "42\n"}
SCRIPT = [delegate(), READ, "It is 42.", "done"]
WRITE = asks(Call("write", {"path": "b.txt", "content": "x"}))


def notes(seen: FakeEditor) -> list[tuple[str, dict[str, Any]]]:
    """The updates, each behind the id of its session."""
    found = []
    for line in seen.transcript:
        if line.message.get("method") == "session/update":
            found.append((line.message["params"]["sessionId"], line.message["params"]["update"]))
    return found


def of(seen: FakeEditor, session: str) -> list[dict[str, Any]]:
    return [update for id_, update in notes(seen) if id_ == session]


def children(seen: FakeEditor) -> list[str]:
    """The ids of sub-agents, in the order in which they were announced."""
    told = [each["sessionId"] for _, each in notes(seen) if each["sessionUpdate"] == "subagent_update"]
    return list(dict.fromkeys(told))


def kinds(updates: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(each["sessionUpdate"] for each in updates))


async def test_sub_1_a_sub_agent_is_announced_and_says_all_under_its_own_id(tmp_path):
    async with went(tmp_path, SCRIPT, files=FILES, subagents=True) as r:
        (child,) = children(r.editor)
        announced = [each for _, each in notes(r.editor) if each["sessionUpdate"] == "subagent_update"]
        assert announced == [
            {"sessionUpdate": "subagent_update", "sessionId": child, "title": "find it",
             "capabilities": {"cancel": {}}, "state": {"state": "running"}},
            {"sessionUpdate": "subagent_update", "sessionId": child, "title": "find it",
             "capabilities": None, "state": {"state": "idle"}},
        ]  # fmt: skip
        first = next(at for at, (id_, _) in enumerate(notes(r.editor)) if id_ == child)
        assert ("subagent_update", r.editor.session_id) in [
            (each["sessionUpdate"], id_) for id_, each in notes(r.editor)[:first]
        ]
        told, *work, said = of(r.editor, child)
        assert told["sessionUpdate"] == "session_message" and told["senderSessionId"] == r.editor.session_id
        assert told["content"] == [{"type": "text", "text": "Find the number."}]
        assert kinds(work) == ["tool_call", "tool_call_update"] and work[-1]["status"] == "completed"
        assert "parentToolUseId" not in str(work)
        assert said["content"]["text"] == "It is 42."
        calls = [each for each in of(r.editor, r.editor.session_id) if each["sessionUpdate"] == "tool_call"]
        assert [each["title"] for each in calls] == ["Sub-agent: find it"]
        assert not r.editor.violations


async def test_sub_2_every_other_client_gets_the_cards_that_it_got(tmp_path):
    async with went(tmp_path, SCRIPT, files=FILES) as r:
        assert children(r.editor) == [] and {id_ for id_, _ in notes(r.editor)} == {r.editor.session_id}
        parent, read = r.editor.tool_calls().values()
        assert read.meta["claudeCode"]["parentToolUseId"] == parent.id


async def test_sub_3_a_question_is_asked_at_the_root_and_says_whose_it_is(tmp_path):
    async with went(tmp_path, [delegate(), WRITE, "no", "done"], permissions=[reject_once], subagents=True) as r:
        (asked,) = r.editor.permission_requests
        (child,) = children(r.editor)
        assert (asked.session_id, asked.tool_call.meta["subAgent"]) == (r.editor.session_id, {"sessionId": child})
        assert asked.tool_call.title == "Write b.txt (sub-agent: find it)"
        updates = [each for each in of(r.editor, child) if each["sessionUpdate"] == "tool_call_update"]
        assert [item["type"] for item in updates[0]["content"]] == ["diff"], "before it is asked about"
        assert not (r.project / "b.txt").exists() and "confirmation_required" in last(r, 3)
        assert not r.editor.violations


async def test_sub_4_a_cancel_of_the_child_ends_it_alone(tmp_path):
    script = [delegate(), asks(bash("sleep 600")), "Well then."]
    async with rig(tmp_path, script, mode="auto", subagents=True) as r:
        turn = r.editor.begin("go")

        def runs() -> bool:
            return any(
                each.get("status") == "in_progress" for child in children(r.editor) for each in of(r.editor, child)
            )

        await r.editor.wait_until(runs)
        (child,) = children(r.editor)
        r.editor.client.connection.notify("session/cancel", {"sessionId": child})
        assert (await turn.response()).stop_reason == "end_turn"
        ends = [each["status"] for each in of(r.editor, child) if "status" in each]
        assert ends[-1] == "failed"
        assert "cancelled by the user" in last(r, 3)


async def test_sub_5_a_load_announces_it_again_and_replays_it_below_its_call(tmp_path):
    script = [delegate(), delegate(), READ, "inner", "outer", "done"]
    async with went(tmp_path, script, files=FILES, subagents=True) as r:
        session = r.editor.session_id
        outer, inner = children(r.editor)
        live = {each["messageId"] for child in (outer, inner) for each in of(r.editor, child) if "messageId" in each}
        await r.editor.client.close_session(session)
        async with another(r.environ, subagents=True) as second:
            await second.load_session(session, r.project)
            assert children(second) == [outer, inner] and not second.violations
            assert [id_ for id_, each in notes(second) if each["sessionUpdate"] == "subagent_update"] == [
                session,
                outer,
            ]
            assert [each["title"] for each in of(second, session) if each["sessionUpdate"] == "tool_call"] == [
                "Sub-agent: find it"
            ]
            assert {
                each["messageId"] for child in (outer, inner) for each in of(second, child) if "messageId" in each
            } == live
            told = [each for each in of(second, inner) if each["sessionUpdate"] == "session_message"]
            assert [each["senderSessionId"] for each in told] == [outer]
            await second.client.close_session(session)
        async with another(r.environ) as third:
            await third.load_session(session, r.project)
            assert {id_ for id_, _ in notes(third)} == {session} and len(third.tool_calls()) == 3


async def test_sub_6_over_a_server_it_is_cards(tmp_path):
    async with served(tmp_path, SCRIPT) as there, editor(there, subagents=True) as made:
        (there.project / "a.txt").write_text("42\n")
        session = (await made.new_session(there.project)).session_id
        await made.prompt("go")
        assert {id_ for id_, _ in notes(made)} == {session} and len(made.tool_calls()) == 2


def v2_notes(client: Client) -> list[tuple[str, dict[str, Any]]]:
    found = [each["params"] for each in client.came if each.get("method") == "session/update"]
    return [(each["sessionId"], each["update"]) for each in found]


async def test_v2_sub_1_to_5_and_v2_rep_3_as_sessions_with_states_of_their_own(tmp_path):
    script: list[Any] = [delegate(), WRITE, Answer(text="It is written."), "done"]
    offers = {"capabilities": {"subagents": {}}}
    async with place(tmp_path, script) as here:
        async with here.client(allows) as client:
            await client.initialize(**offers)
            session = (await client.ask("session/new", cwd=str(here.project)))["sessionId"]
            await client.ask("session/prompt", sessionId=session, prompt=text("go"))
            await client.ended()
            told = [each for id_, each in v2_notes(client) if each["sessionUpdate"] == "subagent_update"]
            child = told[0]["sessionId"]
            assert [each["state"]["state"] for each in told] == ["running", "idle"] and told[1]["capabilities"] is None
            states = [each["state"] for id_, each in v2_notes(client) if id_ == child and "state" in each]
            assert states == ["running", "idle"]
            question = await client.until(lambda each: each.get("method") == "session/request_permission")
            assert question["params"]["sessionId"] == session and "subject" not in question["params"]
            assert question["params"]["_meta"]["subAgent"] == {"sessionId": child}
            assert question["params"]["title"] == "Write b.txt (sub-agent: find it)"
        async with here.client() as client:
            await client.initialize(**offers)
            params = {"sessionId": session, "cwd": str(here.project), "replayFrom": {"type": "start"}}
            await client.ask("session/resume", **params)
            done = [id_ for id_, each in v2_notes(client) if each["sessionUpdate"] == "replay_complete"]
            assert done == [child, session]
        async with here.client() as client:
            await client.initialize()
            await client.ask("session/resume", **params)
            assert {id_ for id_, _ in v2_notes(client)} == {session}
