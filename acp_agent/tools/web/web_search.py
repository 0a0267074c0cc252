"""`web_search`: return titles, addresses and snippets from the search engine that the user chose."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from msgspec.structs import asdict
from pydantic import Field

from acp_agent.config.model import ToolsConfig, WebConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import Access, NetworkAccess
from acp_agent.safety.deciding.network import NetworkPolicy, check_url
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult
from acp_agent.tools.net.web_body import WebAnswer, need_text
from acp_agent.tools.net.web_results import DUCKDUCKGO, SearchResult, read_brave, read_duckduckgo, read_searxng
from acp_agent.tools.net.web_text import beside

BRAVE = "https://api.search.brave.com/res/v1/web/search"


class WebSearchParams(Params):
    query: str = Field(min_length=1, max_length=500, description="What to search for.")


class WebSearch(Tool[WebSearchParams]):
    name = "web_search"
    title = "Search the web for {query}"
    kind = "search"
    reads_only = True
    idempotent = True

    def access(self, params: WebSearchParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        target = check_url(_address(params, config.web), NetworkPolicy.from_config(config.web))
        return [NetworkAccess(target.authority, f"a search for {params.query!r}")]

    async def run(self, params: WebSearchParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        config = ctx.config.web
        headers: dict[str, str] = {}
        if config.search_provider == "brave":
            headers = {"accept": "application/json", "x-subscription-token": _key(ctx)}
        answer = await ctx.web.client.request("GET", _address(params, config), headers=headers, any_host=True)
        results = (await beside(partial(_read, answer, config), answer.url))[: config.max_search_results]
        if not results:
            return ToolResult(f"No results for {params.query!r}. Try fewer or other words.", raw_output=[])
        lines = []
        for number, result in enumerate(results, 1):
            lines += [f"{number}. {result.title}", f"   {result.url}"]
            if result.snippet:
                lines.append(f"   {result.snippet}")
        return ToolResult("\n".join(lines), raw_output=[asdict(result) for result in results])


def _address(params: WebSearchParams, config: WebConfig) -> str:
    try:
        if config.search_provider == "duckduckgo":
            return f"{DUCKDUCKGO}?{urlencode({'q': params.query})}"
        if config.search_provider == "brave":
            return f"{BRAVE}?{urlencode({'q': params.query, 'count': min(20, config.max_search_results)})}"
        if not config.searxng_url:
            raise ToolError("No SearXNG server is configured. The user sets it in `tools.web.searxng_url`.")
        return f"{config.searxng_url.rstrip('/')}/search?{urlencode({'q': params.query, 'format': 'json'})}"
    except UnicodeEncodeError as error:
        raise ToolError("The query contains a lone surrogate.", "invalid_parameters") from error


def _key(ctx: ToolContext) -> str:
    name = ctx.config.web.brave_key_env
    key = ctx.web.environ.get(name)
    if not key:
        raise ToolError(
            f"The search needs a Brave Search key in the environment variable {name}; only the user can set it.",
            "policy_blocked",
        )
    return key


def _read(answer: WebAnswer, config: WebConfig) -> list[SearchResult]:
    if config.search_provider == "searxng" and answer.status == 403:
        raise ToolError(
            f"{answer.url.partition('?')[0]} refuses JSON. The user must allow the format `json` in its settings.",
            "policy_blocked",
        )
    text = need_text(answer)
    match config.search_provider:
        case "searxng":
            return read_searxng(text)
        case "brave":
            return read_brave(text)
        case _:
            return read_duckduckgo(text)
