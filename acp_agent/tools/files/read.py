"""`read`: return a file's text with line numbers, or an image."""

from __future__ import annotations

import base64
from pathlib import Path

from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.executors.base import PartQuery
from acp_agent.llm.base import ImagePart
from acp_agent.llm.images import type_of
from acp_agent.output.profile import result_chars
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, ImageContent
from acp_agent.tools.files.notebook import SUFFIX, notebook_at, why_not
from acp_agent.tools.files.notebook_view import shown_notebook
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.failures import not_there
from acp_agent.tools.kit.text import need_file, numbered, read_file
from acp_agent.tools.kit.tool_context import Description, Location, Preview, ToolContext, ToolResult, Verbatim

SNIFFED = 8192
"""Bytes from which it is told what a file is."""
ROOM_FOR_FOOTER = 100
"""Characters of the line that says how to go on, or how much of a line is missing."""


class ReadParams(Params):
    path: str = Field(description="The file, absolute or relative to the working directory.")
    offset: int | None = Field(default=None, description="First line, from 1; below 0 from the end.")
    limit: int | None = Field(default=None, ge=1, description="Number of lines.")
    column: int | None = Field(default=None, ge=1, description="First character.")


class Read(PathTool[ReadParams]):
    name = "read"
    verbatim = True
    aliases = ("read_file", "file_read")
    kind = "read"
    reads_only = True
    idempotent = True

    def describe(self, params: ReadParams, roots: Roots) -> Description:
        path = roots.named(params.path)
        lines, cells = "", path.suffix.lower() == SUFFIX
        kind, first = "cell" if cells else "line", params.offset or 1
        if first < 0:
            lines = f" from {kind} {-first} before its end"
        elif params.offset or params.limit:
            last = "" if params.limit is None else f"s {first} to {first + params.limit - 1}"
            lines = f" {kind}{last}" if last else f" from {kind} {first}"
        line = None if cells or not params.offset or params.offset < 0 else params.offset
        return Description(f"Read {params.path}{lines}", (Location(path, line),))

    async def run(self, params: ReadParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        path = ctx.roots.resolve(params.path)
        found = await ctx.files.stat(path)
        if found is not None and found.kind == "file":
            head = await ctx.files.read_bytes(path, SNIFFED)
            if (mime := type_of(head[:16])) is not None:
                return await _image(params.path, path, mime, ctx)
            if found.size > ctx.config.files.max_read_bytes:
                return await _part(params, path, head, ctx)
        version = await read_file(ctx, path, params.path)
        if version is None:
            raise await _missing(params.path, path, ctx)
        text, remark = version.text, version.remark
        notebook = notebook_at(path, text, params.path)
        ctx.memory.ledger.saw(path, version)
        if notebook is not None:
            return shown_notebook(notebook, params.path, ctx, offset=params.offset, limit=params.limit, remark=remark)
        if text and (why := why_not(path, text)):
            remark = f"{remark} This is shown as plain text, since it {why}.".lstrip()
        return _numbered(params, text, ctx, remark)


async def _image(shown: str, path: Path, mime: str, ctx: ToolContext) -> ToolResult:
    limit = ctx.config.files.max_image_bytes
    await need_file(ctx.files, path, shown, limit)
    data = base64.b64encode(await ctx.files.read_bytes(path, limit)).decode()
    return ToolResult(
        f"The image {shown} ({mime}).",
        content=(Content(content=ImageContent(data=data, mime_type=mime)),),
        parts=(ImagePart(mime, data),),
    )


async def _missing(shown: str, path: Path, ctx: ToolContext) -> ToolError:
    """Names files with similar names."""
    folder = path.parent
    found = await ctx.files.stat(folder)
    if found is None or found.kind != "dir":
        return not_there(shown, "does not exist, and neither does its folder.")
    names = [name for name, _ in (await ctx.files.list(folder)).entries]
    stem = path.stem.lower()
    near = [name for name in names if stem and (stem in name.lower() or _part_of(name, stem))][:5]
    if near:
        told = f"{shown} does not exist. There are similar names: {', '.join(near)}."
        return ToolError(told, "invalid_parameters")
    return not_there(shown)


def _part_of(name: str, stem: str) -> bool:
    first = name.lower().split(".")[0]
    return first != "" and first in stem


def _numbered(params: ReadParams, text: str, ctx: ToolContext, remark: str) -> ToolResult:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return ToolResult(f"{params.path} is empty.")
    first = params.offset or 1
    first = max(1, len(lines) + 1 + first) if first < 0 else first
    if first > len(lines):
        raise ToolError(f"{params.path} has {len(lines)} lines; line {first} does not exist.", "invalid_parameters")
    wanted = lines[first - 1 : first - 1 + (params.limit or ctx.config.files.read_lines)]
    if params.column is not None:
        wanted[0] = wanted[0][params.column - 1 :]
    out = _that_fit(wanted, first, params, ctx, remark)
    last = first + len(out) - 1
    if last < len(lines):
        out.append(f"[lines {first} to {last} of {len(lines)}; give offset {last + 1} for more]")
    if remark:
        out.append(f"[{remark}]")
    return ToolResult(Verbatim("\n".join(out)))


def _that_fit(lines: list[str], first: int, params: ReadParams, ctx: ToolContext, remark: str = "") -> list[str]:
    """As many of the lines, with numbers, as there is room for; at least one."""
    room = max(result_chars(ctx.config) - ROOM_FOR_FOOTER - len(remark), 1)
    most = room if params.column is not None else ctx.config.files.max_line_chars
    longest = max(min(most, room - ROOM_FOR_FOOTER), 1)
    out = [numbered(number, line, longest) for number, line in enumerate(lines, first)]
    for as_sent in (str, ctx.redactor.redact):  # The marks of credentials may be longer than these.
        while len(out) > 1 and (over := len(as_sent("\n".join(out))) - room) > 0:
            while len(out) > 1 and over > 0:
                over -= len(out.pop()) + 1
    return out


async def _part(params: ReadParams, path: Path, head: bytes, ctx: ToolContext) -> ToolResult:
    """Of a file that is too large to be read as a whole: as it is on the disk."""
    if b"\0" in head:
        raise ToolError(
            f"{params.path} is binary or in UTF-16, and too large to be converted here.", suggestion="Use `bash`."
        )
    config, skip = ctx.config.files, (params.column or 1) - 1
    most = max(result_chars(ctx.config) - 2 * ROOM_FOR_FOOTER, ROOM_FOR_FOOTER)
    query = PartQuery(params.offset or 1, params.limit or config.read_lines, most, skip, config.search_timeout)
    part = await ctx.files.read_part(path, query)
    if not part.text:
        raise ToolError(f"{params.path} has nothing there.", "invalid_parameters")
    lines, cut = part.text.split("\n"), part.cut
    if len(lines) == 1 and cut:
        out, last = [numbered(part.first, part.text, most)], part.first
        goes_on = f"give offset {last} and column {skip + 1 + part.used} for more of this line"
    else:
        out = _that_fit(lines[:-1] if cut or not lines[-1] else lines, part.first, params, ctx)
        last = part.first + len(out) - 1
        ended = not last + 1 or (part.first > 0 and not cut and len(out) == len(lines) - (not lines[-1]) < query.lines)
        goes_on = "that is its end" if ended else f"give offset {last + 1} for more"
    where = "numbers below 0 count from the end" if part.first < 0 else f"lines {part.first} to {last}"
    out.append(f"[{where}; the file has {part.size} bytes; {goes_on}]")
    return ToolResult(Verbatim("\n".join(out)))
