"""`browser`: use a page as a user would, with its scripts running."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec.structs import replace
from pydantic import Field, model_validator

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.lazy import load
from acp_agent.llm.base import ImagePart
from acp_agent.safety.access import Access, NetworkAccess, NoAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import Content, ImageContent, TextContent
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult
from acp_agent.tools.net.browser_session import PLAYWRIGHT_TIMEOUT

MAX_CHARS = 20_000
MAX_LINKS = 100
TITLE_CHARS = 100

SETTLE_TIMEOUT = 3.0
"""Seconds to wait for a page that is still loading; then it is used as it is."""

NEEDS = {"open": ("url",), "click": ("selector",), "type": ("selector", "text")}

LINKS = """() => Array.from(document.querySelectorAll('a[href]'))
    .map(a => [a.innerText.trim().replace(/\\s+/g, ' ').slice(0, 100), a.href])"""


class BrowserParams(Params):
    action: Literal["open", "text", "links", "screenshot", "click", "type", "close"] = Field(
        description="What to do. All but `open` use the open page."
    )
    url: str = Field(default="", description="For `open`.")
    selector: str = Field(default="", description="For `click` and `type`: a CSS selector, or `text=Log in`.")
    text: str = Field(default="", description="For `type`: what to type; a line break at the end presses Enter.")

    @model_validator(mode="after")
    def _complete(self) -> BrowserParams:
        for name in NEEDS.get(self.action, ()):
            if not getattr(self, name):
                raise ValueError(f"`{self.action}` needs `{name}`")
        return self


class Browser(Tool[BrowserParams]):
    name = "browser"
    kind = "fetch"

    def describe(self, params: BrowserParams, roots: Roots) -> Description:
        what = {"open": params.url, "click": params.selector, "type": params.selector}.get(params.action, "")
        return Description(f"Browser: {params.action} {what[:TITLE_CHARS]}".rstrip())

    def access(self, params: BrowserParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        if params.action == "open":
            try:
                parts = urlsplit(params.url)
                host = (parts.hostname or params.url).lower()
                host = host if parts.port in (None, 80, 443) else f"{host}:{parts.port}"
            except ValueError:
                host = params.url
            return [NetworkAccess(host, f"the browser opens {params.url}")]
        return [NoAccess()]

    async def preview(self, params: BrowserParams, ctx: ToolContext) -> Preview:
        _check_page(params, ctx)
        browser = ctx.web.browser
        url = browser.url
        match params.action:
            case "click":
                text = f"Clicks `{params.selector}` on {url}"
            case "type":
                enter = ", then presses Enter" if params.text.endswith("\n") else ""
                text = f"Types into `{params.selector}` on {url}{enter}:\n\n{params.text.rstrip(chr(10))}"
            case _:
                return Preview()
        sends = NetworkAccess(browser.host, f"the browser does `{params.action}` on {url}", sends=True)
        return Preview((Content(content=TextContent(text=text)),), accesses=(sends,) if browser.host else ())

    async def run(self, params: BrowserParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        browser = ctx.web.browser
        if params.action == "close":
            browser.stop()
            return ToolResult("The browser is closed.")
        if params.action == "open":
            await ctx.web.client.locate(params.url)  # Fails with the reason before a browser is started for it.
        _check_page(params, ctx)
        before = browser.refusals

        async def work(page: Any) -> ToolResult:
            return await _act(page, params)

        result = await browser.do(work)
        refused = browser.refused_since(before)
        if refused:
            note = f"\n[{len(refused)} requests of the page were refused, the first: {refused[0][:300]}]"
            return replace(result, text=result.text + note)
        return result


def _check_page(params: BrowserParams, ctx: ToolContext) -> None:
    if params.action not in ("open", "close") and not ctx.web.browser.url:
        raise ToolError("No page is open. Open one first.", suggestion='Call {"action": "open", "url": "https://…"}.')


async def _act(page: Any, params: BrowserParams) -> ToolResult:
    note = ""
    match params.action:
        case "open":
            answer = await page.goto(params.url, wait_until="domcontentloaded")
            note = await _settle(page)
            status = answer.status if answer is not None else 0
            head = "" if status < 400 else f"[HTTP status {status}]\n"
            return ToolResult(head + await _text(page) + note, failed=status >= 400)
        case "links":
            found = [f"- [{words or '…'}]({href})" for words, href in await page.evaluate(LINKS)]
            more = f"\n[{len(found) - MAX_LINKS} more]" if len(found) > MAX_LINKS else ""
            return ToolResult("\n".join(found[:MAX_LINKS]) + more or "The page has no links.")
        case "screenshot":
            data = base64.b64encode(await page.screenshot(type="png")).decode()
            text = f"Screenshot of {page.url}"
            image = Content(content=ImageContent(data=data, mime_type="image/png"))
            shown = (Content(content=TextContent(text=text)), image)
            return ToolResult(text, shown, (ImagePart("image/png", data),))
        case "click":
            await page.click(params.selector)
            note = await _settle(page)
        case "type":
            await page.fill(params.selector, params.text.rstrip("\n"))
            if params.text.endswith("\n"):
                await page.press(params.selector, "Enter")
                note = await _settle(page)
    return ToolResult(await _text(page) + note)


async def _settle(page: Any) -> str:
    """Waits for what a page does immediately; never long for one that keeps loading, which is said."""
    try:
        await page.wait_for_load_state("load", timeout=SETTLE_TIMEOUT * 1000)
    except load(PLAYWRIGHT_TIMEOUT):
        return "\n[the page was still loading]"
    return ""


async def _text(page: Any) -> str:
    text = await page.evaluate("() => document.body ? document.body.innerText : ''")
    cut = f"\n[cut after {MAX_CHARS} characters]" if len(text) > MAX_CHARS else ""
    return f"{page.url}\nTitle: {await page.title()}\n\n{text[:MAX_CHARS].strip()}{cut}"
