"""Two tools, by the public surface alone."""

from typing import Annotated

from pydantic import Field

from acp_agent.api import API_VERSION, Params, PathTool, Preview, ToolContext, ToolError, ToolResult, tool

assert API_VERSION[0] == 1


@tool(reads_only=True)
def word_count(text: Annotated[str, "The text to count."]) -> str:
    """Count the words of a text."""
    if not text.strip():
        raise ToolError("There is no text. Give some.")
    return str(len(text.split()))


class LongestWordParams(Params):
    path: str = Field(description="The file.")


class LongestWord(PathTool[LongestWordParams]):
    """Find the longest word of a file."""

    name = "longest_word"
    kind = "read"
    title = "Longest word of {path}"
    reads_only = True

    async def run(self, params: LongestWordParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        text = (await ctx.files.read(ctx.roots.resolve(params.path))).text
        return ToolResult(max(text.split(), key=len))
