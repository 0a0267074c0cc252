"""`web_scrape`: return the elements of a page that a CSS selector finds."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pydantic import Field

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Access, NetworkAccess
from acp_agent.safety.deciding.network import NetworkPolicy, check_url
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.net.web_body import need_text
from acp_agent.tools.net.web_page import Element, select
from acp_agent.tools.net.web_text import beside

LONGEST_ELEMENT = 4000
"""Characters per element."""


class WebScrapeParams(Params):
    url: str = Field(description="The URL, beginning with https://.")
    select: str = Field(description="A CSS selector.")
    extract: str = Field(
        default="text",
        pattern=r"^(text|html|attr:[^\s\"'<>/=]+)$",
        description="What to return of each element: `text`, `html`, or `attr:NAME` for an attribute.",
    )
    limit: int | None = Field(default=None, ge=1, le=200, description="Maximum number of elements; default 10.")


class WebScrape(Tool[WebScrapeParams]):
    name = "web_scrape"
    title = "Scrape `{select}` from {url}"
    kind = "fetch"
    reads_only = True
    idempotent = True

    def access(self, params: WebScrapeParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        target = check_url(params.url, NetworkPolicy.from_config(config.web))
        return [NetworkAccess(target.authority, f"GET {target.url}")]

    async def run(self, params: WebScrapeParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        select("", params.select, 1)  # Reports an invalid selector before the page is requested.
        answer = await ctx.web.client.request("GET", params.url)
        html = need_text(answer)
        if answer.content_type == "application/json" or answer.content_type.endswith("+json"):
            raise ToolError(f"{answer.url} is {answer.content_type}, not a web page.", suggestion="Use `fetch`.")
        limit = params.limit or ctx.config.web.scrape_limit
        found, count = await beside(partial(select, html, params.select, limit), answer.url)
        if not found:
            cut = " in the part of the page that is read" if answer.truncated else ""
            return ToolResult(f"Nothing on {answer.url} matches `{params.select}`{cut}.", raw_output=[])
        values = [_cut(_extract(element, params.extract)) for element in found]
        lines = [f"{number}. {value}" for number, value in enumerate(values, 1)]
        if count > len(found):
            lines.append(f"[{len(found)} of {count} elements; give a higher `limit` for more]")
        return ToolResult("\n".join(lines), raw_output=values)


def _extract(element: Element, extract: str) -> str:
    if extract == "text":
        return element.text
    if extract == "html":
        return element.html
    name = extract.removeprefix("attr:")
    return element.attributes.get(name, element.attributes.get(name.lower(), ""))


def _cut(value: str) -> str:
    return value if len(value) <= LONGEST_ELEMENT else value[:LONGEST_ELEMENT] + "[...]"
