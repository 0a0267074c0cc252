"""`find_path`: find files and folders by name."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.executors.base import FindQuery
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.files.grep import lines_with, not_read, remarks
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult

COUNTED = 3
"""Results from which their number is said: models count badly."""
MOST_LINES = 5
"""Of files that contain the word that no file is named after."""
WORD = re.compile(r"\**([\w -]+)\**")
"""A pattern that may have been meant for what files contain."""
NOT_SEARCHED = "Files in .gitignore are not searched, and folders without other files are not found."


class FindPathParams(Params):
    pattern: str = Field(
        description="A glob: `*.py` matches at any depth, `src/**/*.ts` below `src`, `docs/` folders.", min_length=1
    )
    path: str = Field(default=".", description="The folder to search, absolute or relative to the working directory.")


class FindPath(PathTool[FindPathParams]):
    name = "find_path"
    verbatim = True
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
        found = await ctx.files.stat(root)
        if found is None or found.kind != "dir":
            raise ToolError(f"{params.path} is not a folder.", suggestion="Give the folder to search.")
        config = ctx.config.files
        result = await ctx.files.find(
            FindQuery(params.pattern, root, max_results=config.max_results, timeout=config.search_timeout)
        )
        inside = [match for match in result.matches if ctx.roots.contains(match.path)]
        if not inside:
            unread = not_read(result, ctx.roots)
            note = result.note or NOT_SEARCHED
            inner = await _inside_files(params, root, ctx)
            text = f"Nothing below {params.path} matches `{params.pattern}`.{inner} {note}"
            text += f" {unread}" if unread else ""
            return ToolResult(text if not result.timed_out else f"{text} The search ran out of time.")
        lines = [ctx.roots.display(match.path) + ("/" if match.text == "dir" else "") for match in inside]
        if len(lines) >= COUNTED and not (result.truncated or result.timed_out):
            lines.append(f"[{len(lines)} matches]")
        if result.truncated:
            lines.append(f"[more than {config.max_results} matches; the rest is not shown, use a narrower pattern]")
        lines += remarks(result, ctx)
        return ToolResult("\n".join(lines))


async def _inside_files(params: FindPathParams, root: Path, ctx: ToolContext) -> str:
    """Where a plain word that names no file stands in files: it is mostly a function that was looked for."""
    if (plain := WORD.fullmatch(params.pattern)) is None:
        return ""
    found = await lines_with(ctx, root, re.escape(plain[1]), MOST_LINES)
    lines = [match for match in found.matches if ctx.roots.contains(match.path)]
    at = ", ".join(f"{ctx.roots.display(match.path)}:{match.line}" for match in lines)
    return (
        f" It names no file; `grep` finds it in {at}." if at else " These are names of files: `grep` looks into them."
    )
