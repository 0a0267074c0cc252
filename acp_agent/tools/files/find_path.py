"""`find_path`: find files and folders by name."""

from __future__ import annotations

import re

from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.executors.base import FindQuery
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.files.grep import not_read
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult

WORD = re.compile(r"\**[\w -]+\**")
"""A pattern that may have been meant for what files contain."""
NOT_SEARCHED = "Files in .gitignore are not searched, and folders without other files are not found."


class FindPathParams(Params):
    pattern: str = Field(
        description="A glob: `*.py` matches at any depth, `src/**/*.ts` below `src`, `docs/` folders.", min_length=1
    )
    path: str = Field(default=".", description="The folder to search, absolute or relative to the working directory.")


class FindPath(PathTool[FindPathParams]):
    name = "find_path"
    aliases = ("glob",)
    kind = "search"
    reads_only = True
    idempotent = True

    def describe(self, params: FindPathParams, roots: Roots) -> Description:
        path = roots.named(params.path)
        place = "" if params.path == "." else f" in {params.path}"
        return Description(f"Find {params.pattern}{place}", (Location(path),))

    async def run(self, params: FindPathParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        root = ctx.roots.resolve(params.path)
        found = await ctx.executor.stat(root)
        if found is None or found.kind != "dir":
            raise ToolError(f"{params.path} is not a folder. Give the folder to search.")
        config = ctx.config.files
        result = await ctx.executor.find(
            FindQuery(params.pattern, root, max_results=config.max_results, timeout=config.search_timeout)
        )
        inside = [match for match in result.matches if ctx.roots.contains(match.path)]
        unread = not_read(result, ctx.roots)
        if not inside:
            note = result.note or NOT_SEARCHED
            plain = WORD.fullmatch(params.pattern) is not None
            names = " These are names of files: `grep` looks into them." if plain else ""
            text = f"Nothing below {params.path} matches `{params.pattern}`.{names} {note}"
            text += f" {unread}" if unread else ""
            return ToolResult(text if not result.timed_out else f"{text} The search ran out of time.")
        lines = [ctx.roots.display(match.path) + ("/" if match.text == "dir" else "") for match in inside]
        if result.truncated:
            lines.append(f"[more than {config.max_results} matches; the rest is not shown, use a narrower pattern]")
        if result.timed_out:
            lines.append(f"[the search ended after {config.search_timeout:g} s; there may be more]")
        if unread:
            lines.append(f"[{unread}]")
        if result.note:
            lines.append(f"[{result.note}]")
        return ToolResult("\n".join(lines))
