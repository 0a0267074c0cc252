"""`read_overflow`: return a part of an output that was too long to be returned whole."""

from __future__ import annotations

import uuid

from pydantic import Field, field_validator

from acp_agent.errors import ToolError
from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult

PREFIX = "overflow:"

MOST_CHARS = 50_000
"""Characters returned per call."""


MOST_OFFSET = 2**53
"""Larger than any output, but within a database's integers."""


class ReadOverflowParams(Params):
    id: str = Field(description="The reference of the output: `overflow:UUID`.")
    offset: int = Field(default=0, ge=0, le=MOST_OFFSET, description="Characters to skip.")
    limit: int | None = Field(
        default=None, ge=1, le=MOST_CHARS, description=f"Characters to return; default 20000, at most {MOST_CHARS}."
    )

    @field_validator("id")
    @classmethod
    def _uuid(cls, value: str) -> str:
        text = value.strip().strip("`[]").removeprefix(PREFIX)
        try:
            found = uuid.UUID(text)
        except ValueError:
            raise ValueError("it is not an `overflow:UUID`; copy it exactly from the output that was cut") from None
        if str(found) != text.lower():  # `UUID` also accepts braces, URNs and text without dashes.
            raise ValueError("it is not an `overflow:UUID`; copy it exactly from the output that was cut")
        return str(found)


class ReadOverflow(HarmlessTool[ReadOverflowParams]):
    """It is this session's own output."""

    name = "read_overflow"
    verbatim = True
    title = "Read the output {id:.8} from character {offset}"
    kind = "read"
    reads_only = True

    async def run(self, params: ReadOverflowParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        limit = min(params.limit or ctx.config.overflow.read_chars, MOST_CHARS)
        part = await ctx.memory.read_overflow(params.id, params.offset, limit)
        if part is None:
            raise ToolError(
                f"There is no output `{PREFIX}{params.id}` in this session.",
                "permanent_failure",
                suggestion="Outputs are stored for a few days and only in their session: run the call again.",
            )
        entry = part.entry
        if params.offset >= entry.chars:
            raise ToolError(
                f"The output has {entry.chars} characters, so there is nothing at {params.offset}.",
                "invalid_parameters",
            )
        end = params.offset + len(part.text)
        more = f"continue with offset {end}" if end < entry.chars else "this is the end"
        whole = "" if entry.complete else "; the middle was too long to be stored"
        head = f"[{entry.tool}: characters {params.offset} to {end} of {entry.chars}; {more}{whole}]"
        return ToolResult(f"{head}\n{part.text}")
