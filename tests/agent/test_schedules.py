"""A schedule's prompt runs in an open session of its project, as a turn the user sees."""

import time

import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.store.stores import sqlite_store
from acp_agent.testing.fake_model import Answer, Call
from tests.waits import until

from .kit import asks, bash, rig, went


@pytest.fixture
def store(tmp_path):
    """That of an agent with this `environ`."""
    made = sqlite_store(tmp_path / "s.db")
    yield made
    made.close()


def environ(tmp_path, **more):
    return {"ACP_CODER_STORE": str(tmp_path / "s.db"), **more}


def heard(word):
    return lambda update: word in str(getattr(update, "content", ""))


async def test_a_due_prompt_is_announced_run_and_kept(tmp_path, store):
    store.schedules.add(str(tmp_path / "project"), "1h", "Look at the tests.", time.time())
    async with rig(tmp_path, [asks(Call("list_directory", {})), "All green."], environ=environ(tmp_path)) as r:
        await r.editor.wait_until(lambda: "All green." in r.editor.text())
        assert "Scheduled (`1h`): Look at the tests." in r.editor.text()
        assert r.messages(1)[-1]["content"] == "Look at the tests."
        r.editor.assert_tool_calls_finished()
    (schedule,) = store.schedules.list(str(tmp_path / "project"))
    assert schedule.runs == 1


async def test_missed_runs_are_told_at_the_next_start(tmp_path, store):
    store.schedules.add(str(tmp_path / "project"), "1h", "Look at the tests.", time.time() - 7200)
    async with rig(tmp_path, ["hi"], environ=environ(tmp_path)) as r:
        await r.editor.wait_for(heard("were missed"))
        assert r.model.requests == []


async def test_a_schedule_the_model_adds_is_asked_about_and_runs_in_this_session(tmp_path):
    add = asks(Call("schedule_add", {"timing": "1s", "prompt": "Tick."}))
    async with went(tmp_path, [add, "added", "tock"], config="[tools.schedule]\nmin_interval = 1\n") as r:
        (asked,) = r.editor.permission_requests
        assert "Tick." in str(asked.tool_call.content)
        await r.editor.wait_for(heard("tock"))
        assert "Scheduled (`1s`): Tick." in r.editor.text()


@pytest.mark.parametrize("prompt", ["/mode auto", "/trust yes", "/clear", " /mode auto"])
async def test_a_scheduled_prompt_runs_no_command(tmp_path, store, prompt):
    store.schedules.add(str(tmp_path / "project"), "1h", prompt, time.time(), "auto")
    async with rig(tmp_path, ["heard", "and now"], environ=environ(tmp_path)) as r:
        await r.editor.wait_for(heard("heard"))
        assert r.messages(1)[-1]["content"] == prompt
        assert "- Mode: `code`" in await r.says("/status")


@pytest.mark.parametrize(("added_in", "session"), [("code", "auto"), ("auto", "code"), ("ask", "auto")])
async def test_a_run_is_never_freer_than_both_the_session_and_the_mode_it_was_added_in(
    tmp_path, store, added_in, session
):
    store.schedules.add(str(tmp_path / "project"), "1h", "Go.", time.time(), added_in)
    touch = asks(bash("touch made"))
    async with rig(
        tmp_path, [touch, "heard", touch, "done"], environ=environ(tmp_path, ACP_CODER_MODE=session),
        otherwise=reject_once,
    ) as r:  # fmt: skip
        await r.editor.wait_for(heard("heard"))
        assert not (r.project / "made").exists()
        assert len(r.editor.permission_requests) == (0 if added_in == "ask" else 1)
        if session == "auto":  # The user's own turn is as free as before.
            await r.editor.prompt("go")
            assert (r.project / "made").exists()


async def test_a_run_that_waits_for_the_persons_turn_is_announced_when_its_own_begins(tmp_path, store):
    config = "[tools.schedule]\nmin_interval = 1\n"
    script = [Answer(text="for you", hang_before=True), "tock"]
    async with rig(tmp_path, script, environ=environ(tmp_path), config=config) as r:
        turn = r.editor.begin("hello")
        await r.model.wait_for_request(1)
        add = store.schedules.add(str(tmp_path / "project"), "1h", "Tick.", time.time())
        session = r.agent.sessions.get(r.editor.session_id)
        (await session.parts()).calls.scheduler.changed()
        await until(lambda: store.schedules.list(add.project)[0].runs)
        r.model.release()
        await turn.response()
        await r.editor.wait_for(heard("tock"))
        text = r.editor.text()
        assert text.index("for you") < text.index("Scheduled (`1h`): Tick.") < text.index("tock")


async def test_schedules_can_be_switched_off(tmp_path, store):
    store.schedules.add(str(tmp_path / "project"), "1h", "Look.", time.time())
    async with went(tmp_path, ["hi"], environ=environ(tmp_path, ACP_CODER_SCHEDULES="false"), prompt="hello") as r:
        assert len(r.model.requests) == 1
    assert store.schedules.list(str(tmp_path / "project"))[0].runs == 0
