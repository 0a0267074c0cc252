"""Converts a web answer to text for the model: pages as their main text, other text unchanged. Without pydantic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread

from acp_agent.errors import ToolError
from acp_agent.tools.net.web_body import WebAnswer, need_text
from acp_agent.tools.net.web_client import GuardedClient
from acp_agent.tools.net.web_page import page_text

READING_TIMEOUT = 10.0
"""Seconds for parsing a page. Endless nesting takes far longer."""

T = TypeVar("T")


async def read_link(client: GuardedClient, url: str, max_chars: int) -> str:
    """The text behind a link given by the user, wherever it leads, as `fetch` returns it. Raises only ToolError."""
    return await readable(await client.request("GET", url, any_host=True), max_chars)


async def readable(answer: WebAnswer, max_chars: int) -> str:
    """Its address, its title, its text. Raises ToolError for an error status and for anything but text."""
    text = need_text(answer)
    head = [answer.url]
    if len(answer.hops) > 1:
        head.append(f"(redirected from {answer.hops[0]})")
    if looks_like_html(answer.content_type, text):
        page = await beside(partial(page_text, text, answer.url, max_chars), answer.url)
        if page.title:
            head.append(f"Title: {page.title}")
        body, cut = page.text or "[the page has no text; it may be rendered by scripts]", page.truncated
    else:
        body, cut = text[:max_chars], len(text) > max_chars
    if cut:
        body += f"\n[cut after {max_chars} characters; `max_chars` returns more]"
    elif answer.truncated:
        body += "\n[the response was too long; its end is missing]"
    return "\n".join(head) + "\n\n" + body


async def beside(work: Callable[[], T], url: str) -> T:
    """Runs `work` on a page in a thread: it may take long, and the parser does not block the event loop meanwhile.

    Raises ToolError after `READING_TIMEOUT`; the thread is then left to end by itself.
    """
    try:
        with anyio.fail_after(READING_TIMEOUT):
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except TimeoutError as error:
        raise ToolError(f"The page {url} is too deeply nested to be read. Use another source.") from error


def looks_like_html(content_type: str, text: str) -> bool:
    if content_type:
        return content_type in ("text/html", "application/xhtml+xml")
    start = text[:1024].lstrip("\ufeff \t\r\n").lower()
    return start.startswith(("<!doctype html", "<html", "<head", "<body"))
