"""Plans as documents and as checklists: PLAN. What the lines alone say is found in all checks (`kit_run.WIRE`)."""

from __future__ import annotations

from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import DONE, REST, Agent, NotHere, Trial, Wrong, check

FIRST, SECOND = "kit one", "kit two"
DOCUMENTS = ("plan_update", "plan_removed")
PROPOSAL = "# kit plan\n\n1. kit three"


def _steps(trial: Trial) -> list[Answer]:
    calls = [trial.tool("plan", first=FIRST, second=SECOND, status=each) for each in ("in_progress", "completed")]
    return [*(Answer(tool_calls=(call,)) for call in calls), DONE]


def _cleared(trial: Trial, *, again: bool = False) -> list[Answer]:
    """A plan, which is taken away, and made `again`."""
    made = trial.tool("plan", first=FIRST, second=SECOND, status="in_progress")
    calls = [made, trial.tool("no_plan"), *([made] if again else [])]
    return [*(Answer(tool_calls=(call,)) for call in calls), DONE]


def _proposed(trial: Trial) -> list[Answer]:
    """Steps, and a document that the user approves."""
    steps = trial.tool("plan", first=FIRST, second=SECOND, status="in_progress")
    return [Answer(tool_calls=(steps,)), Answer(tool_calls=(trial.tool("proposal", text=PROPOSAL),)), DONE]


async def _planned(agent: Agent, *, proposes: bool = False) -> list[dict[str, Any]]:
    """The updates of a turn that makes a plan, those of plans. Raises NotHere if there are none."""
    await agent.new_session()
    if proposes and (mode := agent.trial.profile.tools["proposal"].mode):
        await agent.ask("session/set_mode", {"sessionId": agent.session, "modeId": mode})
    await agent.stops("end_turn")
    if not (told := _of_plans(agent)):
        raise NotHere("no plan came")
    return told


def _of_plans(agent: Agent, after: int = 0) -> list[dict[str, Any]]:
    return [each for each in agent.updates(after=after) if each["sessionUpdate"] in ("plan", *DOCUMENTS)]


def _standing(told: list[dict[str, Any]]) -> dict[str, Any]:
    """The plans that are shown in the end, by id."""
    plans: dict[str, Any] = {}
    for each in told:
        if each["sessionUpdate"] == "plan_removed":
            plans.pop(each["planId"], None)
        else:
            plan = each.get("plan") or {"planId": "", "type": "items", "entries": each.get("entries")}
            plans[plan["planId"]] = {name: plan.get(name) for name in ("type", "entries", "content")}
    return plans


@check("PLAN-1")
async def documents_go_only_to_who_takes_them(trial: Trial) -> None:
    async with trial.agent(_steps(trial)) as agent:
        kinds = {each["sessionUpdate"] for each in await _planned(agent)}
        agent.expect(not kinds & set(DOCUMENTS), f"{sorted(kinds)} came to a client without `plan`")


@check("PLAN-2")
async def others_get_the_checklist(trial: Trial) -> None:
    async with trial.agent(_steps(trial), plan_documents=True) as agent:
        await _planned(agent)
    async with trial.agent(_steps(trial)) as agent:
        await agent.new_session()
        await agent.stops("end_turn")
        lists = [str(each.get("entries")) for each in agent.updates("plan")]
        agent.expect(lists, "no `plan` came to a client without the capability, which would be shown it with that")
        agent.expect(all(FIRST in each and SECOND in each for each in lists), f"a list has not all steps: {lists}")


@check("PLAN-3")
async def each_document_is_complete(trial: Trial) -> None:
    async with trial.agent(_steps(trial), plan_documents=True) as agent:
        plans = [each["plan"] for each in await _planned(agent) if each["sessionUpdate"] == "plan_update"]
        for plan in plans:
            told = str(plan.get("entries") if plan["type"] == "items" else plan.get("content"))
            agent.expect(FIRST in told and SECOND in told, f"a plan of {FIRST!r} and {SECOND!r} has {told}")


@check("PLAN-4")
async def an_update_takes_the_place_of_the_one_before(trial: Trial) -> None:
    async with trial.agent(_steps(trial), plan_documents=True) as agent:
        for each in await _planned(agent):
            steps = [step.get("content") for step in each.get("plan", {}).get("entries") or ()]
            agent.expect(steps.count(FIRST) <= 1, f"an update adds to the plan that it should replace: {steps}")


@check("PLAN-5")
async def plans_live_side_by_side(trial: Trial) -> None:
    """Who shows one plan at a time may: it is blamed only if of several one is lost by a load."""
    before, after = await _loaded(trial, _proposed(trial), proposes=True)
    if len(before) < 2:
        raise NotHere("it shows one plan at a time")
    if len(after) < len(before):
        raise Wrong(f"{[*before]} stood side by side, and after a load {[*after]}")


@check("PLAN-8")
async def a_plan_that_was_removed_is_gone_and_may_come_again(trial: Trial) -> None:
    async with trial.agent(_cleared(trial, again=True), plan_documents=True) as agent:
        told = await _planned(agent)
        removed = [each["planId"] for each in told if each["sessionUpdate"] == "plan_removed"]
        if not removed:
            raise NotHere("it removes no plan")
        known = {each["plan"]["planId"] for each in told if "plan" in each}
        agent.expect(known >= {*removed}, f"{removed} were removed, and no plan had these ids, but {sorted(known)}")
        agent.expect(FIRST in str(_standing(told)), "a plan that was made again is not shown")


@check("PLAN-11")
async def a_checklist_that_was_removed_is_an_empty_one(trial: Trial) -> None:
    async with trial.agent(_cleared(trial)) as agent:
        lists = [each.get("entries") for each in await _planned(agent)]
        agent.expect(lists[-1] == [], f"the steps were taken away, and the list is still {lists[-1]}")


@check("PLAN-12")
async def a_document_is_shown_to_who_takes_none(trial: Trial) -> None:
    """In a question, a call or in text: how is the agent's."""
    async with trial.agent(_proposed(trial)) as agent:
        await _planned(agent, proposes=True)
        calls = [call.get("content") for call in agent.calls().values()]
        seen = str([agent.text(), calls, agent.requests("session/request_permission")])
        agent.expect("kit three" in seen, "a plan in Markdown was not shown to a client without `plan`")


@check("PLAN-7")
async def no_plan_is_a_link_to_a_file(trial: Trial) -> None:
    async with trial.agent(_steps(trial), plan_documents=True) as agent:
        types = [each["plan"].get("type") for each in await _planned(agent) if "plan" in each]
        agent.expect("file" not in types, "a plan of the type `file` came")


@check("PLAN-9")
async def a_plan_is_shown_once(trial: Trial) -> None:
    async with trial.agent(_steps(trial), plan_documents=True) as agent:
        kinds = {each["sessionUpdate"] for each in await _planned(agent)}
        agent.expect(len(kinds - {"plan_removed"}) == 1, f"one connection got {sorted(kinds)}")


async def _loaded(
    trial: Trial, script: list[Answer], *, proposes: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plans at the end of a session's turn, and when another process has loaded it."""
    async with trial.agent(script, plan_documents=True) as agent:
        agent.needs("loadSession")
        before = _standing(await _planned(agent, proposes=proposes))
        session = agent.session
        await agent.quiet(REST)
    async with trial.agent(plan_documents=True) as agent:
        agent.session = session
        await agent.ask("session/load", {"sessionId": session, "cwd": str(trial.project), "mcpServers": []})
        return before, _standing(_of_plans(agent))


@check("PLAN-10")
async def a_load_shows_the_plans_as_they_were(trial: Trial) -> None:
    async with trial.agent() as agent:
        before, after = await _loaded(trial, _steps(trial))
        agent.expect(
            list(before.values()) == list(after.values()), f"the plans were {before}, and after a load {after}"
        )


@check("PLAN-13")
async def a_plan_keeps_its_id(trial: Trial) -> None:
    async with trial.agent() as agent:
        before, after = await _loaded(trial, _steps(trial))
        agent.expect(not after or before.keys() == after.keys(), f"the ids were {[*before]}, after a load {[*after]}")
