"""`plan`: keep the list of steps the person sees."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from acp_agent.safety.access import Access, NoAccess
from acp_agent.safety.paths import Roots
from acp_agent.schema.acp import PlanEntry, ToolKind
from acp_agent.tools.base import Params, Tool
from acp_agent.tools.context import Description, Preview, ToolContext, ToolResult

__all__ = ["Plan", "PlanParams"]


class Step(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    content: str = Field(description="What is to be done, in one line.", min_length=1)
    status: Literal["pending", "in_progress", "completed"] = Field(default="pending", description="Where it stands.")
    priority: Literal["high", "medium", "low"] = Field(default="medium", description="How much it matters.")


class PlanParams(Params):
    entries: list[Step] = Field(description="All steps, in order; the list replaces the one before.")


class Plan(Tool[PlanParams]):
    name: ClassVar[str] = "plan"
    kind: ClassVar[ToolKind] = "think"
    reads_only: ClassVar[bool] = True
    Params: ClassVar[type[Params]] = PlanParams

    def describe(self, params: PlanParams, roots: Roots) -> Description:
        done = sum(step.status == "completed" for step in params.entries)
        return Description(f"Plan: {done} of {len(params.entries)} steps done")

    def access(self, params: PlanParams, ctx: ToolContext) -> list[Access]:
        return [NoAccess()]

    async def run(self, params: PlanParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        ctx.set_plan(
            [PlanEntry(content=step.content, priority=step.priority, status=step.status) for step in params.entries]
        )
        open_ = [step.content for step in params.entries if step.status != "completed"]
        return ToolResult(
            f"The plan is shown. Open: {len(open_)}." if open_ else "The plan is shown; every step is done."
        )
