"""`fetch`: return the text of a web page, or of anything else on the web that is text."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.safety.access import Access, NetworkAccess
from acp_agent.safety.deciding.network import NetworkPolicy, check_url
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.net.web_text import readable

MAX_CHARS = 8000


class FetchParams(Params):
    url: str = Field(description="The URL, beginning with https://.")
    max_chars: int | None = Field(
        default=None, ge=100, le=200_000, description=f"Maximum number of characters; default {MAX_CHARS}."
    )


class Fetch(Tool[FetchParams]):
    name = "fetch"
    title = "Fetch {url}"
    aliases = ("fetch_url", "web_fetch")
    kind = "fetch"
    reads_only = True
    idempotent = True

    def access(self, params: FetchParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        target = check_url(params.url, NetworkPolicy.from_config(config.web))
        return [NetworkAccess(target.authority, f"GET {target.url}")]

    async def run(self, params: FetchParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        answer = await ctx.web.client.request("GET", params.url)
        return ToolResult(await readable(answer, params.max_chars or MAX_CHARS))
