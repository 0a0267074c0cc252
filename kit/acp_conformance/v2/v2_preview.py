"""What the Preview has beyond the pinned schema: V2-IDEM, V2-REP, V2-SYS, and states with `background`."""

from __future__ import annotations

from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import INVALID_PARAMS, REST, Trial, check
from acp_conformance.v2.v2_client import AgentV2, at_work, in_session, speaking

START = {"type": "start"}
OF_V1 = ("agentCapabilities", "agentInfo", "modes", "stopReason")
PROMPTED = "the kit's word is tangerine"


def _asked(agent: AgentV2, text: str, key: str = "kit-key") -> dict[str, Any]:
    blocks = [{"type": "text", "text": text}]
    return {"sessionId": agent.session, "prompt": blocks, **({"idempotencyKey": key} if key else {})}


async def _id(agent: AgentV2, text: str, key: str = "kit-key") -> str:
    answered: dict[str, Any] = await agent.ask("session/prompt", _asked(agent, text, key))
    return str(answered.get("messageId"))


@check("V2-IDEM-1")
async def a_prompt_may_have_a_key(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="one"), Answer(text="two")]) as agent:
        ids = []
        for times, key in enumerate(("a", "b"), 1):
            ids.append(await _id(agent, "the same", key))
            await agent.ended(times)
        agent.expect(ids[0] != ids[1], f"two prompts with two keys are one message: {ids}")


@check("V2-IDEM-2")
async def a_retry_is_answered_with_the_message_of_the_first(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="one"), Answer(text="two")]) as agent:
        first = await _id(agent, "once")
        await agent.ended()
        again = await _id(agent, "once")
        await agent.quiet()
        agent.expect(first == again, f"the retry was answered with {again}, the first with {first}")
        agent.expect(len({each["messageId"] for each in agent.said()}) == 1, "the message was inserted twice")


@check("V2-IDEM-3")
async def a_retry_waits_with_the_first(trial: Trial) -> None:
    async with at_work(trial) as agent:
        first = await agent.held("waits", idempotencyKey="kit-key")
        again = await agent.held("waits", idempotencyKey="kit-key")
        agent.model.release()
        for each, what in ((first, "the first"), (again, "the retry")):
            await agent.until(each.over.is_set, f"an answer to {what}")
        same = (first.code, first.result) == (again.code, again.result)
        agent.expect(same, f"{first.result or first.code} and, for the retry, {again.result or again.code}")


@check("V2-IDEM-4")
async def another_prompt_under_a_used_key_is_refused(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="one"), Answer(text="two")]) as agent:
        await _id(agent, "once")
        await agent.ended()
        await agent.refused("session/prompt", _asked(agent, "another"), INVALID_PARAMS, why="with a key that was used")


@check("V2-IDEM-5")
async def keys_hold_over_a_restart(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="one")]) as agent:
        first = await _id(agent, "once")
        await agent.ended()
        session = agent.session
        await agent.quiet(REST)
    async with speaking(trial, [Answer(text="two")]) as agent:
        agent.session = session
        await agent.ask("session/resume", {"sessionId": session, "cwd": str(trial.project)})
        again = await _id(agent, "once")
        agent.expect(again == first, f"after a restart the retry was answered with {again}, the first with {first}")


@check("V2-IDEM-6")
async def a_refused_prompt_leaves_no_key(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="one")]) as agent:
        wrong = {**_asked(agent, ""), "prompt": [{"type": "kit-no-such-block"}]}
        await agent.answered(agent.ask("session/prompt", wrong))
        if agent.said():
            return  # It was taken.
        await _id(agent, "once")
        await agent.ended()
        agent.expect(len(agent.said()) == 1, "a prompt under a key that was refused before is no message")


@check("V2-REP-1")
async def the_end_of_a_replay_is_told_once_before_the_answer(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="The pear.")]) as agent:
        await agent.stops("end_turn", "first")
        session = agent.session
        await agent.quiet(REST)
    async with speaking(trial) as agent:
        agent.session = session
        for replay, times in ((START, 1), (None, 0)):
            before = agent.seen
            params = {"sessionId": session, "cwd": str(trial.project), "replayFrom": replay}
            await agent.ask("session/resume", params)
            kinds = [each.get("sessionUpdate") for each in agent.updates(after=before)]
            agent.expect(kinds.count("replay_complete") == times, f"from {replay}, these came: {kinds}")
            late = [each for each in kinds[kinds.index("replay_complete") :] if "message" in str(each)] if times else []
            agent.expect(not late, f"behind `replay_complete` came {late}")


@check("V2-INIT-12")
async def no_answer_has_a_key_of_v1(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="one")]) as agent:
        await agent.stops("end_turn")
        for answer in agent.answers():
            found = [name for name in OF_V1 if name in (answer.get("result") or {})]
            agent.expect(not found, f"an answer has {found}: {answer}")


@check("V2-SYS-1")
async def a_system_prompt_is_taken_if_it_is_offered(trial: Trial) -> None:
    async with speaking(trial, [Answer(text="one")]) as agent:
        agent.needs("systemPrompt")
        await agent.new_session(systemPrompt={"mode": "append", "content": [{"type": "text", "text": PROMPTED}]})
        await agent.stops("end_turn")
        agent.expect(PROMPTED in agent.asked_of_model(), "the model was not told it")


@check("V2-ST-9")
async def background_is_in_all_states_or_in_none(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="one")]) as agent:
        await agent.stops("end_turn")
        told = ["background" in each for each in agent.updates("state_update")]
        agent.expect(all(told) or not any(told), f"of {len(told)} states {sum(told)} say what runs in the background")
