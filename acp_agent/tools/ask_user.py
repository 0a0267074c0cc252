"""`ask_user`: ask the user a question."""

from __future__ import annotations

from pydantic import AliasChoices, Field

from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Description, Preview, Question, ToolContext, ToolResult

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
            return ToolResult(f"The user answered: {answer.text}")
        return ToolResult(answer.reason, ends_turn=answer.ends_turn)
