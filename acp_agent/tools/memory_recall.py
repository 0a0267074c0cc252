"""`memory_recall`: find facts kept by earlier sessions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.memory_store import EVERYWHERE

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
