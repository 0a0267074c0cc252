"""`ask_user`, `delegate`, `skill`, `switch_mode`, `time`, `tools`: what a session has."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field
from pydantic.json_schema import SkipJsonSchema

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.legible import legible
from acp_agent.safety.access import Access, ModeAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, TextContent
from acp_agent.tools.kit.base import HarmlessTool, Params, Tool
from acp_agent.tools.kit.tool_context import Description, Preview, Question, Task, ToolContext, ToolResult

TITLE_CHARS = 120


class AskUserParams(Params):
    question: str = Field(description="The question, self-contained.", min_length=1)
    choices: list[str] = Field(
        default_factory=list,
        description="Answers to choose from, best first.",
        validation_alias=AliasChoices("choices", "options"),  # Models write both.
    )
    several: bool = Field(default=False, description="Whether several choices can be selected.")


class AskUser(HarmlessTool[AskUserParams]):
    name = "ask_user"
    aliases = ("ask_question", "ask_followup_question")
    kind = "other"
    reads_only = True

    def describe(self, params: AskUserParams, roots: Roots) -> Description:
        line = " ".join(params.question.split())
        return Description(f"Ask: {line if len(line) <= TITLE_CHARS else line[:TITLE_CHARS] + '…'}")

    async def run(self, params: AskUserParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        choices = tuple(dict.fromkeys(choice.strip() for choice in params.choices if choice.strip()))
        answer = await ctx.call.ask(Question(params.question.strip(), choices, params.several))
        if answer.text is not None:
            shown = Content(content=TextContent(text=f"You answered: {answer.text}"))
            return ToolResult(f"The user answered: {answer.text}", content=(shown,))
        return ToolResult(answer.reason, ends_turn=answer.ends_turn)


TASK_CHARS = 60


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
    return text if len(text) <= TASK_CHARS else text[: TASK_CHARS - 1] + "…"


class SkillParams(Params):
    name: str = Field(description="The skill's name, as it is listed.", min_length=1)
    file: SkipJsonSchema[str] = ""
    """One of its files, where `read` does not reach them: the skill's text says so."""


class Skill(HarmlessTool[SkillParams]):
    name = "skill"
    title = "Skill {name:.60}"
    aliases = ("use_skill",)
    kind = "read"
    reads_only = True

    async def run(self, params: SkillParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        if params.file and (text := ctx.memory.skills.file(params.name, params.file)) is not None:
            return ToolResult(text)
        text = ctx.memory.skills.use(params.name)
        if text is None:
            names = ", ".join(f"`{name}`" for name in ctx.memory.skills.names()) or "none"
            raise ToolError(f"There is no skill `{params.name}`. The skills are: {names}.", "invalid_parameters")
        return ToolResult(text)


HIDES = "<!--"
"""Begins what a view of Markdown leaves out."""


class SwitchModeParams(Params):
    mode: Literal["code"] = Field(default="code", description="The mode to switch to.")
    plan: str = Field(description="All you will do there, for the user's approval (Markdown).", min_length=1)


class SwitchMode(Tool[SwitchModeParams]):
    name = "switch_mode"
    title = "Plan for your approval"
    aliases = ("exit_plan_mode",)
    kind = "switch_mode"

    def access(self, params: SwitchModeParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [ModeAccess(params.mode)]

    async def preview(self, params: SwitchModeParams, ctx: ToolContext) -> Preview:
        """Raises ToolError for a plan that the user would not see as a whole."""
        plan, most = params.plan.replace("\r\n", "\n").strip(), ctx.config.max_plan_chars
        trouble = "is empty" if not plan else ""
        if len(plan) > most:
            trouble = f"has {len(plan)} characters, more than {most}; shorten it"
        elif legible(plan) != plan or HIDES in plan:
            trouble = "contains characters or comments that a user would not see; leave them out"
        if trouble:
            raise ToolError(f"The plan was not shown to the user: it {trouble}.", "invalid_parameters")
        return Preview((Content(content=TextContent(text=plan)),))

    async def run(self, params: SwitchModeParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        await ctx.call.set_mode(preview.mode or params.mode)
        told = f"The user approved the plan. The mode is `{ctx.call.mode}` now: you now have the tools that change "
        return ToolResult(f"{told}things. Begin.", content=preview.content)


class Time(HarmlessTool[Params]):
    name = "time"
    title = "Look at the clock"
    aliases = ("get_time", "current_time")
    kind = "other"
    reads_only = True

    async def run(self, params: Params, ctx: ToolContext, preview: Preview) -> ToolResult:
        millis = time.time_ns() // 1_000_000
        now = datetime.fromtimestamp(millis / 1000, UTC)
        local = now.astimezone()
        told = {
            "iso_8601_utc": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "rfc_2822_utc": format_datetime(now),
            "unix_millis": millis,
            "local": local.isoformat(timespec="seconds"),
            "local_zone": local.tzname(),
            "weekday": local.strftime("%A"),
        }
        return ToolResult(json.dumps(told, indent=2), raw_output=told)


class ToolsParams(Params):
    query: str = Field(description="What the tool should do, in a few words.", min_length=1)


class FindTools(HarmlessTool[ToolsParams]):
    name = "tools"
    title = "Find tools: {query:.60}"
    aliases = ("find_tools", "tool_search")
    kind = "search"
    reads_only = True

    async def run(self, params: ToolsParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        offer = ctx.offer
        found = await offer.find_more(params.query)
        if not found:
            names = ", ".join(f"`{entry.name}`" for entry in offer.left_out()) or "none"
            return ToolResult(
                f"No tool fits these words. Not sent to you so far: {names}. Search with one of these names."
            )
        lines = [f"- {entry.name}: {entry.description.splitlines()[0]}" for entry in found]
        return ToolResult("You can call these tools from now on:\n" + "\n".join(lines))
