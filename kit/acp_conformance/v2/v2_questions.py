"""Permission and forms: V2-PERM, V2-ELIC, and the state meanwhile, V2-ST-5."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import DONE, NotHere, Trial, check
from acp_conformance.v2.v2_client import AgentV2, Answers, allows, in_session, rejects, silent

FORM = "elicitation/create"
MARKER = "kit-marker"


@asynccontextmanager
async def _asked(trial: Trial, answers: Answers = allows) -> AsyncIterator[tuple[AgentV2, dict[str, Any]]]:
    """Behind work for which it asked. Raises NotHere if it does not ask."""
    async with in_session(trial, trial.keeps_asking(f"touch {MARKER}"), answers=answers) as agent:
        await agent.prompt()
        question = await agent.question()
        await agent.ended()
        yield agent, question


@check("V2-PERM-1")
async def a_question_has_a_title_and_options(trial: Trial) -> None:
    async with _asked(trial) as (agent, question):
        agent.expect(question.get("title"), f"`title` is {question.get('title')!r}")
        ids = [each.get("optionId") for each in question.get("options") or []]
        agent.expect(ids and len(set(ids)) == len(ids), f"the ids of the options are {ids}")
        agent.expect((trial.project / MARKER).exists(), "what was allowed was not done")


@check("V2-PERM-2")
async def a_question_is_about_a_call_that_is_told(trial: Trial) -> None:
    async with _asked(trial) as (agent, question):
        subject = question.get("subject") or {}
        id_ = (subject.get("toolCall") or {}).get("toolCallId") or subject.get("toolCallId")
        agent.expect(id_ is None or id_ in agent.calls(), f"the question is about {id_!r}, which is no call's id")


@check("V2-PERM-3")
async def the_folder_of_a_command_is_absolute(trial: Trial) -> None:
    async with _asked(trial) as (agent, question):
        subject = question.get("subject") or {}
        if subject.get("type") != "command":
            raise NotHere("it asks about calls")
        agent.expect(Path(str(subject.get("cwd"))).is_absolute(), f"`cwd` is {subject.get('cwd')!r}")
        agent.expect(MARKER in str(subject.get("command")), f"`command` is {subject.get('command')!r}")


@check("V2-PERM-5")
async def only_a_yes_is_a_yes(trial: Trial) -> None:
    odd: tuple[Any, ...] = (
        {"outcome": {"outcome": "selected", "optionId": "kit-none"}},
        {"outcome": {"outcome": "kit"}},
        {"outcome": {"outcome": "cancelled"}},
        None,
    )
    for answer in (*odd, rejects):

        async def answers(params: dict[str, Any], answer: Any = answer) -> Any:
            return await answer(params) if callable(answer) else answer

        async with _asked(trial, answers) as (agent, _):
            shown = "a rejection" if answer is rejects else answer
            agent.expect(not (trial.project / MARKER).exists(), f"a command ran after {shown}")


@check("V2-PERM-6")
async def work_that_waits_requires_action(trial: Trial) -> None:
    async with _asked(trial) as (agent, _):
        agent.expect("requires_action" in agent.states(), f"the states with a question were {agent.states()}")


@check("V2-ST-5")
async def work_goes_on_as_running(trial: Trial) -> None:
    async with _asked(trial) as (agent, _):
        states = agent.states()
        if "requires_action" in states:
            behind = states[states.index("requires_action") + 1 :]
            agent.expect(behind[:1] in (["running"], ["idle"]), f"the states with a question were {states}")
            answered = agent.at(lambda each: "outcome" in (each.get("result") or {}), direction="to_agent")
            work = agent.states(after=answered)
            agent.expect(work[:1] == ["running"], f"behind the answer the states were {work}")


@asynccontextmanager
async def _form(trial: Trial, answers: Answers) -> AsyncIterator[AgentV2]:
    """Once it has asked by a form. Raises NotHere if it does not."""
    asks = Answer(tool_calls=(trial.tool("question", text="kit: which one?"),))
    async with in_session(trial, [asks, DONE], forms=answers) as agent:
        await agent.prompt()
        await agent.until(lambda: agent.requests(FORM) or agent.ends(), "a form")
        if not agent.requests(FORM):
            raise NotHere("it asks by no form")
        yield agent


@check("V2-ELIC-1")
async def only_an_accepted_form_has_an_answer(trial: Trial) -> None:
    """What else is wrong with the request is found in its line."""

    async def answers(params: dict[str, Any]) -> Any:
        fields = (params.get("requestedSchema") or {}).get("properties") or {}
        return {"action": "kit", "content": dict.fromkeys(fields, MARKER)}

    async with _form(trial, answers) as agent:
        await agent.ended()
        told = str([each.body for each in agent.model.requests])
        agent.expect(MARKER not in told, "an answer with the action `kit` was taken for one that is accepted")


@check("V2-ELIC-2")
async def a_form_requires_action_and_goes_with_the_work(trial: Trial) -> None:
    async with _form(trial, silent) as agent:
        agent.expect("requires_action" in agent.states(), f"the states with a form were {agent.states()}")
        agent.cancel()
        await agent.ended()
        asked = agent.transcript[agent.at(lambda each: each.get("method") == FORM)].message["id"]
        gone = [each.get("requestId") for each in agent.requests("$/cancel_request")]
        agent.expect(asked in gone, f"work was cancelled, and its form, request {asked!r}, was not: {gone}")
