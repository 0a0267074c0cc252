"""`memory_forget`: remove a memory."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Access, NoAccess, ToolAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.memory_store import project_of

SHOWN_KEYS = 20


class MemoryForgetParams(Params):
    key: str = Field(description="The memory's exact key.", min_length=1)
    everywhere: bool = Field(default=False, description="Whether it is a memory for all projects.")


class MemoryForget(Tool[MemoryForgetParams]):
    name = "memory_forget"
    title = "Forget {key}"
    aliases = ("forget",)
    kind = "other"

    def access(self, params: MemoryForgetParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [ToolAccess("memory everywhere", "memories for all projects")] if params.everywhere else [NoAccess()]

    async def run(self, params: MemoryForgetParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        project, key = project_of(params.everywhere, ctx), params.key.strip()
        notes = ctx.memory.notes
        if not await notes.do(notes.forget, project, key):
            keys = await notes.do(notes.keys, project, SHOWN_KEYS)
            there = f"The newest are: {', '.join(f'`{known}`' for known in keys)}." if keys else "There are none."
            raise ToolError(f"There is no memory `{key}`. {there}")
        return ToolResult(f"Forgot `{key}`.")
