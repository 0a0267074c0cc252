"""An answer from the web as text for the model: pages as their main text, other text as it is. Free of pydantic."""

from __future__ import annotations

from functools import partial

import anyio.to_thread

from acp_agent.tools.web_body import WebAnswer, need_text
from acp_agent.tools.web_client import GuardedClient
from acp_agent.tools.web_page import page_text

__all__ = ["read_link", "readable"]


async def read_link(client: GuardedClient, url: str, max_chars: int) -> str:
    """The text behind `url`, as `fetch` gives it. Raises ToolError and nothing else."""
    return await readable(await client.request("GET", url), max_chars)


async def readable(answer: WebAnswer, max_chars: int) -> str:
    """Where it came from, its title, its text. Raises ToolError for a bad status and for what is no text."""
    text = need_text(answer)
    head = [answer.url]
    if len(answer.hops) > 1:
        head.append(f"(redirected from {answer.hops[0]})")
    if looks_like_html(answer.content_type, text):
        # The walk through a large page would hold up everything else.
        page = await anyio.to_thread.run_sync(partial(page_text, text, answer.url, max_chars))
        if page.title:
            head.append(f"Title: {page.title}")
        body, cut = page.text or "[the page has no text of its own; it may be made by scripts]", page.truncated
    else:
        body, cut = text[:max_chars], len(text) > max_chars
    if cut:
        body += f"\n[cut after {max_chars} characters; `max_chars` gives more]"
    elif answer.truncated:
        body += "\n[the answer was longer than is read; its end is missing]"
    return "\n".join(head) + "\n\n" + body


def looks_like_html(content_type: str, text: str) -> bool:
    if content_type:
        return content_type in ("text/html", "application/xhtml+xml")
    start = text[:1024].lstrip("\ufeff \t\r\n").lower()
    return start.startswith(("<!doctype html", "<html", "<head", "<body"))
