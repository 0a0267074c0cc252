"""What is shown beside messages and calls: plans, usage, titles; V2-PLAN, V2-USE, V2-INFO.

Of notices and of what compaction says there is no check: nothing drives an agent to them. Their lines are held against
the schema, as all lines are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from acp_agent.testing.fake_answers import Answer
from acp_conformance.trial import DONE, NotHere, Trial, check
from acp_conformance.v2.v2_client import AgentV2, in_session

FIRST, SECOND = "kit one", "kit two"


@asynccontextmanager
async def _shown(trial: Trial, kind: str, *answers: Answer) -> AsyncIterator[tuple[AgentV2, list[dict[str, Any]]]]:
    """The updates of that kind behind work. Raises NotHere if there are none."""
    async with in_session(trial, [*answers, DONE]) as agent:
        await agent.stops("end_turn")
        if not (updates := agent.updates(kind)):
            raise NotHere(f"no `{kind}` came")
        yield agent, updates


def _plans(trial: Trial) -> list[Answer]:
    calls = [trial.tool("plan", first=FIRST, second=SECOND, status=each) for each in ("in_progress", "completed")]
    return [Answer(tool_calls=(call,)) for call in calls]


@check("V2-PLAN-1")
async def each_plan_has_all_steps(trial: Trial) -> None:
    """The agent may show them in other words, but with those of the model in them."""
    async with _shown(trial, "plan_update", *_plans(trial)) as (agent, updates):
        plans = [each["plan"] for each in updates if each["plan"].get("type") == "items"]
        for plan in plans:
            told = str([each.get("content") for each in plan["entries"]])
            agent.expect(FIRST in told and SECOND in told, f"a plan of {FIRST!r} and {SECOND!r} has {told}")
        ends = [each.get("status") for each in plans[-1]["entries"] if FIRST in each["content"]] if plans else []
        agent.expect(not plans or ends == ["completed"], f"{FIRST!r} was completed and is {ends}")


@check("V2-PLAN-2")
async def steps_are_told_in_known_words(trial: Trial) -> None:
    """Any others are found in the lines."""
    async with _shown(trial, "plan_update", *_plans(trial)) as (agent, updates):
        ids = [each["plan"].get("planId") for each in updates]
        agent.expect(all(ids), f"the ids of plans are {ids}")


@check("V2-USE-1")
async def usage_is_told_in_numbers(trial: Trial) -> None:
    """Any others are found in the lines."""
    async with _shown(trial, "usage_update"):
        pass


@check("V2-INFO-1")
async def titles_and_times_are_those_of_the_schema(trial: Trial) -> None:
    """Any others are found in the lines."""
    async with _shown(trial, "session_info_update"):
        pass
