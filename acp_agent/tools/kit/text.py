"""Shared by the file tools: reading a file as text with messages for all that can go wrong; line endings; diffs."""

from __future__ import annotations

import re
from pathlib import Path

from acp_agent.errors import ToolError
from acp_agent.executors.base import Files, FileVersion
from acp_agent.lazy import load
from acp_agent.schema.acp import Diff
from acp_agent.tools.kit.tool_context import Location, ToolContext

MARK = "[redacted: "
"""Start of the mark that replaces a credential."""

NUMBER = re.compile(r"[ ]*\d+\t")
"""A line's number as `read` gives it."""

SHOWN_LINES = 12
SHOWN_CHARS = 200
"""Limits of what an edit shows: lines at the beginning and at the end of a long change, characters of a line."""
MOST_PLACES = 50
MOST_COMPARED = 2_000
"""Lines between the first change and the last, in both texts, up to which they are told apart."""
MATCHER = "difflib:SequenceMatcher"


async def need_file(files: Files, path: Path, shown: str, limit: int) -> bool:
    """Whether `path` is an existing regular file. Raises ToolError for a folder, a device, more than `limit` bytes."""
    found = await files.stat(path)
    if found is None:
        return False
    if found.kind == "dir":
        raise ToolError(f"{shown} is a folder.", suggestion="Use `list_directory` to look into it.")
    if found.kind != "file":
        raise ToolError(f"{shown} is not a regular file, so it cannot be read or written here.")
    if found.size > limit:
        raise ToolError(
            f"{shown} has {found.size} bytes, more than the {limit} this tool opens.",
            suggestion="Use `grep`, or `bash`.",
        )
    return True


async def read_file(ctx: ToolContext, path: Path, shown: str) -> FileVersion | None:
    """`None` if there is no such file. Raises ToolError if it is not text."""
    await need_file(ctx.files, path, shown, ctx.config.files.max_read_bytes)
    try:
        found = await ctx.files.read(path)
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise await _binary(ctx, path, shown, error.reason) from error
    if "\0" in found.text[:8192]:
        raise await _binary(ctx, path, shown, "")
    return found


async def _binary(ctx: ToolContext, path: Path, shown: str, kind: str) -> ToolError:
    found = await ctx.files.stat(path)
    size = f", {found.size} bytes" if found is not None else ""
    return ToolError(
        f"{shown} is a binary file{f' ({kind})' if kind else ''}{size}.", suggestion="Use `bash` to look into it."
    )


def keep_credentials(ctx: ToolContext, shown: str, old: str, new: str) -> None:
    """Raises ToolError if a redaction mark, which is all the model has seen, would replace a credential."""
    if MARK in new and new.count(MARK) > old.count(MARK) and ctx.redactor.redact(old) != old:
        raise ToolError(
            f"{shown} contains credentials that you see only as `{MARK}...]`; writing such a mark would destroy one, "
            "so nothing was written.",
            "invalid_parameters",
            suggestion="Change the other lines with `edit` and leave those with credentials alone.",
        )


def need_expressible(old: FileVersion, shown: str, new: str) -> None:
    """Raises ToolError if the file's encoding has no characters for the text."""
    if lacking := old.lacks(new):
        raise ToolError(
            f"{shown} is in {lacking}, so nothing was written.",
            suggestion="Use other characters, or convert the file to UTF-8 first (`iconv`), if the user agrees.",
        )


def numbered(number: int, line: str, longest: int) -> str:
    """A line as `read` shows it, cut to `longest` characters."""
    line = line.removesuffix("\r")
    if (more := len(line) - longest) > 0:
        line = f"{line[:longest]}[... {more} characters of this line omitted]"
    return f"{number:>6}\t{line}"


def without_numbers(text: str) -> str | None:
    """`text` without the line numbers that `read` puts before lines; `None` if not every line has one."""
    lines = text.removesuffix("\n").split("\n")
    if not all(NUMBER.match(line) for line in lines):
        return None
    return "\n".join(NUMBER.sub("", line, count=1) for line in lines) + "\n" * text.endswith("\n")


def around_change(old: str, new: str, context: int) -> str:
    """The changed lines of `new` with `context` lines around them, numbered; of many the middle is left out."""
    before, after = old.split("\n"), new.split("\n")
    begin, end = _alike(before, after)
    first, last = max(0, begin - context), min(len(after) - end + context, len(after) - (not after[-1]))
    shown = [numbered(number, line, SHOWN_CHARS) for number, line in enumerate(after[first:last], first + 1)]
    if (more := len(shown) - 2 * SHOWN_LINES) > 0:
        shown[SHOWN_LINES:-SHOWN_LINES] = [f"[... {more} lines ...]"]
    return "\n".join(shown)


def _alike(before: list[str], after: list[str]) -> tuple[int, int]:
    """How many lines are the same at the beginning of both, and at their end."""
    most = min(len(before), len(after))
    begin = next((at for at in range(most) if before[at] != after[at]), most)
    return begin, next((at for at in range(most - begin) if before[-1 - at] != after[-1 - at]), most - begin)


def diff_of(path: Path, old: str | None, new: str) -> Diff:
    return Diff(path=str(path), old_text=old, new_text=new)


def changed_places(path: Path, old: str | None, new: str, *, done: bool = False) -> tuple[Location, ...]:
    """Where each change begins, for editors that follow the agent: in the old text, which is still there while the user
    is asked, or in the new one (`done`). Of a change that is very large, or in very many places, the first ones."""
    if old is None:
        return (Location(path, 1),)
    before, after = old.split("\n"), new.split("\n")
    begin, end = _alike(before, after)
    left, right = before[begin : len(before) - end], after[begin : len(after) - end]
    starts = [(0, 0)]
    if left and right and len(left) + len(right) <= MOST_COMPARED:
        codes = load(MATCHER)(None, left, right, autojunk=False).get_opcodes()
        starts = [(at, to) for kind, at, _, to, _ in codes if kind != "equal"]
    text = after if done else before
    last = max(1, len(text) - (text[-1] == ""))
    return tuple(Location(path, min(begin + start[done] + 1, last)) for start in starts[:MOST_PLACES])
