"""Plans as documents and as checklists, by the ids of their requirements: `pytest -k PLAN`."""

import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from acp_agent.client.permissions import allow_once, reject_once
from acp_agent.loop.memory.replay import replayed_updates
from acp_agent.schema import acp
from acp_agent.schema.decode import decode_params
from acp_agent.store.base import LogEntry
from acp_agent.testing.fake_model import Call
from tests.fronts.server.test_server import editor, served

from .kit import Rig, another, asks, rounds, went

TEXT = "# The plan\n\n1. do it"
PROPOSES = Call("switch_mode", {"plan": TEXT})
STEP = {"content": "do it", "priority": "high", "status": "pending"}
KINDS = ("plan", "plan_update", "plan_removed")


def steps(*entries: dict[str, Any]) -> Call:
    return Call("plan", {"entries": [*entries]})


def told(seen: Any, session: str = "") -> list[Any]:
    """What an editor was told of plans, in short: the id and the content, or `None` if it was taken away."""
    found = []
    for line in seen.transcript:
        params = line.message.get("params") or {}
        update = params.get("update") or {}
        if update.get("sessionUpdate") in KINDS and params["sessionId"] == (session or seen.session_id):
            plan = update.get("plan") or update
            found.append((plan.get("planId", ""), plan.get("content") or plan.get("entries")))
    return found


async def loaded(r: Rig, **editor: Any) -> list[Any]:
    """What a client is told of them that loads the session."""
    async with another(r.environ, **editor) as second:
        await r.editor.client.close_session(r.editor.session_id)
        await second.load_session(r.editor.session_id, r.project)
        assert not second.violations
        return told(second)


async def test_plan_1_3_5_and_7_a_client_that_takes_documents_gets_steps_and_proposal_whole(tmp_path):
    done = {**STEP, "status": "completed"}
    script = rounds(steps(STEP, STEP), steps(done, STEP), PROPOSES)
    async with went(tmp_path, script, mode="architect", plan_documents=True) as r:
        assert told(r.editor) == [("steps", [STEP, STEP]), ("steps", [done, STEP]), ("proposal", TEXT)]
        assert '"type": "file"' not in json.dumps([line.message for line in r.editor.transcript])
        assert not hasattr(acp, "PlanFile")


async def test_plan_2_9_and_12_other_clients_get_the_checklist_and_the_proposal_in_the_call(tmp_path):
    async with went(tmp_path, rounds(steps(STEP), PROPOSES), mode="architect") as r:
        assert told(r.editor) == [("", [STEP])]
        (review,) = r.editor.permission_requests
        assert [item.content.text for item in review.tool_call.content] == [TEXT]
        assert not {"plan_update", "plan_removed"} & {
            (line.message.get("params") or {}).get("update", {}).get("sessionUpdate") for line in r.editor.transcript
        }


def test_plan_4_and_10_the_last_state_is_replayed_where_the_type_of_a_plan_changed():
    def entry(**update: Any) -> LogEntry:
        return LogEntry("update", json.dumps(update).encode())

    words = {"type": "markdown", "planId": "a", "content": "x"}
    items = {"type": "items", "planId": "a", "entries": [STEP]}
    other = {**words, "planId": "b"}
    log = [*(entry(sessionUpdate="plan_update", plan=each) for each in (words, other, items))]
    shown = replayed_updates(log)
    assert [each["plan"] for each in shown] == [other, items]
    log.append(entry(sessionUpdate="plan_removed", planId="a"))
    assert [each["plan"] for each in replayed_updates(log)] == [other]
    log.append(entry(sessionUpdate="plan_update", plan=words))
    assert [each["plan"] for each in replayed_updates(log)] == [other, words]


@pytest.mark.parametrize("path", ["/work/plan.md", None])
def test_plan_6_a_path_is_read_beside_the_content(path):
    plan = {"type": "markdown", "planId": "a", "content": "x", "path": path}
    note = {"sessionId": "s", "update": {"sessionUpdate": "plan_update", "plan": plan}}
    read = decode_params("session/update", note, "client").update
    assert (read.plan.path, read.plan.content) == (path, "x")


async def test_plan_6_no_path_is_sent_since_no_plan_is_in_a_file(tmp_path):
    async with went(tmp_path, rounds(PROPOSES), mode="architect", plan_documents=True) as r:
        updates = [line.message for line in r.editor.transcript if "plan_update" in str(line.message)]
        assert updates and "path" not in updates[0]["params"]["update"]["plan"]


async def test_plan_8_and_10_a_refused_proposal_goes_and_may_come_again(tmp_path):
    script = [asks(PROPOSES), asks(PROPOSES), asks(steps(STEP)), "done", "later"]
    answers = [reject_once, allow_once]
    async with went(tmp_path, script, mode="architect", permissions=answers, plan_documents=True) as r:
        assert told(r.editor) == [("proposal", TEXT), ("proposal", None)]
        await r.editor.prompt("again")
        assert told(r.editor)[2:] == [("proposal", TEXT), ("proposal", None), ("steps", [STEP])]
        assert await loaded(r, plan_documents=True) == [("steps", [STEP])]


async def test_plan_10_an_approved_proposal_stands_over_a_load_until_its_steps_are_shown(tmp_path):
    script = [asks(PROPOSES), "Begun.", asks(steps(STEP)), "done"]
    async with (
        went(tmp_path, script, mode="architect", plan_documents=True) as r,
        another(r.environ, plan_documents=True) as second,
    ):
        await r.editor.client.close_session(r.editor.session_id)
        await second.load_session(r.editor.session_id, r.project)
        assert told(second) == [("proposal", TEXT)]
        await second.prompt("go on")
        assert told(second)[1:] == [("proposal", None), ("steps", [STEP])]


async def test_plan_11_a_checklist_without_steps_is_removed_or_empty(tmp_path):
    script = rounds(steps(STEP), steps())
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with went(tmp_path / "a", script, plan_documents=True) as r:
        assert told(r.editor) == [("steps", [STEP]), ("steps", None)]
        assert await loaded(r, plan_documents=True) == []
    async with went(tmp_path / "b", script) as r:
        assert told(r.editor) == [("", [STEP]), ("", [])]
        assert await loaded(r) == []


async def test_plan_13_clients_of_both_kinds_at_one_session_are_told_in_their_own_way(tmp_path):
    async with (
        served(tmp_path, [asks(steps(STEP)), asks(steps(STEP, STEP)), "done"]) as place,
        AsyncExitStack() as all_,
    ):
        plain = await all_.enter_async_context(editor(place))
        session = (await plain.new_session(place.project)).session_id
        takes = await all_.enter_async_context(editor(place, plan_documents=True))
        await takes.load_session(session, place.project)
        await plain.prompt("go")
        await takes.wait_until(lambda: len(told(takes, session)) == 2)
        assert told(plain) == [("", [STEP]), ("", [STEP, STEP])]
        assert told(takes, session) == [("steps", [STEP]), ("steps", [STEP, STEP])]
        late = await all_.enter_async_context(editor(place, plan_documents=True))
        await late.load_session(session, place.project)
        assert told(late, session)[-1] == ("steps", [STEP, STEP])
        assert not [*plain.violations, *takes.violations, *late.violations]


async def test_plan_14_entries_have_the_words_of_the_checklist(tmp_path):
    entries = [{"content": f"{a} {b}", "priority": a, "status": b}
               for a in ("high", "medium", "low") for b in ("pending", "in_progress", "completed")]  # fmt: skip
    async with went(tmp_path, rounds(steps(*entries)), plan_documents=True) as r:
        assert told(r.editor) == [("steps", entries)] and not r.editor.violations
