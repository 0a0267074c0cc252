"""Plans as documents and as checklists: PLAN. What the lines alone say is found in all checks (`kit_run.WIRE`)."""

from __future__ import annotations

from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import DONE, REST, Agent, NotHere, Trial, check

FIRST, SECOND = "kit one", "kit two"
DOCUMENTS = ("plan_update", "plan_removed")


def _steps(trial: Trial) -> list[Answer]:
    calls = [trial.tool("plan", first=FIRST, second=SECOND, status=each) for each in ("in_progress", "completed")]
    return [*(Answer(tool_calls=(call,)) for call in calls), DONE]


async def _planned(agent: Agent) -> list[dict[str, Any]]:
    """The updates of a turn that makes a plan, those of plans. Raises NotHere if there are none."""
    await agent.new_session()
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


async def _loaded(trial: Trial) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plans at the end of a session's turn, and when another process has loaded it."""
    async with trial.agent(_steps(trial), plan_documents=True) as agent:
        agent.needs("loadSession")
        before = _standing(await _planned(agent))
        session = agent.session
        await agent.quiet(REST)
    async with trial.agent(plan_documents=True) as agent:
        agent.session = session
        await agent.ask("session/load", {"sessionId": session, "cwd": str(trial.project), "mcpServers": []})
        return before, _standing(_of_plans(agent))


@check("PLAN-10")
async def a_load_shows_the_plans_as_they_were(trial: Trial) -> None:
    async with trial.agent() as agent:
        before, after = await _loaded(trial)
        agent.expect(
            list(before.values()) == list(after.values()), f"the plans were {before}, and after a load {after}"
        )


@check("PLAN-13")
async def a_plan_keeps_its_id(trial: Trial) -> None:
    async with trial.agent() as agent:
        before, after = await _loaded(trial)
        agent.expect(not after or before.keys() == after.keys(), f"the ids were {[*before]}, after a load {[*after]}")
