"""`skill`: look up how the project wants something done."""

from __future__ import annotations

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from acp_agent.errors import ToolError
from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


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
