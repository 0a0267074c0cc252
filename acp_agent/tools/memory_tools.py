"""`memory_store`, `memory_recall`, `memory_forget`: facts for later sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Access, NoAccess, ToolAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import HarmlessTool, Params, Tool
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


MAX_LIMIT = 100
SHOWN_KEYS = 20


class MemoryRecallParams(Params):
    query: str = Field(description="Words to search for.", min_length=1)
    limit: int | None = Field(default=None, ge=1, le=MAX_LIMIT, description="Maximum number of memories; default 5.")
    category: Literal["core", "daily", "conversation"] | None = Field(default=None, description="Only this category.")


class MemoryRecall(HarmlessTool[MemoryRecallParams]):
    name = "memory_recall"
    title = "Recall {query:.80}"
    aliases = ("memory_search", "recall")
    kind = "other"
    reads_only = True

    async def run(self, params: MemoryRecallParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        memories, project = ctx.memory.notes, ctx.roots.project
        limit = params.limit or ctx.config.memory.recall_limit
        found = await memories.do(memories.recall, (project, EVERYWHERE), params.query, limit, params.category)
        if not found:
            keys = await memories.do(memories.keys, project, SHOWN_KEYS)
            there = f" The newest keys here: {', '.join(f'`{key}`' for key in keys)}." if keys else ""
            return ToolResult(f"No memory shares a word with `{params.query}`.{there}")
        lines = [
            f"- {memory.key} ({memory.category}{'' if memory.project else ', all projects'}, "
            f"{memory.updated_at[:10]}): {memory.content}"
            for memory in found
        ]
        return ToolResult("\n".join(lines))


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
