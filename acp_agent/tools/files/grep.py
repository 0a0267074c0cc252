"""`grep`: find lines of files by pattern."""

from __future__ import annotations

from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.executors.base import GrepQuery
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult

MOST_LOCATIONS = 50
"""Locations reported to the editor."""


class GrepParams(Params):
    pattern: str = Field(description="A regular expression, matched within a line.", min_length=1)
    path: str = Field(default=".", description="The folder or file to search.")
    case_sensitive: bool = Field(default=True, description="Whether upper and lower case differ.")
    glob: str | None = Field(default=None, description="Only files that match this glob, such as `*.py`.")


class Grep(PathTool[GrepParams]):
    name = "grep"
    aliases = ("search_code", "search_files")
    kind = "search"
    reads_only = True
    idempotent = True

    def describe(self, params: GrepParams, roots: Roots) -> Description:
        path = roots.named(params.path)
        place = "" if params.path == "." else f" in {params.path}"
        only = f" ({params.glob})" if params.glob else ""
        return Description(f"Search for {params.pattern}{place}{only}", (Location(path),))

    async def run(self, params: GrepParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        root = ctx.roots.resolve(params.path)
        if await ctx.executor.stat(root) is None:
            raise ToolError(f"{params.path} does not exist. Use `find_path` to find it.")
        config = ctx.config.files
        result = await ctx.executor.grep(
            GrepQuery(
                params.pattern,
                root,
                params.case_sensitive,
                max_results=config.max_results,
                timeout=config.search_timeout,
                glob=params.glob,
            )
        )
        inside = [match for match in result.matches if ctx.roots.contains(match.path)]
        if not inside:
            only = f" in files `{params.glob}`" if params.glob else ""
            text = f"No line below {params.path}{only} matches `{params.pattern}`."
            text += " Files in .gitignore are not searched."
            return ToolResult(text if not result.timed_out else f"{text} The search ran out of time.")
        lines = [f"{ctx.roots.display(match.path)}:{match.line}:{match.text}" for match in inside]
        if result.truncated:
            lines.append(f"[more than {config.max_results} matches; the rest is not shown, narrow the search]")
        if result.timed_out:
            lines.append(f"[the search ended after {config.search_timeout:g} s; there may be more]")
        places = tuple(Location(match.path, match.line) for match in inside[:MOST_LOCATIONS])
        return ToolResult("\n".join(lines), locations=places)
