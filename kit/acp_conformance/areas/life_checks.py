"""Cancelling, and the end of the process: CAN, END."""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from acp_agent.client.spawn import AgentProcess
from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import DONE, SECONDS, Agent, NotHere, Started, Trial, Wrong, cancelled_after, check

TURN = re.compile("chunk|tool_call|plan")
"""In the kind of an update: it is part of a turn."""
BEGINS = "echo begun >kit-begun; sleep 300"


async def _exists(agent: Agent, name: str) -> None:
    file = agent.trial.project / name
    await agent.until(file.exists, f"{name}, which a command makes,", seconds=2 * SECONDS)


@check("CAN-1", "ACP-CANCEL-001")
async def every_phase_is_cancelled(trial: Trial) -> None:
    """Before the first byte, while text comes, while a tool runs, while a question waits."""
    phases: tuple[tuple[str, Any, Any], ...] = (
        ("before the first byte", [Answer(text="never", hang_before=True)], lambda agent: agent.asked),
        ("while text came", [Answer(text=("one ", "two "), hang_after=1)], lambda agent: "one" in agent.text()),
    )
    for what, script, begun in phases:
        async with trial.agent(script) as agent:
            await agent.new_session()
            async with agent.turn() as turn:
                await agent.until(partial(begun, agent), f"the turn's beginning ({what})")
                agent.editor.cancel()
            agent.expect(turn.reason == "cancelled", f"{what} the cancelled turn ended with {turn.answer}")


@check("CAN-3")
async def running_tools_are_ended(trial: Trial) -> None:
    async with trial.agent([trial.runs(BEGINS), DONE]) as agent:
        await agent.new_session()
        async with agent.turn() as turn:
            await _exists(agent, "kit-begun")
            agent.editor.cancel()
        agent.expect(turn.reason == "cancelled", f"the cancelled turn ended with {turn.answer}")
        await none_left(agent, "of the cancelled turn goes on")


@check("CAN-4")
async def a_question_does_not_hold_up_the_answer(trial: Trial) -> None:
    """The page has clients answer open questions with `cancelled`, so an agent may wait for that."""
    gone = anyio.Event()
    script = [trial.runs("touch kit-other", asks=True), DONE]
    async with trial.agent(script, otherwise=cancelled_after(gone)) as agent:
        await agent.new_session()
        await agent.asks_first()
        async with agent.turn() as turn:
            await agent.until(lambda: turn.over.is_set() or agent.requests("session/request_permission"), "a question")
            if turn.over.is_set():
                raise NotHere("it runs commands without asking")
            agent.editor.cancel()
            gone.set()
        agent.expect(turn.reason == "cancelled", f"the cancelled turn ended with {turn.answer}")


@check("CAN-5")
async def the_history_stays_valid(trial: Trial) -> None:
    """Calls may stay open: the page (prompt-turn, Cancellation) has the client mark them as cancelled."""
    async with trial.agent([trial.runs(BEGINS), Answer(text="Hello.")]) as agent:
        await agent.new_session()
        async with agent.turn():
            await _exists(agent, "kit-begun")
            agent.editor.cancel()
        after = agent.seen
        await agent.quiet()
        late = [
            each
            for each in agent.updates(after=after)
            if "chunk" in each["sessionUpdate"] or "tool" in each["sessionUpdate"]
        ]
        agent.expect(not late, f"came behind the answer of the cancelled turn: {late[:1]}")
        agent.say([Answer(text="Hello.")])
        await agent.stops("end_turn", "and now?")


@check("CAN-6")
async def other_sessions_are_not_disturbed(trial: Trial) -> None:
    async with trial.agent([Answer(text="one", hang_before=True), Answer(text="two", hang_before=True)]) as agent:
        first, second = (await agent.new_session())["sessionId"], (await agent.new_session())["sessionId"]
        async with agent.turn(session=second) as stays:
            await agent.until(lambda: agent.asked, "a request to the model")
            async with agent.turn(session=first) as goes:
                await agent.until(lambda: len(agent.asked) == 2, "the other session's request to the model")
                agent.editor.cancel(session_id=first)
            agent.expect(goes.reason == "cancelled", f"the cancelled turn ended with {goes.answer}")
            await agent.quiet()
            agent.expect(not stays.over.is_set(), f"the other session's turn ended with {stays.answer}")
            agent.model.release()
        agent.expect(stays.reason == "end_turn", f"the other session's turn ended with {stays.answer}")


@check("CAN-7")
async def a_cancel_without_a_turn_hits_nothing(trial: Trial) -> None:
    async with trial.agent([Answer(text="Hello.")] * 2) as agent:
        await agent.new_session()
        for _ in range(2):
            agent.editor.cancel()
        await agent.stops("end_turn")


@check("CAN-8")
async def wrong_cancels_are_ignored(trial: Trial) -> None:
    async with trial.agent([Answer(text="Hello.")]) as agent:
        await agent.new_session()
        before = agent.seen
        wrong: tuple[Any, ...] = ({"sessionId": "nobody's"}, {}, {"sessionId": 7}, [])
        for params in wrong:
            agent.editor.notify("session/cancel", params)
        await agent.quiet()
        answers = [
            each.message
            for each in agent.editor.transcript[before:]
            if each.direction == "from_agent" and isinstance(each.message, dict) and "method" not in each.message
        ]
        agent.expect(not answers, f"a wrong `session/cancel` was answered: {answers[:1]}")
        await agent.stops("end_turn")


@check("CAN-10")
async def cancels_of_unknown_requests_are_ignored(trial: Trial) -> None:
    async with trial.agent([Answer(text="Hello.")]) as agent:
        await agent.new_session()
        for id_ in (99_999, "nobody's", 0, None):
            agent.editor.notify("$/cancel_request", {"requestId": id_})
        await agent.stops("end_turn")


def _left(trial: Trial) -> list[str]:
    """Processes that work in the trial's folder, by their command lines; on Linux only."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if each.joinpath("cwd").resolve().is_relative_to(trial.project.parent.resolve()):
                line = each.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if "sleep 300" in line:
                    found.append(line.strip())
        except OSError:
            continue
    return found


async def none_left(agent: Started, what: str) -> None:
    with suppress(Wrong):
        await agent.until(lambda: not _left(agent.trial), "the command's end")
    agent.expect(not _left(agent.trial), f"a command {what}: {_left(agent.trial)}")


async def exited(agent: Started, process: AgentProcess) -> int:
    """Its status."""
    with anyio.move_on_after(agent.patience()):
        return await process.wait()
    raise Wrong(f"the process did not end within {agent.patience():g} s")


def _process(agent: Agent) -> AgentProcess:
    assert agent.editor.process is not None
    return agent.editor.process


@check("END-1")
async def the_end_of_stdin_ends_it(trial: Trial) -> None:
    async with trial.agent([Answer(text="never", hang_before=True)]) as agent:
        await agent.new_session()
        process = _process(agent)
        process.close_stdin()
        status = await exited(agent, process)
        agent.expect(status == 0, f"at the end of stdin it ended with status {status}")


@check("END-2")
async def no_child_outlives_it(trial: Trial) -> None:
    if sys.platform != "linux":
        raise NotHere("processes are looked for on Linux only")
    async with trial.agent([trial.runs(BEGINS), DONE], terminal=False) as agent:
        await agent.new_session()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_goes_on, agent)
            await _exists(agent, "kit-begun")
            process = _process(agent)
            process.close_stdin()
            await exited(agent, process)
            tasks.cancel_scope.cancel()
        await none_left(agent, "outlived the agent")


async def _goes_on(agent: Agent) -> None:
    with suppress(Wrong):
        await agent.prompt(seconds=60)


@check("END-3")
async def sigterm_ends_it(trial: Trial) -> None:
    async with trial.agent() as agent:
        await agent.new_session()
        process = _process(agent)
        os.kill(process.pid, signal.SIGTERM)
        await exited(agent, process)
