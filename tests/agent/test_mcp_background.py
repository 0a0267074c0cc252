"""Calls of MCP servers that take long: they go on in the background, as commands do."""

import pytest

from acp_agent.client.permissions import allow_always
from acp_agent.testing.fake_model import Call
from tests.agent.test_mcp_everything import everything
from tests.mcp.kit import noted

from .kit import asks, went
from .test_background import kill, model, output, result, said
from .test_mcp import answers, server

SOON = "[mcp]\nbackground_after = 0.05\n"
LONG = asks(Call("mcp_all_trigger-long-running-operation", {"duration": 1, "steps": 4}))
SLOW = asks(Call("mcp_raw_slow", {}))


def soon(tmp_path, script, of, config=SOON, **more):
    """After a turn in which calls of a server went on in the background."""
    return went(tmp_path, script, config=config, otherwise=allow_always, mcp_servers=[of], **more)


@pytest.mark.parametrize("terminal_output_meta", [False, True])
async def test_a_long_call_goes_on_in_the_background_and_its_card_shows_how_far_it_is(tmp_path, terminal_output_meta):
    script = model(LONG, output(), output(wait=True), "done")
    async with soon(tmp_path, script, everything(), terminal_output_meta=terminal_output_meta) as r:
        assert "[background] still running after 0.05 s and continues: run_id=" in result(r, 2)
        assert "running for" in result(r, 3)
        assert "exit_code=0" in result(r, 4) and "Long running operation completed" in result(r, 4)
        assert "of 4" not in result(r, 4), "progress is no part of what it returned"
        call = next(iter(r.editor.tool_calls().values()))
        call.assert_finished("completed")
        assert "Long running operation completed" in call.text()
        shown = [str(update.content) for update in r.editor.updates[r.editor.session_id] if hasattr(update, "content")]
        assert any("3 of 4" in text for text in shown)
        assert call.raw_output["exit_code"] == 0


async def test_the_model_is_told_at_its_next_turn_and_the_user_immediately(tmp_path):
    async with soon(tmp_path, [LONG, "later", "thanks"], everything()) as r:
        await r.editor.wait_until(lambda: "Background command finished: `MCP call all: trigger-long" in said(r))
        await r.editor.prompt("and?")
        told = str(r.messages(3)[-2:])
        assert "[background complete] run_id=" in told and "Long running operation completed" in told


async def test_what_a_sub_agent_left_running_is_told_by_name(tmp_path):
    script = model(asks(Call("delegate", {"prompt": "Do it.", "title": "do"})), LONG, "begun", "later", "thanks")
    async with soon(tmp_path, script, everything()) as r:
        await r.editor.wait_until(lambda: "Background command finished" in said(r))
        await r.editor.prompt("and?")
        assert "[command: MCP call all: trigger-long-running-operation" in str(r.messages(5)[-1])


async def test_ending_it_tells_the_server(tmp_path):
    notes = tmp_path / "notes"
    async with soon(tmp_path, model(SLOW, kill, "done"), server(notes=str(notes))) as r:
        started = await noted(notes, "started")
        assert await noted(notes, "cancelled") == started
        assert "killed by `bash_kill`" in result(r, 3)


async def test_a_server_that_dies_meanwhile_ends_it_with_the_reason(tmp_path):
    script = model(SLOW, asks(Call("mcp_raw_die", {})), output(0, wait=True), "done")  # `die` may take long, too.
    async with soon(tmp_path, script, server()) as r:
        assert "exit_code=1" in result(r, 4)
        assert "The tool `slow` of the MCP server raw failed: its process exited with code 3" in result(r, 4)


@pytest.mark.parametrize(
    "config", ["background_after = 0\n", "background_after = 0.05\n[tools.bash]\nmax_background_runs = 0\n"]
)
async def test_it_is_waited_for_where_nothing_may_go_on(tmp_path, config):
    async with soon(tmp_path, [SLOW, "done"], server(), config=f"[mcp]\ncall_timeout = 0.2\n{config}") as r:
        assert "did not answer within 0.2 seconds" in result(r, 2) and "background" not in result(r, 2)


ONLY = {"prompt": "Do it.", "title": "do", "tools": ["mcp_all_trigger-long-running-operation"]}


@pytest.mark.parametrize(
    ("config", "before"), [("", [asks(Call("delegate", ONLY))]), ('[tools]\ndisabled = ["bash_output"]\n', [])]
)
async def test_it_is_waited_for_if_its_caller_could_not_look_at_it(tmp_path, config, before):
    async with soon(tmp_path, model(*before, LONG, "done", "all done"), everything(), config=f"{SOON}{config}") as r:
        assert "Long running operation completed" in result(r, len(before) + 2)


async def test_calls_that_need_the_same_url_all_go_on_once_the_user_is_done(tmp_path):
    url = {"url": "https://example.com/pay"}
    calls = [asks(Call("mcp_raw_url", {**url, "told": told})) for told in (False, True)]
    script = model(*calls, output(0, wait=True), "done")
    async with soon(tmp_path, script, server(), elicitation=answers("accept")) as r:
        assert "done at the URL" in result(r, 4)
        told = [note["params"]["elicitationId"] for note in r.editor.lines("from_agent", "elicitation/complete")]
        assert told == [asked.elicitation_id for asked in r.editor.elicitations]


async def test_nothing_is_left_at_the_server_when_the_session_ends(tmp_path):
    notes = tmp_path / "notes"
    async with soon(tmp_path, [SLOW, "done"], server(notes=str(notes))) as r:
        started = await noted(notes, "started")
        await r.editor.client.close_session(r.editor.session_id)
        assert await noted(notes, "cancelled") == started
