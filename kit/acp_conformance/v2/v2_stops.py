"""Cancelling, and the end of the process: V2-CAN, V2-LIFE."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from acp_agent.testing.fake_answers import Answer
from acp_conformance.areas.life_checks import BEGINS, exited, none_left
from acp_conformance.trial import DONE, INVALID_PARAMS, METHOD_NOT_FOUND, SECONDS, NotHere, Trial, check
from acp_conformance.v2.v2_client import AgentV2, allows, at_work, in_session, speaking
from acp_conformance.v2.v2_questions import MARKER


async def _begins(agent: AgentV2) -> None:
    """A command that runs for long."""
    await agent.new_session()
    await agent.prompt()
    file = agent.trial.project / "kit-begun"
    await agent.until(file.exists, "kit-begun, which a command makes,", seconds=2 * SECONDS)


async def _cancelled(agent: AgentV2, what: str) -> None:
    agent.cancel()
    end = await agent.ended()
    agent.expect(end.get("stopReason") == "cancelled", f"{what} the cancelled work ended with {end}")


@check("V2-CAN-1")
async def prompts_that_wait_are_cancelled_too(trial: Trial) -> None:
    async with at_work(trial) as agent:
        begun = await agent.held("kit never")
        await _cancelled(agent, "with a prompt that waited")
        await agent.withdrawn(begun, "a prompt that waited")
        said = agent.said()
        agent.expect("kit never" not in str(said), "it is a message all the same")


@check("V2-CAN-2")
async def cancelled_comes_behind_all_else_and_only_for_work(trial: Trial) -> None:
    async with speaking(trial, [trial.runs(BEGINS), DONE]) as agent:
        await _begins(agent)
        await _cancelled(agent, "while a command ran")
        end = agent.end_at()
        agent.cancel()
        await agent.quiet()
        late = agent.work(after=end)
        agent.expect(not late, f"came behind the end of the cancelled work: {late[:1]}")
        agent.say([DONE])
        await agent.stops("end_turn", "and now?", times=2)


@check("V2-CAN-3")
async def open_questions_are_withdrawn(trial: Trial) -> None:
    late = anyio.Event()

    async def answers(params: dict[str, Any]) -> Any:
        await late.wait()
        return await allows(params)

    async with in_session(trial, [trial.runs(f"touch {MARKER}"), DONE], answers=answers) as agent:
        await agent.prompt()
        await agent.question()
        await _cancelled(agent, "while a question was open")
        asked = agent.transcript[agent.at(lambda each: each.get("method") == "session/request_permission")].message
        await agent.until(
            lambda: {"requestId": asked["id"]} in agent.requests("$/cancel_request"),
            "`$/cancel_request` for an open question",
        )
        late.set()
        await agent.quiet()
        agent.expect(not (trial.project / MARKER).exists(), "an answer that came too late was heard")


@check("V2-CAN-4")
async def every_phase_is_cancelled(trial: Trial) -> None:
    """Before the first byte, while text comes."""
    phases: tuple[tuple[str, Answer, Callable[[AgentV2], Any]], ...] = (
        ("before the first byte", Answer(text="never", hang_before=True), lambda agent: agent.asked),
        ("while text came", Answer(text=("one ", "two "), hang_after=1), lambda agent: "one" in agent.text()),
    )
    for what, answer, begun in phases:
        async with in_session(trial, [answer]) as agent:
            await agent.prompt()
            await agent.until(partial(begun, agent), f"the work's beginning ({what})")
            await _cancelled(agent, what)


@check("V2-CAN-5")
async def calls_of_cancelled_work_are_cancelled(trial: Trial) -> None:
    async with speaking(trial, [trial.runs(BEGINS), DONE]) as agent:
        await _begins(agent)
        await agent.quiet()
        await _cancelled(agent, "while a command ran")
        if not agent.calls():
            raise NotHere("it tells no call before the command has run for a while")
        statuses = [call["statuses"][-1:] for call in agent.calls().values()]
        agent.expect(statuses == [["cancelled"]], f"the call of the cancelled work ended as {statuses}")
        await none_left(agent, "of the cancelled work goes on")


@check("V2-CAN-7")
async def what_cannot_be_cancelled_is_refused(trial: Trial) -> None:
    """By an agent that offers no such cancel, as an unknown method, too."""
    async with in_session(trial) as agent:
        for method, name in (("tool_call/cancel", "toolCallId"), ("terminal/cancel", "terminalId")):
            params = {"sessionId": agent.session, name: "kit-none"}
            await agent.refused(method, params, INVALID_PARAMS, METHOD_NOT_FOUND, why="of nothing")


@check("V2-CAN-8")
async def cancels_of_unknown_requests_hit_nothing(trial: Trial) -> None:
    async with at_work(trial) as agent:
        for id_ in (99_999, "nobody's", 0, None):
            agent.connection.notify("$/cancel_request", {"requestId": id_})
        await agent.quiet()
        agent.model.release()
        end = await agent.ended()
        agent.expect(end.get("stopReason") in ("end_turn", None), f"the work ended with {end}")


@check("V2-LIFE-1")
async def the_end_of_stdin_ends_it(trial: Trial) -> None:
    async with at_work(trial) as agent:
        agent.process.close_stdin()
        status = await exited(agent, agent.process)
        agent.expect(status == 0, f"at the end of stdin it ended with status {status}")


@check("V2-LIFE-2")
async def no_child_outlives_it(trial: Trial) -> None:
    if sys.platform != "linux":
        raise NotHere("processes are looked for on Linux only")
    async with speaking(trial, [trial.runs(BEGINS), DONE]) as agent:
        await _begins(agent)
        agent.process.close_stdin()
        await exited(agent, agent.process)
        await none_left(agent, "outlived the agent")
