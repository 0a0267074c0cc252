"""`memory_store`: keep a fact for later sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Access, NoAccess, ToolAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult

EVERYWHERE = ""
"""The project of memories for all projects."""


class MemoryStoreParams(Params):
    key: str = Field(description="A short name; using it again replaces the memory.", min_length=1, max_length=200)
    content: str = Field(description="What to remember, self-contained.", min_length=1)
    category: Literal["core", "daily", "conversation"] = Field(
        default="core",
        description="`core`: lasting facts and decisions; `daily`: current work; `conversation`: what was said.",
    )
    everywhere: bool = Field(default=False, description="Whether it is for all projects, not only this one.")


def project_of(everywhere: bool, ctx: ToolContext) -> str:
    return EVERYWHERE if everywhere else ctx.roots.project


class MemoryStore(Tool[MemoryStoreParams]):
    name = "memory_store"
    title = "Remember {key}"
    aliases = ("memory_save", "remember")
    kind = "other"

    def access(self, params: MemoryStoreParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        return [ToolAccess("memory everywhere", "memories for all projects")] if params.everywhere else [NoAccess()]

    async def run(self, params: MemoryStoreParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        limit = ctx.config.memory.max_chars
        if len(params.content) > limit:
            raise ToolError(
                f"The memory has {len(params.content)} characters; the maximum is {limit}. Keep only the facts, or "
                "split it.",
                "invalid_parameters",
            )
        project = project_of(params.everywhere, ctx)
        notes, redact = ctx.memory.notes, ctx.redactor.redact
        about = (project, redact(params.key.strip()), redact(params.content), params.category)
        replaced = await notes.do(notes.store, *about)
        where = "for all projects" if params.everywhere else "for this project"
        return ToolResult(f"{'Replaced' if replaced else 'Stored'} memory `{params.key.strip()}` {where}.")
