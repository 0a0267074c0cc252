"""`delegate`: give a task to a sub-agent."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Description, Preview, Task, ToolContext, ToolResult

TITLE_CHARS = 60


class DelegateParams(Params):
    prompt: str = Field(
        description="The whole task: the sub-agent knows nothing else about this conversation.", min_length=1
    )
    title: str = Field(default="", description="The task in a few words, for the user.")
    tools: list[str] | None = Field(default=None, description="Names of the tools it gets; default: all.")
    isolation: Literal["none", "worktree"] = Field(
        default="none", description="`worktree`: it works in a git worktree of its own, from the last commit."
    )
    max_iterations: int | None = Field(default=None, ge=1, description="Model calls it may make.")
    place: SkipJsonSchema[str | None] = None
    agent: str | None = Field(default=None, description="One of the listed sub-agents.")


class Delegate(HarmlessTool[DelegateParams]):
    name = "delegate"
    aliases = ("task",)
    kind = "other"

    def describe(self, params: DelegateParams, roots: Roots) -> Description:
        return Description(f"Sub-agent{f' {params.agent}' if params.agent else ''}: {_title(params)}")

    async def run(self, params: DelegateParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        limit = ctx.config.delegate.max_iterations
        tools = None if params.tools is None else tuple(dict.fromkeys(params.tools))
        rounds = min(params.max_iterations or limit, limit)
        return await ctx.call.delegate(
            Task(params.prompt, _title(params), tools, rounds, params.isolation == "worktree", params.agent or "")
        )


def _title(params: DelegateParams) -> str:
    text = " ".join((params.title or params.prompt).split())
    return text if len(text) <= TITLE_CHARS else text[: TITLE_CHARS - 1] + "…"
