"""What the Preview has beyond the pinned schema: V2-IDEM, V2-REP, V2-SYS, V2-SUB, and states with `background`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import INVALID_PARAMS, REST, NotHere, Trial, check
from acp_conformance.v2.v2_client import VERSION, AgentV2, at_work, in_session, speaking, update_of

START = {"type": "start"}
OF_V1 = ("agentCapabilities", "agentInfo", "modes", "stopReason")
PROMPTED = "the kit's word is tangerine"
TOLD: dict[str, Any] = {"mode": "append", "content": [{"type": "text", "text": PROMPTED}]}
CHILD = "The word is kumquat."
SUBAGENTS: dict[str, Any] = {"subagents": {}}


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
        await agent.new_session(systemPrompt=TOLD)
        await agent.stops("end_turn")
        agent.expect(PROMPTED in agent.asked_of_model(), "the model was not told it")


async def _unopened(agent: AgentV2, told: dict[str, Any], why: str) -> None:
    """No session is made with that, nor resumed. With any code: the specification names none."""
    params = {"cwd": str(agent.trial.project), "systemPrompt": told}
    await agent.refused("session/new", params, why=why)
    if agent.session:
        await agent.refused("session/resume", {**params, "sessionId": agent.session}, why=why)


@check("V2-SYS-2")
async def an_unknown_mode_of_a_system_prompt_is_refused(trial: Trial) -> None:
    async with in_session(trial) as agent:
        agent.needs("systemPrompt")
        modes = [{}, {"mode": "kit-no-such-mode"}, {"mode": "_kit"}]
        if not agent.has("systemPrompt", "mode", "override"):
            modes.append({"mode": "override"})
        for mode in modes:
            await _unopened(agent, {**mode, "content": TOLD["content"]}, f"with the mode {mode.get('mode')!r}")


@check("V2-SYS-3")
async def other_blocks_in_a_system_prompt_are_refused(trial: Trial) -> None:
    async with in_session(trial) as agent:
        agent.needs("systemPrompt")
        for block in (
            {"type": "resource_link", "name": "x", "uri": "file:///x"}, {"type": "kit-no-such-block", "text": "x"},
        ):  # fmt: skip
            told = {"mode": "append", "content": [*TOLD["content"], block]}
            await _unopened(agent, told, f"with `{block['type']}`")


@check("V2-SYS-4")
async def nothing_is_left_by_a_system_prompt_that_was_refused(trial: Trial) -> None:
    async with speaking(trial, [Answer(text="one"), Answer(text="two")]) as agent:
        agent.needs("systemPrompt")
        await agent.new_session(systemPrompt=TOLD)
        await agent.stops("end_turn")
        listed = await _ids(agent)
        await _unopened(agent, {**TOLD, "mode": "kit-no-such-mode"}, "with an unknown mode")
        await agent.quiet()
        notes = [line.message for line in agent.transcript if "session/update" in str(line.message)]
        strange = [each for each in notes if each["params"]["sessionId"] != agent.session]
        agent.expect(not strange, f"an update came for no session: {strange}")
        agent.expect(await _ids(agent) == listed, "a session is listed that was refused")
        await agent.stops("end_turn", times=2)
        agent.expect(PROMPTED in agent.asked_of_model(), "the open session has lost its own")


async def _ids(agent: AgentV2) -> set[str]:
    return {str(each.get("sessionId")) for each in (await agent.ask("session/list", {})).get("sessions") or ()}


# --- sub-agents ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _delegated(trial: Trial, capabilities: dict[str, Any]) -> AsyncIterator[AgentV2]:
    """Behind work in which a sub-agent says CHILD, for a client with these. Raises NotHere if there are none."""
    call = trial.tool("delegate", text="Say it.")
    script = [Answer(tool_calls=(call,)), Answer(text=CHILD), Answer(text="All done.")]
    async with speaking(trial, script, initialize=False) as agent:
        if (await agent.initialize(capabilities=capabilities)).get("protocolVersion") != VERSION:
            raise NotHere("it does not speak v2")
        await agent.new_session()
        await agent.stops("end_turn")
        await agent.quiet()
        yield agent


def _children(agent: AgentV2) -> list[str]:
    """The ids of the sub-agents that were announced. Raises NotHere if none was."""
    if not (found := [str(each.get("sessionId")) for each in agent.updates("subagent_update")]):
        raise NotHere("no `subagent_update` came")
    return list(dict.fromkeys(found))


def _others(agent: AgentV2) -> list[tuple[int, str]]:
    """Places of updates that are not of the kit's session, and of which they are."""
    lines = [(at, line.message) for at, line in enumerate(agent.transcript) if line.direction == "from_agent"]
    lines = [(at, message) for at, message in lines if isinstance(message, dict) and update_of(message)]
    of = [(at, str(message["params"]["sessionId"])) for at, message in lines]
    return [(at, session) for at, session in of if session != agent.session]


@check("V2-SUB-1")
async def a_sub_agent_is_announced_before_anything_of_it(trial: Trial) -> None:
    async with _delegated(trial, SUBAGENTS) as agent:
        known: set[str] = set()
        for child in _children(agent):
            known.add(child)
            told = agent.at(lambda each, child=child: update_of(each).get("sessionId") == child)  # type: ignore[misc]
            early = [at for at, of in _others(agent) if of == child and at < told]
            agent.expect(not early, f"updates of {child} came before it was announced")
        strange = {of for _, of in _others(agent)} - known
        agent.expect(not strange, f"updates came of {strange}, which nobody has announced")


@check("V2-SUB-2")
async def what_a_sub_agent_says_is_in_its_own_session(trial: Trial) -> None:
    async with _delegated(trial, SUBAGENTS) as agent:
        said = [agent.text(session=child) for child in _children(agent)]
        agent.expect(any(CHILD in each for each in said), f"the sub-agent said {CHILD!r}, its session has {said}")
        agent.expect(CHILD not in agent.text(), "what the sub-agent said came as a message of the session above, too")


@check("V2-SUB-3")
async def who_does_not_show_sub_agents_is_not_told_of_them(trial: Trial) -> None:
    async with _delegated(trial, {}) as agent:
        told = agent.updates("subagent_update")
        agent.expect(not told and not _others(agent), f"without the capability came {told or _others(agent)}")


@check("V2-SUB-4")
async def a_sub_agent_whose_work_is_over_is_idle(trial: Trial) -> None:
    async with _delegated(trial, SUBAGENTS) as agent:
        for child in _children(agent):
            states = [each.get("state") for each in agent.updates("state_update", session=child)]
            agent.expect(states and states[-1] == "idle", f"the states of {child} are {states}")


@check("V2-ST-9")
async def background_is_in_all_states_or_in_none(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="one")]) as agent:
        await agent.stops("end_turn")
        told = ["background" in each for each in agent.updates("state_update")]
        agent.expect(all(told) or not any(told), f"of {len(told)} states {sum(told)} say what runs in the background")
