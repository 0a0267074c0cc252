"""The agent as an MCP server: questions, modes, cancelled calls, and what is refused."""

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from acp_agent.testing.fake_model import Call
from tests.agent.kit import asks
from tests.agent.test_background import model, output
from tests.fronts.test_mcp_front import bash, served
from tests.waits import until


@pytest.mark.parametrize(("answer", "made"), [
    ({"action": "accept", "content": {"answer": "allow"}}, True),
    ({"action": "accept", "content": {"answer": "reject"}}, False),
    ({"action": "accept", "content": {"answer": "perhaps"}}, False), ({"action": "accept", "content": {}}, False),
    ({"action": "decline"}, False),
])  # fmt: skip
async def test_questions_are_asked_of_the_clients_user(tmp_path, answer, made):
    async with served(tmp_path, [bash("touch made"), "Done."], answer=answer) as (client, asked):
        await client.call("prompt", text="go")
        assert (client.project / "made").exists() is made
        (question,) = asked
        assert question.startswith("acp-coder asks: touch made")


async def test_a_question_is_cancelled_told_or_not_asked_by_its_mode(tmp_path):
    async with served(tmp_path, [bash("touch made"), "Done."], answer={"action": "cancel"}) as (client, _):
        said, _ = await client.call("prompt", text="go")
        assert "It ended with cancelled." in said
        assert not (client.project / "made").exists()
    async with served(tmp_path, [bash("touch made"), "I could not."]) as (client, _):
        said, failed = await client.call("prompt", text="go")
        assert not failed and "Not allowed, since nobody could be asked: touch made" in said
        assert not (client.project / "made").exists()
    async with served(tmp_path, [bash("touch made"), "Done."], "--mode", "auto") as (client, _):
        await client.call("prompt", text="go")
        assert (client.project / "made").exists()


async def test_no_session_of_another_folder_goes_on_and_one_of_its_own_only_in_its_mode(tmp_path):
    (other := tmp_path / "other").mkdir()
    async with served(tmp_path, ["One."], "--folder", str(other), "--mode", "auto") as (client, _):
        secret = (await client.call("prompt", text="go", folder=str(other)))[0].rpartition("Session: ")[2]
    async with served(tmp_path, ["Two."], "--mode", "auto") as (client, _):
        said, failed = await client.call("prompt", text="go on", session=secret)
        assert failed and f"There is no session {secret} in {client.project}." in said
        own = (await client.call("prompt", text="go"))[0].rpartition("Session: ")[2]
    async with served(tmp_path, [bash("touch made"), "I could not."], "--mode", "ask") as (client, _):
        said, failed = await client.call("prompt", text="go on", session=own)
        assert not failed
        assert not (client.project / "made").exists()


async def test_commands_for_the_agents_own_user_are_not_those_of_its_client(tmp_path):
    async with served(tmp_path, ["Hi."], "--mode", "ask") as (client, _):
        for text in ("/mode auto", "/trust", "/trust yes 0123456789ab", "/approve 1", "/undo"):
            said, failed = await client.call("prompt", text=text)
            assert failed and "is for the agent's own user" in said
        assert (await client.call("prompt", text="/unknown"))[0].startswith("There is no command `/unknown`.")


async def test_what_cannot_be_is_said(tmp_path):
    async with served(tmp_path, []) as (client, _):
        for arguments, words in (
            ({"folder": "/etc"}, "is not in the folders that may be worked in"),
            ({"folder": str(client.project / "none")}, "is not an existing folder"), ({"session": "none"}, "none"),
        ):  # fmt: skip
            said, failed = await client.call("prompt", text="go", **arguments)
            assert failed and words in said


async def test_a_call_that_is_cancelled_stops_the_turn(tmp_path):
    async with served(tmp_path, [bash("touch began; sleep 600"), "Done."], "--mode", "auto") as (client, _):
        with pytest.raises(MCPError):
            await client.session.call_tool("prompt", {"text": "go"}, read_timeout_seconds=5.0)
        with anyio.fail_after(60):
            while "(idle)" not in (await client.call("status"))[0]:
                await anyio.sleep(0.05)


async def test_the_next_answer_has_nothing_of_a_call_that_was_cancelled(tmp_path):
    """Its command ends only when it is killed, after the next prompt has come."""
    stubborn = "trap '' TERM INT HUP; touch began; while :; do read -t 60 < gate; done"
    async with served(tmp_path, ["One.", bash(f"mkfifo gate; {stubborn}"), "Two."], "--mode", "auto") as (client, _):
        session = (await client.call("prompt", text="go"))[0].rpartition("Session: ")[2]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.session.call_tool, "prompt", {"text": "go", "session": session})
            await until((client.project / "began").exists)
            tasks.cancel_scope.cancel()
        assert await client.call("prompt", text="again", session=session) == (f"Two.\n\nSession: {session}", False)


async def test_what_ends_in_the_background_of_an_earlier_task_is_no_call_of_this_one(tmp_path):
    waits = Call("bash", {"command": "until [ -e go ]; do sleep 0.01; done", "background": True})
    script = model(asks(waits), "begun", asks(Call("bash", {"command": "touch go"})), output(wait=True), "done")
    async with served(tmp_path, script, "--mode", "auto") as (client, _):
        first, _ = await client.call("prompt", text="begin")
        second, _ = await client.call("prompt", text="go on", session=first.rpartition("Session: ")[2])
        assert "exit_code=0" in str(client.model.requests[-1].body)
        assert second.count("\n- ") == 2 and "pending" not in second
