"""`write`: create a file, or replace it completely."""

from __future__ import annotations

from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.tools.files.edit import Planned, apply, watch
from acp_agent.tools.files.notebook import SUFFIX, NotANotebook, lacks, parse, why_not
from acp_agent.tools.files.notebook_view import keep_cell_credentials
from acp_agent.tools.kit.base import Params, PathTool
from acp_agent.tools.kit.line_ends import with_ends
from acp_agent.tools.kit.text import changed_places, diff_of, keep_credentials, read_file
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class WriteParams(Params):
    path: str = Field(description="The file, absolute or relative to the working directory; folders are created.")
    content: str = Field(description="The complete new text of the file.")


class Write(PathTool[WriteParams]):
    name = "write"
    title = "Write {path}"
    aliases = ("write_file", "file_write")
    kind = "edit"
    touches = "write"

    async def preview(self, params: WriteParams, ctx: ToolContext) -> Preview:
        path = ctx.roots.resolve(params.path)
        version = await read_file(ctx, path, params.path)
        old = None if version is None else version.text
        new = params.content if old is None or "\r\n" in params.content else with_ends(params.content, old)
        if version is not None and old is not None:
            seen = ctx.memory.ledger.last_seen(path)
            if seen is None and old:
                raise ToolError(
                    f"{params.path} exists and has not been read.", suggestion="Read it first, or use `edit`."
                )
            if seen is not None and not seen.is_still(version):
                raise ToolError(
                    f"{params.path} has changed since it was read.", suggestion="Read it again, then write."
                )
            if old == new:
                raise ToolError(f"{params.path} already contains exactly this text.")
            keep_credentials(ctx, params.path, old, new)
            if not why_not(path, old) and path.suffix.lower() == SUFFIX:
                keep_cell_credentials(ctx, params.path, parse(old), new)
        watch(ctx, path, old)
        return Preview(
            (diff_of(path, old, new),), Planned(path, version, new), locations=changed_places(path, old, new)
        )

    async def run(self, params: WriteParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        planned: Planned = preview.state
        return await apply(planned, params.path, ctx, preview, note=_note(planned))


def _note(planned: Planned) -> str:
    """What is wrong with a notebook."""
    if planned.path.suffix.lower() != SUFFIX:
        return ""
    try:
        lacking = lacks(parse(planned.new))
    except NotANotebook as error:
        return f"But Jupyter cannot open it as a notebook: it {error}."
    return f"But as a notebook it is not valid: {lacking}." if lacking else ""
