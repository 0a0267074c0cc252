"""What the Preview of v2 has beyond its pinned schema, by the ids of its requirements: `pytest -k IDEM`, ..."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.loop.prompts.command_names import BUILT_IN
from acp_agent.store.stores import sqlite_store
from acp_agent.testing.fake_model import Answer, Call, Script
from acp_conformance.v2.v2_client import allows
from tests.agent.kit import asks, bash, rounds

from .kit import went
from .test_v2 import BOUND, INFO, Client, Place, hanging, of_v2, old_and_new, place, text

KEY = {"idempotencyKey": "a key"}
HANGS = Answer(text=("One", " two"), hang_after=1)
TOUCHES: Script = [asks(bash("touch made")), "Well."]
STEP = {"content": "do it", "priority": "high", "status": "pending"}


def messages(client: Client) -> list[str]:
    """What the user said, once for each message."""
    said = {each["messageId"]: each["content"]["text"] for each in client.updates("user_message_chunk")}
    return [*said.values()]


async def resumed(here: Place, client: Client, session: str, **more: Any) -> dict[str, Any]:
    await client.initialize()
    answer: dict[str, Any] = await client.ask("session/resume", sessionId=session, cwd=str(here.project), **more)
    return answer


# --- idempotency keys ----------------------------------------------------------------------------------------------


async def test_v2_idem_1_and_2_a_retry_is_answered_with_the_first_message(tmp_path: Path) -> None:
    """While its turn runs, and when it has ended; a prompt without a key, and one with another, are new."""
    async with place(tmp_path, ["One.", "Two.", "Three."]) as here, here.session() as (client, session):
        asked = {"sessionId": session, "prompt": text("Count")}
        first = await client.ask("session/prompt", **asked, **KEY)
        assert await client.ask("session/prompt", **asked, **KEY) == first
        await client.ended()
        assert await client.ask("session/prompt", **asked, **KEY) == first
        assert messages(client) == ["Count"] and len(here.model.requests) == 1
        others = [
            await client.ask("session/prompt", **asked),
            await client.ask("session/prompt", **asked, idempotencyKey="b"),
        ]
        assert len({first["messageId"], *(each["messageId"] for each in others)}) == 3
        assert (await client.refused("session/prompt", **asked, idempotencyKey=7))["code"] == -32602


async def test_v2_idem_3_a_retry_of_what_waits_gets_its_answer(tmp_path: Path) -> None:
    async with place(tmp_path, [HANGS, "Done."]) as here, here.session() as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("Count"))
        held = [await client.begin("session/prompt", sessionId=session, prompt=text("More"), **KEY) for _ in range(2)]
        await client.tell("session/cancel", sessionId=session)
        assert [(await client.answer(each))["error"]["code"] for each in held] == [-32800, -32800]
        again = [await client.begin("session/prompt", sessionId=session, prompt=text("More"), **KEY) for _ in range(2)]
        one, two = [(await client.answer(each))["result"] for each in again]
        assert one == two and messages(client) == ["Count", "More"]


async def test_v2_idem_4_another_prompt_under_a_used_key_is_refused(tmp_path: Path) -> None:
    """Also in the life of the session after this process's."""
    async with place(tmp_path, ["One."]) as here:
        async with here.session() as (client, session):
            await client.ask("session/prompt", sessionId=session, prompt=text("Count"), **KEY)
            other = {"sessionId": session, "prompt": text("Count more"), **KEY}
            assert (await client.refused("session/prompt", **other))["code"] == -32602
            await client.ended()
            assert (await client.refused("session/prompt", **other))["code"] == -32602
        async with here.client() as client:
            await resumed(here, client, session)
            assert (await client.refused("session/prompt", **other))["code"] == -32602
            assert messages(client) == []


async def test_v2_idem_5_keys_hold_over_a_restart_and_a_fork_of_the_log_by_v1(tmp_path: Path) -> None:
    async with place(tmp_path, ["One.", "Two."]) as here:
        async with here.session() as (client, session):
            asked = {"sessionId": session, "prompt": text("Count"), **KEY}
            first = await client.ask("session/prompt", **asked)
            await client.ended()
        for _ in range(2):
            async with here.client() as client:
                await resumed(here, client, session)
                assert await client.ask("session/prompt", **asked) == first
                assert messages(client) == [] and len(here.model.requests) == 1
        assert "a key" not in json.dumps([request.body for request in here.model.requests])


async def test_v2_idem_5_a_process_that_is_killed_before_it_answers_has_inserted_once(tmp_path: Path) -> None:
    """Nobody reads its output, which is longer than a pipe: the message is on disk, its answer never leaves."""
    async with place(tmp_path, ["x" * 2_000_000, "Again."]) as here:
        async with here.session() as (client, session):
            await client.ask("session/prompt", sessionId=session, prompt=text("Write"))
            await client.ended()
        asked = {"sessionId": session, "prompt": text("Count"), **KEY}
        lines = [
            {"method": "initialize", "params": {"protocolVersion": 2, "info": INFO, "capabilities": {}}},
            {"method": "session/resume", "params": {
                "sessionId": session, "cwd": str(here.project), "replayFrom": {"type": "start"}}},
            {"method": "session/prompt", "params": asked},
        ]  # fmt: skip
        sent = b"".join(
            json.dumps({"jsonrpc": "2.0", "id": number, **line}).encode() + b"\n" for number, line in enumerate(lines)
        )
        agent = await anyio.open_process([here.command], env=here.environ, stderr=None)
        assert agent.stdin is not None and agent.stdout is not None
        await agent.stdin.send(sent)
        with (
            closing(sqlite_store(tmp_path / "home/.local/state/acp-coder/sessions.db")) as store,
            anyio.fail_after(BOUND),
        ):
            while len(marks := store.turns(session, 0)) < 2:
                await anyio.sleep(0.02)
        agent.kill()
        await agent.wait()
        read = b"".join([each async for each in agent.stdout])
        await agent.aclose()
        assert b'"id":2' not in read.replace(b" ", b"")
        inserted = json.loads(marks[-1][1])["message_id"]
        async with here.client() as client:
            await resumed(here, client, session, replayFrom={"type": "start"})
            assert messages(client) == ["Write", "Count"]
            assert await client.ask("session/prompt", **asked) == {"messageId": inserted}
            assert messages(client) == ["Write", "Count"]


async def test_v2_idem_6_a_prompt_that_was_refused_leaves_no_key(tmp_path: Path) -> None:
    async with place(tmp_path, ["One."]) as here, here.session() as (client, session):
        wrong = {"sessionId": session, "prompt": [{"type": "audio", "data": "", "mimeType": "audio/wav"}], **KEY}
        assert (await client.refused("session/prompt", **wrong))["code"] == -32602
        await client.ask("session/prompt", sessionId=session, prompt=text("Count"), **KEY)
        assert messages(client) == ["Count"]


async def test_v2_idem_a_client_of_v1_has_no_keys(tmp_path: Path) -> None:
    async with went(tmp_path, ["One.", "Two.", "Three."]) as r:
        for _ in range(2):
            blocks = {"sessionId": r.editor.session_id, "prompt": text("Count"), "_meta": dict(KEY)}
            assert "messageId" not in json.dumps(await r.editor.request("session/prompt", blocks))
        assert len(r.model.requests) == 3


async def test_v2_idem_keys_hold_among_the_connections_of_a_server(tmp_path: Path) -> None:
    async with old_and_new(tmp_path, ["One.", "Two."]) as (here, old, client, session):
        asked = {"sessionId": session, "prompt": text("Count"), **KEY}
        first = await client.ask("session/prompt", **asked)
        await client.ended()
        assert (await old.prompt("two")).stop_reason == "end_turn"
        assert await client.ask("session/prompt", **asked) == first
        assert len(here.model.requests) == 2


# --- replay, answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replay", [None, {"type": "start"}])
async def test_v2_rep_1_and_2_the_end_of_a_replay_is_told_before_state_and_answer(tmp_path: Path, replay: Any) -> None:
    async with place(tmp_path, ["It is one."]) as here:
        async with here.session() as (client, session):
            await client.ask("session/prompt", sessionId=session, prompt=text("Count"))
            await client.ended()
        async with here.client() as client:
            await resumed(here, client, session, replayFrom=replay)
            answer = client.came.index(await client.until(lambda each: "configOptions" in (each.get("result") or {})))
            kinds = [each["params"]["update"]["sessionUpdate"] for each in client.came[:answer] if "params" in each]
            told = ["user_message_chunk", "agent_message_chunk", "replay_complete"] if replay else []
            assert kinds == [*told, "state_update"]


async def test_v2_cmd_2_the_answers_of_new_and_resume_have_the_commands(tmp_path: Path) -> None:
    async with place(tmp_path) as here, here.client() as client:
        await client.initialize()
        made = await client.ask("session/new", cwd=str(here.project))
        again = await client.ask("session/resume", sessionId=made["sessionId"], cwd=str(here.project))
        for answer in (made, again):
            assert [each["name"] for each in answer["availableCommands"]] == [*BUILT_IN]
            assert {each["type"] for each in answer["availableCommands"]} == {"command"}


async def test_v2_init_12_no_answer_has_a_key_of_v1(tmp_path: Path) -> None:
    async with place(tmp_path, ["One."]) as here, here.client() as client:
        welcome = await client.initialize(capabilities={"auth": {"terminal": {}}})
        assert welcome.keys() <= {"protocolVersion", "info", "capabilities", "authMethods", "_meta"}
        made = await client.ask("session/new", cwd=str(here.project))
        again = await client.ask("session/resume", sessionId=made["sessionId"], cwd=str(here.project))
        assert made.keys() <= {"sessionId", "configOptions", "availableCommands", "_meta"}
        assert again.keys() <= {"configOptions", "availableCommands", "_meta"}
        said = await client.ask("session/prompt", sessionId=made["sessionId"], prompt=text("Count"))
        assert said.keys() == {"messageId"}


async def test_v2_plan_3_documents_and_their_removal_need_no_capability(tmp_path: Path) -> None:
    script = rounds(Call("switch_mode", {"plan": "# Plan"}), Call("plan", {"entries": [STEP]}))
    async with place(tmp_path, script) as here, here.session(allows) as (client, session):
        await client.ask("session/set_config_option", sessionId=session, configId="mode", type="id", value="architect")
        await client.ask("session/prompt", sessionId=session, prompt=text("Plan"))
        await client.ended()
        plans = [each for each in client.updates() if each["sessionUpdate"].startswith("plan")]
        assert plans == [
            {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "proposal", "content": "# Plan"}},
            {"sessionUpdate": "plan_removed", "planId": "proposal"},
            {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "steps", "entries": [STEP]}},
        ]


# --- background work, single cancels -------------------------------------------------------------------------------


async def nothing_runs_on(client: Client) -> None:
    await client.until(lambda _: lists(client)[-1] == [])


def lists(client: Client) -> list[Any]:
    return [each["background"] for each in client.updates("state_update")]


async def test_v2_st_9_and_10_each_state_lists_what_runs_on(tmp_path: Path) -> None:
    script: Script = [asks(bash("read x <gate; echo over", background=True)), "It runs.", "Again."]
    async with place(tmp_path, script) as here, here.session(allows) as (client, session):
        made = await anyio.run_process(["mkfifo", str(here.project / "gate")])
        assert made.returncode == 0
        await client.ask("session/prompt", sessionId=session, prompt=text("Start it"))
        await client.ended()
        (call,) = {each["toolCallId"] for each in client.updates("tool_call_update")}
        item = {"type": "terminal", "terminalId": call}
        assert lists(client)[0] == [] and client.updates("state_update")[-1]["background"] == [item]
        assert all(each["background"] in ([], [item]) for each in client.updates("state_update"))
        await client.ask("session/prompt", sessionId=session, prompt=text("And now?"))
        await client.ended(2)
        assert lists(client)[-1] == [item]
        (here.project / "gate").write_text("\n")
        await client.until(lambda _: client.updates("state_update")[-1]["background"] == [])
        kinds = [each for each in client.updates() if "exitStatus" in each or each.get("background") == []]
        assert kinds[-2]["exitStatus"] == {"exitCode": 0} and kinds[-1]["state"] == "idle"
        assert "stopReason" not in kinds[-1]


@pytest.mark.parametrize("replay", [None, {"type": "start"}])
async def test_v2_st_9_and_10_who_resumes_a_session_of_a_server_is_told_what_runs_on(
    tmp_path: Path, replay: Any
) -> None:
    """The terminal comes before the state that lists it; its end before the state that does not. Who began it, too."""
    script: Script = [asks(bash("read x <gate; echo over", background=True)), "It runs."]
    async with old_and_new(tmp_path, script, allows) as (here, _, client, session), of_v2(here) as other:
        made = await anyio.run_process(["mkfifo", str(here.project / "gate")])
        assert made.returncode == 0
        await client.ask("session/prompt", sessionId=session, prompt=text("Start it"))
        await client.ended()
        (call,) = {each["toolCallId"] for each in client.updates("tool_call_update")}
        item = {"type": "terminal", "terminalId": call}
        assert client.updates("state_update")[-1]["background"] == [item]
        await other.initialize()
        await other.ask("session/resume", sessionId=session, cwd=str(here.project), replayFrom=replay)
        (told,) = other.updates("terminal_update")
        assert (told["terminalId"], told["command"]) == (call, "read x <gate; echo over")
        assert told["capabilities"] == {"cancel": {}}
        assert lists(other)[-1] == [item] and other.updates().index(told) < other.updates().index(
            other.updates("state_update")[-1]
        )
        (here.project / "gate").write_text("\n")
        for each in (client, other):
            await nothing_runs_on(each)
            assert [one["exitStatus"] for one in each.updates("terminal_update") if "exitStatus" in one] == [
                {"exitCode": 0}
            ]
        again = await other.ask("session/resume", sessionId=session, cwd=str(here.project), replayFrom=replay)
        assert "background" not in json.dumps(again) and lists(other)[-1] == []


async def test_v2_can_6_who_resumed_a_session_of_a_server_ends_what_runs_on(tmp_path: Path) -> None:
    script: Script = [asks(bash("sleep 600", background=True)), "It runs."]
    async with old_and_new(tmp_path, script, allows) as (here, _, client, session), of_v2(here) as other:
        await client.ask("session/prompt", sessionId=session, prompt=text("Start it"))
        await client.ended()
        await other.initialize()
        await other.ask("session/resume", sessionId=session, cwd=str(here.project))
        (told,) = other.updates("terminal_update")
        assert await other.ask("terminal/cancel", sessionId=session, terminalId=told["terminalId"]) == {}
        for each in (client, other):
            await nothing_runs_on(each)


async def test_v2_st_10_what_ended_with_a_session_that_is_opened_anew_is_told(tmp_path: Path) -> None:
    script: Script = [asks(bash("sleep 600", background=True)), "It runs."]
    async with place(tmp_path, script) as here, here.session(allows) as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("Start it"))
        await client.ended()
        assert len(lists(client)[-1]) == 1
        await client.ask("session/resume", sessionId=session, cwd=str(here.project))
        assert client.updates("terminal_update")[-1]["exitStatus"] == {} and lists(client)[-1] == []


async def test_v2_can_6_and_7_a_terminal_that_runs_on_is_cancelled_by_itself(tmp_path: Path) -> None:
    script: Script = [asks(bash("sleep 600", background=True)), "It runs."]
    async with place(tmp_path, script) as here, here.session(allows) as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("Start it"))
        await client.ended()
        (call,) = {each["toolCallId"] for each in client.updates("tool_call_update")}
        offers = [each["capabilities"] for each in client.updates("terminal_update") if "capabilities" in each]
        assert offers == [{"cancel": {}}]
        assert (await client.refused("tool_call/cancel", sessionId=session, toolCallId=call))["code"] == -32602
        await client.tell("session/cancel", sessionId=session)  # It is no work in the foreground.
        assert await client.ask("terminal/cancel", sessionId=session, terminalId=call) == {}
        ended = await client.until(lambda each: "exitStatus" in json.dumps(each))
        assert ended["params"]["update"]["capabilities"] is None
        await client.until(lambda _: client.updates("state_update")[-1]["background"] == [])
        assert (await client.refused("terminal/cancel", sessionId=session, terminalId=call))["code"] == -32602
        assert client.updates("tool_call_update")[-1].get("status") in (None, "completed")


async def test_v2_can_6_and_7_a_call_is_cancelled_by_itself_and_the_turn_goes_on(tmp_path: Path) -> None:
    script: Script = [asks(bash("echo begun; sleep 600")), "Well then."]
    async with place(tmp_path, script) as here, here.session(allows) as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("Start it"))
        running = await client.until(lambda each: '"in_progress"' in json.dumps(each))
        call = running["params"]["update"]
        assert call["capabilities"] == {"cancel": {}}
        asked = {"sessionId": session, "toolCallId": call["toolCallId"]}
        assert (await client.refused("terminal/cancel", sessionId=session, terminalId=call["toolCallId"]))[
            "code"
        ] == -32602
        assert await client.ask("tool_call/cancel", **asked) == {}
        assert (await client.ended())["stopReason"] == "end_turn"
        last = [each for each in client.updates("tool_call_update") if "status" in each][-1]
        assert (last["status"], last["capabilities"]) == ("cancelled", None)
        assert "cancelled by the user" in json.dumps(here.model.requests[-1].body)
        assert [state for state, _ in client.states()][-1] == "idle"
        assert (await client.refused("tool_call/cancel", **asked))["code"] == -32602
        unknown = {"sessionId": "none", "toolCallId": "x"}
        assert (await client.refused("tool_call/cancel", **unknown))["code"] == -32002


async def test_v2_can_7_a_call_whose_question_is_open_can_be_cancelled_too(tmp_path: Path) -> None:
    async with place(tmp_path, TOUCHES) as here, here.session() as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("Do it"))
        question = await client.until(lambda each: each.get("method") == "session/request_permission")
        call = question["params"]["subject"]["toolCall"]["toolCallId"]
        assert await client.ask("tool_call/cancel", sessionId=session, toolCallId=call) == {}
        assert (await client.ended())["stopReason"] == "end_turn"
        withdrawn = await client.until(lambda each: each.get("method") == "$/cancel_request")
        assert withdrawn["params"]["requestId"] == question["id"] and not (here.project / "made").exists()


async def test_hanging_turns_are_still_cancelled_as_a_whole(tmp_path: Path) -> None:
    async with hanging(tmp_path) as (client, session):
        await client.ask("session/prompt", sessionId=session, prompt=text("Count"))
        await client.tell("session/cancel", sessionId=session)
        assert (await client.ended())["background"] == []
