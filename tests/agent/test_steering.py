"""`_session/steering`: what the user writes while a turn runs joins it (../shared/acp/DRAFTS, 3.1)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.client.permissions import reject_once
from acp_agent.errors import PeerError
from acp_agent.schema.acp import TextContent, UserMessageChunk
from acp_agent.testing.fake_editor import Turn
from acp_agent.testing.fake_model import Answer, Call

from .kit import Rig, asks, bash, cancels, refused, rig, without_context

WAIT = asks(bash("while [ ! -e go ]; do sleep 0.01; done"))
READY = {"steering": {"idleBehavior": "promptRequired"}}


async def steer(r: Rig, text: str = "Use tabs.", **more: Any) -> Any:
    params = {"sessionId": r.editor.session_id, "prompt": [{"type": "text", "text": text}], **more}
    return await r.editor.request("_session/steering", params)


@asynccontextmanager
async def answering(tmp_path: Path, *then: str, **more: Any) -> AsyncIterator[tuple[Rig, Turn]]:
    """While the model is in the middle of an answer."""
    async with rig(tmp_path, [Answer(text=("Done", "."), hang_after=1), *then], **more) as r:
        turn = r.editor.begin("Indent it.")
        await r.model.wait_for_request()
        yield r, turn


def said(body: dict[str, Any]) -> list[str]:
    """The roles of a request's messages, and the user's words."""
    return [
        m["content"] if m["role"] == "user" else m["role"]
        for m in without_context(body["messages"])
        if m["role"] != "system"
    ]


async def test_what_is_written_during_a_call_reaches_the_model_after_its_result(tmp_path):
    async with rig(tmp_path, [WAIT, "done"], mode="auto") as r:
        turn = r.editor.begin("Indent it.")
        await r.editor.wait_for(lambda update: getattr(update, "tool_call_id", None) is not None)
        assert await steer(r) == {"outcome": "injected"}
        assert await steer(r, "And no blanks.") == {"outcome": "injected"}
        (r.project / "go").touch()
        assert (await turn.response()).stop_reason == "end_turn"
        assert said(r.request(2)) == ["Indent it.", "assistant", "tool", "Use tabs.\nAnd no blanks."]


async def test_what_is_written_during_the_last_answer_is_answered_in_the_same_turn(tmp_path):
    async with answering(tmp_path, "With tabs.") as (r, turn):
        assert (await steer(r))["outcome"] == "injected"
        r.model.release()
        answer = await turn.response()
        assert (answer.stop_reason, r.editor.text()) == ("end_turn", "Done.With tabs.")
        assert said(r.request(2)) == ["Indent it.", "assistant", "Use tabs."]
        assert answer.meta["usage"]["inputTokens"] == 20, "the turn's usage is that of both answers"


@pytest.mark.parametrize(("more", "outcome"), [
    ({}, {"outcome": "failed", "reason": "noRunningTurn"}), ({"_meta": READY}, {"outcome": "promptRequired"}),
])  # fmt: skip
async def test_without_a_turn_nothing_is_consumed_and_none_is_started(tmp_path, more, outcome):
    async with rig(tmp_path, ["one"]) as r:
        assert r.editor.initialized.meta["steering"] == {"supported": True}
        assert await steer(r, **more) == {"reason": "noRunningTurn", **outcome}
        assert not r.model.requests
        await r.editor.prompt("hi")
        assert await steer(r, **more) == {"reason": "noRunningTurn", **outcome}
        assert said(r.request(1)) == ["hi"]


@pytest.mark.parametrize(("more", "outcome"), [({}, "failed"), ({"_meta": READY}, "promptRequired")])
async def test_a_command_is_not_told_to_the_model_but_has_to_be_a_prompt(tmp_path, more, outcome):
    async with answering(tmp_path) as (r, turn):
        assert await steer(r, "/context", **more) == {"outcome": outcome, "reason": "command"}
        r.model.release()
        await turn.response()
        assert len(r.model.requests) == 1


async def test_a_cancel_ends_the_turn_as_usual_and_the_words_are_kept_for_the_next(tmp_path):
    async with rig(tmp_path, [WAIT, "done"], mode="auto") as r:
        turn = r.editor.begin("Indent it.")
        await r.editor.wait_for(lambda update: getattr(update, "tool_call_id", None) is not None)
        await steer(r)
        await cancels(r, turn)
        assert len(r.model.requests) == 1
        await r.editor.prompt("Go on.")
        assert said(r.request(2))[-1] == "Use tabs.\nGo on."


async def test_who_waits_is_told_when_the_words_join_and_gets_back_what_a_cancelled_turn_did_not_take(tmp_path):
    wait = {"_meta": {"steering": {"untilJoined": True}}}
    async with rig(tmp_path, [WAIT, "ok", WAIT, "done"], mode="auto") as r:
        turn = r.editor.begin("Indent it.")
        answers: list[Any] = []

        async def steered(text: str) -> None:
            answers.append(await steer(r, text, **wait))

        async with anyio.create_task_group() as tasks:
            await r.editor.wait_for(lambda update: getattr(update, "tool_call_id", None) is not None)
            tasks.start_soon(steered, "Use tabs.")
            assert await steer(r, "And no blanks.") == {"outcome": "injected"}
            assert not answers, "it waits"
            (r.project / "go").touch()
            await r.model.wait_for_request(2)
        assert answers == [{"outcome": "injected"}]
        assert sorted(said(r.request(2))[-1].split("\n")) == ["And no blanks.", "Use tabs."]
        await turn.response()
        (r.project / "go").unlink()

        turn = r.editor.begin("Again.")
        async with anyio.create_task_group() as tasks:
            await r.model.wait_for_request(3)
            await r.editor.wait_for(lambda update: getattr(update, "status", None) == "in_progress")
            tasks.start_soon(steered, "Not in time.")
            assert await steer(r, "Kept.") == {"outcome": "injected"}
            await cancels(r, turn)
        assert answers[1:] == [{"outcome": "returned", "reason": "cancelled"}]
        await r.editor.prompt("Go on.")
        assert said(r.request(len(r.model.requests)))[-1] == "Kept.\nGo on."
        assert "Not in time." not in str(r.messages(len(r.model.requests)))


async def test_words_for_a_turn_that_failed_are_kept_for_the_next(tmp_path):
    script = [Answer(text="a", drop_after=0, hang_before=True), "ok"]
    async with rig(tmp_path, script, config="[providers.default]\nmax_retries = 0\n") as r:
        turn = r.editor.begin("Indent it.")
        await r.model.wait_for_request()
        await steer(r)
        r.model.release()
        with pytest.raises(PeerError):
            await turn.response()
        await r.editor.prompt("Again.")
        assert "Use tabs." in str(r.messages(len(r.model.requests)))


async def test_a_round_limit_leaves_the_words_for_the_next_turn(tmp_path):
    async with answering(tmp_path, "ok", config="[agent]\nmax_tool_iterations = 1\n") as (r, turn):
        await steer(r)
        r.model.release()
        assert (await turn.response()).stop_reason == "end_turn"
        await r.editor.prompt("Go on.")
        assert "Use tabs." in str(r.messages(2))


async def test_the_words_are_part_of_the_stored_conversation_and_credentials_are_not(tmp_path):
    async with answering(tmp_path, "ok") as (r, turn):
        await steer(r, "Use ghp_" + "a1B2" * 9)
        r.model.release()
        await turn.response()
        assert "a1B2a1B2" not in str(r.request(2))
        session = r.editor.session_id
        await r.editor.client.close_session(session)
        r.editor.updates[session].clear()
        await r.editor.client.load_session(session, r.project)
        shown = [update.content.text for update in r.editor.updates[session] if isinstance(update, UserMessageChunk)]
        assert shown[0] == "Indent it." and shown[1].startswith("Use ") and "a1B2" not in shown[1]


async def test_what_cannot_be_said_is_refused_and_the_turn_goes_on(tmp_path):
    async with answering(tmp_path) as (r, turn):
        audio = {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}
        for prompt in ([], [{"type": "text", "text": "  "}], [audio], "text"):
            with refused(-32602):
                assert not await steer(r, prompt=prompt), prompt
        with refused(-32002):
            await steer(r, sessionId="nobody")
        r.model.release()
        assert (await turn.response()).stop_reason == "end_turn"


async def test_a_turn_that_a_schedule_started_takes_no_words(tmp_path):
    async with rig(tmp_path, [Answer(text=("Done", "."), hang_after=1)]) as r:
        session = r.agent.sessions.get(r.editor.session_id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.prompt_unasked, [TextContent(text="wake up")], "ask", lambda: "A schedule:")
            await r.model.wait_for_request()
            assert (await steer(r))["outcome"] == "failed"
            r.model.release()


async def test_what_is_written_while_a_sub_agent_works_is_for_the_session_alone(tmp_path):
    task = Call("delegate", {"prompt": "Look.", "title": "look"})
    async with rig(tmp_path, [asks(task), Answer(text=("Seen", "."), hang_after=1), "done"], mode="auto") as r:
        turn = r.editor.begin("Indent it.")
        await r.model.wait_for_request(2)
        assert await steer(r) == {"outcome": "injected"}
        r.model.release()
        await turn.response()
        assert said(r.request(3)) == ["Indent it.", "assistant", "tool", "Use tabs."]


async def test_what_is_written_while_a_permission_is_asked_for_waits_for_the_result(tmp_path):
    answered = anyio.Event()

    async def permit(request):
        await answered.wait()
        return await reject_once(request)

    async with rig(tmp_path, [asks(bash("touch f")), "done"], permissions=[permit]) as r:
        turn = r.editor.begin("Indent it.")
        await r.editor.wait_until(lambda: r.editor.permission_requests)
        assert await steer(r) == {"outcome": "injected"}
        answered.set()
        await turn.response()
        assert said(r.request(2)) == ["Indent it.", "assistant", "tool", "Use tabs."]
