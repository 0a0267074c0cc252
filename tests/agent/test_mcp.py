"""MCP servers of a session, as editor and model see them."""

import os
import pwd
import sys
from typing import Any

import anyio
import pytest

from acp_agent.client.permissions import allow_always
from acp_agent.schema import acp
from acp_agent.testing.fake_model import Answer, Call
from tests.mcp.kit import HERE
from tests.processes import running

from .kit import agent_rig, asks, cancels, rig, rounds, went


def server(mode: str = "good", name: str = "raw", notes: str = "") -> acp.McpServerStdio:
    env = [acp.EnvVariable(name="GIVEN", value="yes")]
    args = ["-S", str(HERE / "raw_server.py"), mode, notes]
    return acp.McpServerStdio(name=name, command=sys.executable, args=args, env=env)


async def test_tools_of_a_server_are_offered_called_and_asked_about_with_a_scope_of_their_own(tmp_path):
    call = Call("mcp_raw_echo", {"a": 1})
    async with went(tmp_path, rounds(call, call), otherwise=allow_always, mcp_servers=[server()]) as r:
        assert "mcp_raw_echo" in r.tool_names(1)
        first, second = r.editor.tool_calls().values()
        first.assert_finished("completed")
        second.assert_finished("completed")
        assert first.title == "raw: echo (a=1)"
        (asked,) = r.editor.permission_requests
        assert "Always allow calls of `echo` of the server raw" in [option.name for option in asked.options]
        assert '{"a": 1}' in r.messages(2)[-1]["content"]


async def test_an_always_does_not_cover_another_program_of_that_name(tmp_path):
    asked, script = [], rounds(Call("mcp_raw_echo", {"a": 1}))
    for notes in ("", "", str(tmp_path / "another"), ""):
        async with went(tmp_path, script, otherwise=allow_always, mcp_servers=[server(notes=notes)]) as r:
            r.editor.tool_calls()[next(iter(r.editor.tool_calls()))].assert_finished("completed")
            asked.append(len(r.editor.permission_requests))
    assert asked == [1, 0, 1, 0]


def answers(action: str) -> Any:
    async def answer(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        return acp.CreateElicitationResponse(action=action)

    return answer


async def test_the_client_is_told_when_a_url_is_done_with_and_only_then_the_call_is_made_again(tmp_path):
    script = rounds(Call("mcp_raw_url", {"url": "https://example.com/pay", "told": True}))
    more = {"elicitation": answers("accept"), "mcp_servers": [server()]}
    async with went(tmp_path, script, otherwise=allow_always, **more) as r:
        (asked,) = r.editor.elicitations
        assert (asked.url, asked.message) == ("https://example.com/pay", "The MCP server raw asks: Pay here")
        (told,) = r.editor.lines("from_agent", "elicitation/complete")
        assert told["params"] == {"elicitationId": asked.elicitation_id}
        assert asked.elicitation_id != "7", "two servers may use the same id"
        assert r.editor.tool_call().text() == "done at the URL"


@pytest.mark.parametrize(("url", "action", "why"), [
    ("https://example.com/pay", "decline", "the user has to open https://example.com/pay first (Pay here)"),
    ("javascript:alert(1)", "accept", "the URL is not one of http or https"),
    ("", "accept", "its response is not valid MCP"),
])  # fmt: skip
async def test_a_call_fails_with_the_reason_if_the_user_does_not_open_its_url(tmp_path, url, action, why):
    script = rounds(Call("mcp_raw_url", {"url": url}))
    more = {"elicitation": answers(action), "mcp_servers": [server()]}
    async with went(tmp_path, script, otherwise=allow_always, **more) as r:
        r.editor.tool_call().assert_finished("failed")
        assert why in r.editor.tool_call().text()


async def test_tools_of_servers_are_not_offered_where_nothing_may_change(tmp_path):
    async with went(tmp_path, ["ok"], mode="ask", mcp_servers=[server()]) as r:
        assert not any(name.startswith("mcp_") for name in r.tool_names(1))


async def test_a_server_that_fails_is_named_in_words_and_takes_nothing_with_it(tmp_path):
    bad = acp.McpServerStdio(name="bad", command="/nowhere/program", args=[], env=[])
    async with rig(tmp_path, ["ok"], notices=True, mcp_servers=[bad, server()]) as r:
        notice = await r.editor.wait_for(lambda u: isinstance(u, acp.Notice))
        assert "bad" in notice.title and "/nowhere/program" in notice.title
        assert (await r.editor.prompt("go")).stop_reason == "end_turn"
        assert "mcp_raw_echo" in r.tool_names(1)


async def test_without_notices_the_failure_is_a_message_and_status_names_each_server(tmp_path):
    bad = acp.McpServerStdio(name="bad", command="/nowhere/program", args=[], env=[])
    async with rig(tmp_path, [], mcp_servers=[bad, server()]) as r:
        await r.editor.wait_for(lambda u: "/nowhere/program" in str(getattr(u, "content", "")))
        with anyio.fail_after(60):
            while "MCP server `raw`: ready" not in r.editor.text():
                await r.editor.prompt("/status")
        assert "MCP server `bad`: failed" in r.editor.text()


async def test_a_huge_structured_result_does_not_travel_whole(tmp_path):
    async with went(tmp_path, rounds(Call("mcp_raw_structured", {"size": 3_000_000})), mcp_servers=[server()]) as r:
        assert max(len(str(line)) for line in r.editor.lines("from_agent")) < 2_500_000


async def test_servers_of_the_configuration_are_used_and_the_clients_win(tmp_path):
    args = [str(part) for part in ("-S", HERE / "raw_server.py", "good")]
    config = "".join(
        f'[mcp.servers.{name}]\ncommand = "{command}"\nargs = {args!r}\n'
        for name, command in (("own", sys.executable), ("raw", "/nowhere/program"))
    )
    async with went(tmp_path, ["ok"], config=config, mcp_servers=[server()]) as r:
        assert {"mcp_own_echo", "mcp_raw_echo"} <= r.tool_names(1)


async def test_a_tool_that_a_server_adds_later_is_offered_later(tmp_path):
    script = [asks(Call("mcp_raw_grow", {})), Answer(text="x", hang_before=True), "done"]
    async with rig(tmp_path, script, mcp_servers=[server()]) as r:
        turn = r.editor.begin("go")
        await r.model.wait_for_request(2)
        r.model.release()
        await turn.response()
        with anyio.fail_after(60):
            while "mcp_raw_grown" not in r.editor.text():
                await r.editor.prompt("/tools")


async def test_a_dead_servers_calls_fail_and_the_turn_goes_on(tmp_path):
    async with went(tmp_path, rounds(Call("mcp_raw_die", {})), mcp_servers=[server()]) as r:
        r.editor.tool_call().assert_finished("failed")
        assert "category: network_error" in r.messages(2)[-1]["content"]
        assert "retryable: true" in r.messages(2)[-1]["content"]


async def test_cancelling_a_turn_cancels_the_servers_call(tmp_path):
    slow = asks(Call("mcp_raw_slow", {}))
    async with rig(tmp_path, [slow], mcp_servers=[server(notes=str(tmp_path / "notes"))]) as r:
        turn = r.editor.begin("go")
        await r.editor.wait_for(lambda u: getattr(u, "status", None) == "in_progress")
        await cancels(r, turn)
        r.editor.tool_call().assert_finished("failed")


async def test_closing_a_session_ends_its_servers(tmp_path):
    script = rounds(Call("mcp_raw_env", {}))
    async with went(tmp_path, script, environ={"OPENAI_API_KEY": "sk-secret"}, mcp_servers=[server()]) as r:
        told = r.messages(2)[-1]["content"]
        assert "GIVEN" in told and "sk-secret" not in told
        children = running("raw_server.py", parent=os.getpid())
        assert children
        await r.editor.client.close_session(r.editor.session_id)
        assert not running("raw_server.py", parent=os.getpid()) & children


async def test_servers_get_a_safe_environment_and_run_as_the_user_of_the_scope(open_folder):
    given = {"FOR_ALL_TOKEN": "1", "FOR_OWN_TOKEN": "2", "AWS_SECRET_ACCESS_KEY": "3", "SSH_AUTH_SOCK": "4"}
    config = (
        '[mcp]\ninherit = ["FOR_ALL_TOKEN"]\n[mcp.servers.own]\ncommand = "/bin/sh"\n'
        'args = ["-c", "env > noted"]\ninherit = ["FOR_OWN_TOKEN"]\n[tools.scope]\nrun_as_user = "nobody"\n'
    )
    async with agent_rig(open_folder, ["ok"], config=config, environ={**given, "LANG": "C.UTF-8"}) as r:
        r.project.chmod(0o777)
        await r.editor.new_session(r.project)
        await r.editor.prompt("go")
        noted = r.project / "noted"
        env = dict(line.split("=", 1) for line in noted.read_text().splitlines())
        assert noted.stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert {name for name in given if name in env} == {"FOR_ALL_TOKEN", "FOR_OWN_TOKEN"}
    assert (env["USER"], env["LANG"]) == ("nobody", "C.UTF-8")


def named(update: Any) -> list[str]:
    """The commands of the server that an update has."""
    commands = update.available_commands if isinstance(update, acp.AvailableCommandsUpdate) else ()
    return [command.name for command in commands if command.name.startswith("raw:")]


async def test_prompts_of_a_server_are_commands_and_reach_the_model_as_its_text(tmp_path):
    async with rig(tmp_path, ["ok"], mcp_servers=[server()]) as r:
        name, *_ = named(await r.editor.wait_for(named))
        await r.editor.prompt(f"/{name} Ada")
        assert "Ada" in r.messages(1)[-1]["content"] and not r.messages(1)[-1]["content"].startswith("/")
