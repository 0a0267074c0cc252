"""Prompts, states and messages: V2-PR, V2-ST, V2-MSG, V2-CMD."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from acp_agent.testing.fake_answers import Answer, Failure
from acp_conformance.areas.turn_checks import DOT
from acp_conformance.trial import DONE, INVALID_PARAMS, NotHere, Trial, check
from acp_conformance.v2.v2_client import at_work, in_session, speaking

HARMLESS = ("help", "status", "context", "about")
"""Commands that are known to answer without a model."""


@check("V2-PR-1")
async def a_prompt_is_answered_before_the_work_ends(trial: Trial) -> None:
    async with in_session(trial, [Answer(text="never", hang_before=True)]) as agent:
        await agent.prompt()
        agent.expect("idle" not in agent.states(), "the work ended although the model says nothing")
        agent.cancel()
        await agent.ended()


@check("V2-PR-2")
async def the_agent_names_the_message(trial: Trial) -> None:
    async with in_session(trial, [DONE, DONE]) as agent:
        ids = []
        for number in (1, 2):
            blocks = [{"type": "text", "text": "same"}]
            answered = await agent.ask("session/prompt", {"sessionId": agent.session, "prompt": blocks})
            ids.append(answered.get("messageId"))
            await agent.ended(number)
        agent.expect(all(isinstance(id_, str) and id_ for id_ in ids), f"`messageId` is {ids}")
        agent.expect(ids[0] != ids[1], f"two messages have the id {ids[0]!r}")


@check("V2-PR-3")
async def the_message_comes_back_with_its_id(trial: Trial) -> None:
    async with in_session(trial, [DONE]) as agent:
        id_ = await agent.prompt("the kit says hello")
        await agent.ended()
        echoes = agent.said()
        agent.expect(echoes, "the message did not come back")
        ids = {each.get("messageId") for each in echoes}
        agent.expect(ids == {id_}, f"it came back as {sorted(map(str, ids))}, and the answer says {id_!r}")
        said = agent.text("user_message_chunk") + str(agent.updates("user_message"))
        agent.expect("the kit says hello" in said, f"it came back as {echoes}")


@check("V2-PR-4")
async def what_is_refused_is_not_said(trial: Trial) -> None:
    async with in_session(trial, [DONE]) as agent:
        wrong: tuple[Any, ...] = ([{"type": "kit", "text": "hello"}], "hello", None)
        for blocks in wrong:
            params = {"sessionId": agent.session, "prompt": blocks}
            await agent.refused("session/prompt", params, INVALID_PARAMS, why=f"of {blocks!r}")
        await agent.quiet()
        said = agent.said()
        agent.expect(not said, f"a prompt that was refused is a message: {said[:1]}")


@check("V2-PR-5")
async def a_prompt_while_work_runs_is_answered(trial: Trial) -> None:
    async with at_work(trial) as agent:
        blocks = [{"type": "text", "text": "and more"}]
        begun = agent.begin("session/prompt", {"sessionId": agent.session, "prompt": blocks})
        await agent.quiet()
        agent.model.release()
        await agent.until(begun.over.is_set, "an answer to a prompt while work ran")
        agent.expect(begun.failure is None or begun.code, f"{begun.failure}")


@check("V2-PR-6")
async def an_empty_prompt_is_answered(trial: Trial) -> None:
    async with in_session(trial, [DONE]) as agent:
        params = {"sessionId": agent.session, "prompt": []}
        if await agent.answered(agent.ask("session/prompt", params), INVALID_PARAMS) is not None:
            await agent.ended()


@check("V2-PR-7")
async def blocks_reach_the_model(trial: Trial) -> None:
    async with in_session(trial, [DONE]) as agent:
        blocks: list[dict[str, Any]] = [{"type": "resource_link", "name": "pear.txt", "uri": "file:///kit/pear.txt"}]
        if agent.has("prompt", "image"):
            blocks.append({"type": "image", "mimeType": "image/png", "data": DOT})
        if agent.has("prompt", "embeddedContext"):
            resource = {"uri": "file:///kit/plum.txt", "text": "The plum is blue.", "mimeType": "text/plain"}
            blocks.append({"type": "resource", "resource": resource})
        await agent.stops("end_turn", "look at", *blocks)
        sent = agent.asked_of_model()
        words = {"text": "look at", "resource_link": "pear.txt", "image": "image", "resource": "The plum is blue."}
        for each in ({"type": "text"}, *blocks):
            agent.expect(words[each["type"]] in sent, f"a block of type `{each['type']}` did not reach the model")


@check("V2-PR-8")
async def commands_go_the_same_way(trial: Trial) -> None:
    async with speaking(trial, [DONE, DONE]) as agent:
        made = await agent.new_session()
        await agent.stops("end_turn")  # By then it has said what commands there are.
        for each in agent.updates("available_commands_update"):
            made["availableCommands"] = each["availableCommands"]
        names = [each["name"] for each in made.get("availableCommands") or [] if each["name"] in HARMLESS]
        if not names:
            raise NotHere(f"it has no command of {', '.join(HARMLESS)}")
        id_ = await agent.prompt(f"/{names[0]}")
        await agent.ended(2)
        said = agent.said()
        agent.expect(id_ in [each.get("messageId") for each in said], "a command is no message")
        states = agent.states()
        agent.expect(states[-2:] == ["running", "idle"], f"the states of a command were {states}")


@check("V2-CMD-1")
async def commands_have_types_and_names(trial: Trial) -> None:
    async with speaking(trial, [DONE]) as agent:
        made = await agent.new_session()
        await agent.stops("end_turn")
        lists = [made.get("availableCommands") or []]
        lists += [each["availableCommands"] for each in agent.updates("available_commands_update")]
        if not any(lists):
            raise NotHere("it has no commands")
        for commands in lists:
            names = [str(each.get("name")) for each in commands]
            wrong = [name for name in names if name.startswith("/") or name.split() != [name]]
            agent.expect(not wrong and len(set(names)) == len(names), f"the names of the commands are {names}")


# --- states --------------------------------------------------------------------------------------------------------


@check("V2-ST-1")
async def work_begins_as_running(trial: Trial) -> None:
    async with at_work(trial) as agent:
        agent.expect(agent.states()[-1:] == ["running"], f"while it works the states are {agent.states()}")
        agent.model.release()
        await agent.ended()


@check("V2-ST-2")
async def work_ends_as_idle_behind_all_else(trial: Trial) -> None:
    words = tuple(f"{number} " for number in range(200))
    async with in_session(trial, [Answer(text=words)]) as agent:
        await agent.stops("end_turn")
        end = agent.end_at()
        await agent.quiet()
        agent.expect("".join(words).strip() in agent.text(), "not all that the model said came")
        late = agent.work(after=end)
        agent.expect(not late, f"came behind the end of the work: {late[:1]}")


@check("V2-ST-3")
async def why_work_ended_is_said(trial: Trial) -> None:
    for script, wanted in (
        ([Answer(text="Hel", finish="length")] * 4, "max_tokens"),
        ([Answer(text="", finish="content_filter")] * 4, "refusal"),
    ):
        async with in_session(trial, script) as agent:
            await agent.prompt()
            end = await agent.ended()
            if len(agent.asked) > 1:
                raise NotHere("it asks the model again, as if the server had failed")
            reason = end.get("stopReason")
            agent.expect(reason in (wanted, "error", None), f"the work ended with {end}, not `{wanted}`")
            if reason == "error":
                agent.expect(isinstance((end.get("error") or {}).get("code"), int), f"without an error: {end}")


@check("V2-ST-4")
async def a_failure_is_an_error_not_a_cancel(trial: Trial) -> None:
    failure = Failure(401, {"error": {"message": "kit: no such key"}})
    async with in_session(trial, [failure] * 4) as agent:
        end = await agent.stops("error")
        error = end.get("error") or {}
        agent.expect(
            "stopReason" in end and isinstance(error.get("code"), int) and error.get("message"), f"the error is {error}"
        )
        agent.say([DONE])
        await agent.stops("end_turn", "again", times=2)


# --- messages ------------------------------------------------------------------------------------------------------


@check("V2-MSG-1")
async def text_is_streamed_in_chunks_of_messages(trial: Trial) -> None:
    async with at_work(trial) as agent:
        agent.model.release()
        await agent.ended()
        agent.expect("One two" in agent.text(), f"the reply came as {agent.text()!r}")
        ids = [each.get("messageId") for each in agent.updates("agent_message_chunk")]
        agent.expect(all(ids), f"the ids of the chunks are {ids}")


@check("V2-MSG-3")
async def each_message_has_an_id_of_its_own(trial: Trial) -> None:
    """Two replies are two messages; one of them may be several."""
    async with in_session(trial, [Answer(text=("A pear", ", yes.")), Answer(text="A plum.")]) as agent:
        of: dict[str, set[str]] = defaultdict(set)
        for number, words in ((1, "name a fruit"), (2, "another")):
            before = agent.seen
            await agent.stops("end_turn", words, times=number)
            for each in agent.updates(after=before):
                if str(each.get("sessionUpdate")).startswith(("agent_message", "user_message")):
                    of[f"{each['sessionUpdate'].split('_')[0]} {number}"].add(str(each.get("messageId")))
        for who in ("user", "agent"):
            both = of[f"{who} 1"] & of[f"{who} 2"]
            agent.expect(not both, f"messages of two turns have the id {sorted(both)[:1]}")


# --- sessions at once ----------------------------------------------------------------------------------------------


@check("V2-LIFE-3")
async def sessions_work_at_once(trial: Trial) -> None:
    async with speaking(trial, [Answer(text="one", hang_before=True), Answer(text="two", hang_before=True)]) as agent:
        first, second = (await agent.new_session())["sessionId"], (await agent.new_session())["sessionId"]
        await agent.prompt(session=first)
        await agent.prompt(session=second)
        await agent.until(lambda: len(agent.asked) == 2, "the second session's request to the model")
        agent.cancel(first)
        gone = await agent.ended(session=first)
        agent.expect(gone.get("stopReason") == "cancelled", f"the cancelled work ended with {gone}")
        await agent.quiet()
        states = [each["state"] for each in agent.updates("state_update", session=second)]
        agent.expect("idle" not in states, "the work of the other session ended")
        agent.model.release()
        stays = await agent.ended(session=second)
        agent.expect(stays.get("stopReason") in ("end_turn", None), f"the work of the other session ended with {stays}")
