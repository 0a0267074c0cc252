"""Prompts, stop reasons, updates: PR, STOP, UPD."""

from __future__ import annotations

import base64
from typing import Any

from acp_agent.testing.fake_answers import Answer, Failure
from acp_conformance.trial import INVALID_PARAMS, UNKNOWN, Agent, NotHere, Trial, check

DOT = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415478da63f8cfc0000003010100f7034143"
        "0000000049454e44ae426082"
    )
).decode()
"""A PNG of one red pixel."""
REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
KINDS = (
    "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan",
    "available_commands_update", "current_mode_update", "config_option_update", "session_info_update", "usage_update",
    "notice", "compaction_update", "compaction_summary_chunk", "plan_update", "plan_removed",
)  # fmt: skip
SAYS = ("agent_message_chunk", "agent_thought_chunk", "tool_call", "notice")


@check("PR-1")
async def a_prompt_is_answered_once(trial: Trial) -> None:
    async with trial.agent([Answer(text="Hello.")]) as agent:
        await agent.new_session()
        answered = await agent.prompt()
        agent.expect(answered.get("stopReason") in REASONS, f"`stopReason` is {answered.get('stopReason')!r}")
        await agent.quiet()
        twice = [each for each in agent.editor.violations if "which is not open" in each]
        agent.expect(not twice, f"an answer came twice: {twice[:1]}")


@check("PR-2")
async def an_unknown_session_takes_no_prompt(trial: Trial) -> None:
    async with trial.agent() as agent:
        blocks = [{"type": "text", "text": "hello?"}]
        params = {"sessionId": UNKNOWN, "prompt": blocks}
        await agent.refused("session/prompt", params, why="to an unknown session")


@check("PR-3")
async def text_and_links_reach_the_model(trial: Trial) -> None:
    (trial.project / "pear.txt").write_text("green\n")
    async with trial.agent([Answer(text="ok")]) as agent:
        await agent.new_session()
        link = {"type": "resource_link", "name": "pear.txt", "uri": (trial.project / "pear.txt").as_uri()}
        blocks = [{"type": "text", "text": "look at"}, link, {"type": "text", "text": "please"}]
        await agent.ask("session/prompt", {"sessionId": agent.session, "prompt": blocks}, seconds=20)
        sent = agent.asked_of_model()
        for words in ("look at", "pear.txt", "please"):
            agent.expect(words in sent, f"{words!r} of the prompt did not reach the model")


@check("PR-4")
async def blocks_that_are_offered_reach_the_model(trial: Trial) -> None:
    async with trial.agent([Answer(text="ok")] * 2) as agent:
        image, embedded = agent.has("promptCapabilities", "image"), agent.has("promptCapabilities", "embeddedContext")
        if not image and not embedded:
            agent.needs("promptCapabilities", "image")
        await agent.new_session()
        blocks: list[dict[str, Any]] = [{"type": "text", "text": "look"}]
        if embedded:
            resource = {"uri": "file:///kit/plum.txt", "text": "The plum is blue.", "mimeType": "text/plain"}
            blocks.append({"type": "resource", "resource": resource})
        if image:
            blocks.append({"type": "image", "mimeType": "image/png", "data": DOT})
        await agent.ask("session/prompt", {"sessionId": agent.session, "prompt": blocks}, seconds=20)
        sent = agent.asked_of_model()
        agent.expect(not embedded or "The plum is blue." in sent, "an embedded resource did not reach the model")
        agent.expect(not image or "image" in sent, "an image did not reach the model, in any form")


@check("PR-5")
async def blocks_that_are_not_offered_do_no_harm(trial: Trial) -> None:
    async with trial.agent([Answer(text="ok")] * 2) as agent:
        await agent.new_session()
        sound = {"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="}
        params = {"sessionId": agent.session, "prompt": [{"type": "text", "text": "listen"}, sound]}
        if not agent.has("promptCapabilities", "audio"):
            await agent.answered(agent.ask("session/prompt", params, seconds=20), INVALID_PARAMS)
        await agent.stops("end_turn", "and now?")


def _stops(line: dict[str, Any]) -> bool:
    return "stopReason" in (line.get("result") or {})


@check("PR-6")
async def no_update_comes_behind_the_answer(trial: Trial) -> None:
    said = tuple(f"{number} " for number in range(200))
    async with trial.agent([Answer(text=said)]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        lines = [line.message for line in agent.editor.transcript]
        after = next(place for place, line in enumerate(lines) if isinstance(line, dict) and _stops(line))
        whole = "".join(said).strip() in agent.text()
        agent.expect(whole, "not all text was there when the turn ended")
        await agent.quiet()
        late = [each for each in agent.updates(after=after) if each["sessionUpdate"] in KINDS[:6]]
        agent.expect(not late, f"came behind the turn's answer: {late[:1]}")


@check("PR-7")
async def text_is_streamed(trial: Trial) -> None:
    async with trial.agent([Answer(text=("first ", "second ", "third "), hang_after=2)]) as agent:
        await agent.new_session()
        async with agent.turn():
            await agent.until(lambda: "first" in agent.text(), "the first words, while the model still writes,")
            agent.model.release()


@check("PR-8")
async def without_a_tool_call_the_turn_ends(trial: Trial) -> None:
    async with trial.agent([Answer(text="Hello.")]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        agent.expect(len(agent.asked) == 1, f"the model was asked {len(agent.asked)} times")


@check("PR-9")
async def turns_build_on_earlier_ones(trial: Trial) -> None:
    async with trial.agent([Answer(text="A pear."), Answer(text="Yes.")]) as agent:
        await agent.new_session()
        await agent.stops("end_turn", "name a fruit")
        await agent.stops("end_turn", "sure?")
        sent = agent.asked_of_model()
        agent.expect("name a fruit" in sent and "A pear." in sent, "the second request has nothing of the first turn")


@check("PR-10")
async def failures_of_the_model_leave_the_session_usable(trial: Trial) -> None:
    """A turn may end as if it had gone well if anything was said in it, such as the failure."""
    failure = Failure(401, {"error": {"message": "kit: no such key"}})
    async with trial.agent([failure, failure, failure, Answer(text="Hello again.")]) as agent:
        await agent.new_session()
        before = agent.seen
        answered = await agent.answered(agent.prompt(seconds=60))
        said = any(agent.updates(kind, after=before) for kind in SAYS)
        ended = answered is not None and answered.get("stopReason") == "end_turn"
        agent.expect(said or not ended, f"the model's server refused, nothing was said, and it ended with {answered}")
        agent.say([Answer(text="Hello again.")] * 3)
        await agent.stops("end_turn", "again")


@check("PR-11")
async def an_empty_prompt_is_answered(trial: Trial) -> None:
    async with trial.agent([Answer(text="ok")] * 3) as agent:
        await agent.new_session()
        for blocks in ([], [{"type": "text", "text": ""}]):
            params = {"sessionId": agent.session, "prompt": blocks}
            await agent.answered(agent.ask("session/prompt", params, seconds=20))


@check("PR-12")
async def a_second_prompt_is_answered_too(trial: Trial) -> None:
    async with trial.agent([Answer(text="one", hang_before=True), Answer(text="two"), Answer(text="three")]) as agent:
        await agent.new_session()
        async with agent.turn("first", may_fail=True):
            await agent.until(lambda: agent.asked, "a request to the model")
            async with agent.turn("second", may_fail=True):
                await agent.quiet()
                agent.model.release()


@check("PR-13")
async def turns_of_sessions_run_at_once(trial: Trial) -> None:
    async with trial.agent([Answer(text="one", hang_before=True), Answer(text="two", hang_before=True)]) as agent:
        first, second = (await agent.new_session())["sessionId"], (await agent.new_session())["sessionId"]
        async with agent.turn(session=first), agent.turn(session=second):
            await agent.until(lambda: len(agent.asked) == 2, "the second session's request to the model")
            agent.model.release()


@check("STOP-1")
async def end_turn(trial: Trial) -> None:
    async with trial.agent([Answer(text="The end.")]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")


async def _stops_or_fails(agent: Agent, reason: str) -> None:
    """An error tells no end that was another one: the page gives words for turns that end, not for what fails."""
    async with agent.turn(may_fail=True) as turn:
        await agent.until(lambda: turn.over.is_set() or len(agent.asked) > 1, "the turn's end", seconds=40)
        if len(agent.asked) > 1:
            raise NotHere("it asks the model again, as if the server had failed")
    agent.expect(turn.failure or turn.reason == reason, f"the turn ended with {turn.answer}")


@check("STOP-2")
async def max_tokens(trial: Trial) -> None:
    async with trial.agent([Answer(text="Hel", finish="length")] * 4) as agent:
        await agent.new_session()
        await _stops_or_fails(agent, "max_tokens")


@check("STOP-4")
async def refusal(trial: Trial) -> None:
    async with trial.agent([Answer(text="", finish="content_filter")] * 4) as agent:
        await agent.new_session()
        await _stops_or_fails(agent, "refusal")


@check("UPD-1", "ACP-PROMPT-002")
async def updates_are_known_and_of_a_session(trial: Trial) -> None:
    async with trial.agent([Answer(text="Hello.", thought="Hm.")]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        for note in agent.editor.lines("from_agent", "session/update"):
            params = note["params"]
            agent.expect(params.get("sessionId") == agent.session, f"an update of an unknown session: {params}")
            kind = params["update"].get("sessionUpdate")
            agent.expect(kind in KINDS, f"`sessionUpdate` is {kind!r}")


@check("UPD-2")
async def the_reply_is_agent_message_chunks(trial: Trial) -> None:
    async with trial.agent([Answer(text=("Hel", "lo."))]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        # Agents may say something of their own, such as a warning.
        said = agent.text()
        agent.expect("Hello." in said and said.count("Hel") == 1, f"the reply came as {said!r}")


@check("UPD-3")
async def thoughts_are_kept_apart(trial: Trial) -> None:
    async with trial.agent([Answer(text="Hello.", thought="Hm, kit.")]) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        agent.expect("Hm, kit." not in agent.text(), "the model's thought came as part of the reply")


@check("UPD-4")
async def a_live_prompt_is_not_echoed(trial: Trial) -> None:
    async with trial.agent([Answer(text="Hello.")]) as agent:
        await agent.new_session()
        await agent.stops("end_turn", "the kit says hello")
        echoed = agent.text("user_message_chunk")
        agent.expect("the kit says hello" not in echoed, "the prompt was sent back to the client that wrote it")
