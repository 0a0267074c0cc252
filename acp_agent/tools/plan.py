"""`plan`: maintain the list of steps shown to the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from acp_agent.errors import ToolError
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, TextContent
from acp_agent.store.base import GoalTask
from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult


class Step(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    content: str = Field(description="What to do, in one line.", min_length=1)
    status: Literal["pending", "in_progress", "completed"] = Field(default="pending", description="Its status.")
    priority: Literal["high", "medium", "low"] = Field(default="medium", description="Its priority.")
    id: str = Field(default="", max_length=40, description="A short name for the step; default: its number.")
    depends_on: list[str] = Field(default=[], description="The `id`s of steps that must be completed first.")


class PlanParams(Params):
    entries: list[Step] = Field(description="All steps, in order; the list replaces the previous one.")

    def tasks(self) -> tuple[GoalTask, ...]:
        """The task graph. Raises ToolError if it is invalid."""
        tasks = tuple(
            GoalTask(step.id or str(number), step.content, step.priority, step.status, tuple(step.depends_on))
            for number, step in enumerate(self.entries, 1)
        )
        if trouble := _trouble(tasks):
            raise ToolError(f"The plan was not accepted: {trouble}", "invalid_parameters")
        return tasks


class Plan(HarmlessTool[PlanParams]):
    name = "plan"
    aliases = ("todo_write", "update_plan")
    kind = "think"
    reads_only = True

    def describe(self, params: PlanParams, roots: Roots) -> Description:
        done = sum(step.status == "completed" for step in params.entries)
        return Description(f"Plan: {done} of {len(params.entries)} steps done")

    async def run(self, params: PlanParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        tasks = params.tasks()
        of_the_goal = await ctx.memory.goals.set_plan(tasks)
        open_ = sum(task.status != "completed" for task in tasks)
        told = f"The plan is shown. Open: {open_}." if open_ else "The plan is shown; every step is done."
        steps = () if ctx.memory.goals.drawn else (_steps(tasks),)
        return ToolResult(f"{told} {of_the_goal}".strip(), content=steps)


MARKS = {"pending": "[ ]", "in_progress": "[~]", "completed": "[x]"}


def _steps(tasks: Sequence[GoalTask]) -> Content:
    """The steps as text, for a client that does not display plans."""
    lines = [f"- {MARKS.get(task.status, '[ ]')} {task.content}" for task in tasks]
    return Content(content=TextContent(text="\n".join(lines)))


def _trouble(tasks: Sequence[GoalTask]) -> str:
    """Describes the error in the graph, as a sentence."""
    names = [task.id for task in tasks]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        return f"two steps have the id `{doubled}`. Give each its own."
    for task in tasks:
        if unknown := next((name for name in task.depends_on if name not in names), None):
            return f"the step `{task.id}` depends on `{unknown}`, which does not exist."
    waiting = {task.id: set(task.depends_on) for task in tasks}
    while free := [name for name, needs in waiting.items() if not needs]:
        for name in free:
            del waiting[name]
        for needs in waiting.values():
            needs.difference_update(free)
    return f"the steps {', '.join(f'`{name}`' for name in waiting)} wait for each other." if waiting else ""
