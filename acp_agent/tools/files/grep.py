"""`grep`: find lines of files by pattern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from acp_agent.errors import ToolError
from acp_agent.executors.base import Found, GrepQuery
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.failures import not_there
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult

NO_MATTER = frozenset(("-n", "-A", "-B", "-C", "context", "multiline"))
"""Options of other agents' tools that are left out: line numbers are always given, lines around a match never."""

NOT_SEARCHED = (
    "Files in .gitignore are not searched, nor those that may keep keys or passwords (`.env`, `*.pem`, …), except one "
    "that is the `path`: the user is asked about each."
)
"""Always said, and not only where one of these would match: that would tell what is in it."""
KEYS_NOT_SEARCHED = (
    "Files that may keep keys or passwords (`.env`, `*.pem`, …) are not searched, except one that is the `path`: the "
    "user is asked about each."
)
"""The same where `.gitignore` is not applied (`Found.note`)."""

LEFT_OUT = "Not searched, as they are large: {}. Give one of them as the `path` to search it."
MOST_NAMED = 5
"""Of these files, and of what cannot be read."""
MOST_LOCATIONS = 50
"""Locations reported to the editor."""


def too_large(found: Found, roots: Roots) -> str:
    """The files that were left out for their size, in a sentence; empty if there is none."""
    large = [roots.display(path) for path in found.left_out if roots.contains(path)]
    return (
        LEFT_OUT.format(", ".join(large[:MOST_NAMED]) + (" and others" if large[MOST_NAMED:] else "")) if large else ""
    )


def not_read(found: Found, roots: Roots) -> str:
    """What a search could not read, in a sentence; empty if nothing."""
    named = [roots.display(path) for path in found.unread[:MOST_NAMED] if roots.contains(path)]
    more = found.unread_count - len(named)
    if not found.unread_count:
        return ""
    return f"Not searched, as it may not be read: {', '.join([*named, *([f'{more} more'] if more else [])])}."


async def lines_with(
    ctx: ToolContext, root: Path, pattern: str, most: int, *, case_sensitive: bool = True, glob: str | None = None
) -> Found:
    """The lines below `root` that match, but for those of key files below it. Raises ExecutorError."""
    return await ctx.files.grep(
        GrepQuery(
            pattern,
            root,
            case_sensitive,
            max_results=most,
            timeout=ctx.config.files.search_timeout,
            glob=glob,
            skips=lambda path: path != root and ctx.roots.rules.key_file(path) is not None,
        )
    )


def remarks(found: Found, ctx: ToolContext) -> list[str]:
    """What stands after the results: why there may be more, and how it was searched."""
    late = f"the search ended after {ctx.config.files.search_timeout:g} s; there may be more"
    said = (late if found.timed_out else "", too_large(found, ctx.roots), not_read(found, ctx.roots), found.note)
    return [f"[{words}]" for words in said if words]


class GrepParams(Params):
    pattern: str = Field(description="A regular expression, matched within a line.", min_length=1)
    path: str = Field(default=".", description="The folder or file to search.")
    case_sensitive: bool = Field(default=True, description="Whether upper and lower case differ.")
    glob: str | None = Field(default=None, description="Only files that match this glob, such as `*.py`.")
    limit: SkipJsonSchema[int | None] = Field(default=None, ge=1)
    """Most matches to return, as other agents' tools have it: the model is not told."""
    only_files: SkipJsonSchema[bool] = False
    """Returns the names of the files alone, as other agents' tools do."""


class Grep(PathTool[GrepParams]):
    name = "grep"
    verbatim = True
    aliases = ("search_code", "search_files")
    kind = "search"
    reads_only = True
    idempotent = True

    def from_other_form(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """As in the `grep` of Claude Code: options of ripgrep."""
        given = {name: value for name, value in arguments.items() if name not in NO_MATTER}
        if "case_sensitive" not in given and isinstance(given.get("-i"), bool):
            given["case_sensitive"] = not given.pop("-i")
        if "limit" not in given and "head_limit" in given:
            limit = given.pop("head_limit")
            given |= {"limit": limit} if limit else {}
        match given.get("output_mode"):
            case "content":
                del given["output_mode"]
            case "files_with_matches":
                del given["output_mode"]
                given["only_files"] = True
        return given

    def describe(self, params: GrepParams, roots: Roots) -> Description:
        path = roots.named(params.path)
        place = "" if params.path == "." else f" in {params.path}"
        only = f" ({params.glob})" if params.glob else ""
        return Description(f"Search for {params.pattern}{place}{only}", (Location(path),))

    async def run(self, params: GrepParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        root = ctx.roots.resolve(params.path)
        found = await ctx.files.stat(root)
        if found is None:
            raise not_there(params.path)
        if found.kind == "other":
            what = "a pipe, a socket or a device, not a file or folder"
            raise ToolError(f"{params.path} is {what}, so it was not searched.", "invalid_parameters")
        config = ctx.config.files
        most = (
            config.max_results if params.limit is None or params.only_files else min(params.limit, config.max_results)
        )
        result = await lines_with(
            ctx, root, params.pattern, most, case_sensitive=params.case_sensitive, glob=params.glob
        )
        inside = [match for match in result.matches if ctx.roots.contains(match.path)]
        if not inside:
            only = f" in files `{params.glob}`" if params.glob else ""
            text = f"No line below {params.path}{only} matches `{params.pattern}`."
            text += f" {KEYS_NOT_SEARCHED} {result.note}" if result.note else f" {NOT_SEARCHED}"
            text += "".join(
                f" {words}" for words in (too_large(result, ctx.roots), not_read(result, ctx.roots)) if words
            )
            return ToolResult(text if not result.timed_out else f"{text} The search ran out of time.")
        if params.only_files:
            lines = list(dict.fromkeys(ctx.roots.display(match.path) for match in inside))[: params.limit]
        else:
            lines = [f"{ctx.roots.display(match.path)}:{match.line}:{match.text}" for match in inside]
        if result.truncated:
            lines.append(f"[more than {most} matches; the rest is not shown, narrow the search]")
        lines += remarks(result, ctx)
        places = tuple(Location(match.path, match.line) for match in inside[:MOST_LOCATIONS])
        return ToolResult("\n".join(lines), locations=places)
