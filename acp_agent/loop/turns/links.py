"""Links in a prompt: web pages are read for the model, through the same guard as `fetch`; files stay in their folders.

Each page is shown as a `fetch` call, so that the user sees what was requested.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from acp_agent.errors import ToolError
from acp_agent.lazy import load
from acp_agent.llm.base import ToolUse
from acp_agent.loop.calls.call import Call
from acp_agent.loop.calls.reports import CANCELLED, Reports
from acp_agent.loop.judging import judged
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import ContentBlock, EmbeddedResource, ResourceLink, TextContent, TextResourceContents
from acp_agent.tools.kit.registry import ToolEntry
from acp_agent.tools.kit.tool_context import Description, ToolResult

if TYPE_CHECKING:
    from acp_agent.tools.net.web_access import WebAccess

READ_LINK = "acp_agent.tools.net.web_text:read_link"

MAX_LINKS = 8
"""Pages read for one prompt; further links stay links."""


async def with_linked_pages(
    blocks: Sequence[ContentBlock],
    *,
    web: WebAccess,
    roots: Roots,
    reports: Reports,
    entry: ToolEntry | None,
    max_chars: int,
) -> list[ContentBlock]:
    """Returns the prompt with the text of each linked page after its link, or a line that says why it is missing.
    `entry`: the tool `fetch`; without it nothing is fetched."""
    found = [block for block in blocks if isinstance(block, ResourceLink)]
    links = [link for link in found if link.uri.lower().startswith(("https://", "http://"))]
    pages: dict[int, ContentBlock] = {}

    async def read(link: ResourceLink, entry: ToolEntry) -> None:
        pages[id(link)] = await _read(link, web, reports, entry, max_chars)

    if entry is not None:
        async with anyio.create_task_group() as tasks:
            for link in links[:MAX_LINKS]:
                tasks.start_soon(read, link, entry)
    outside = await judged(roots, lambda: {id(link) for link in found if _leads_out(link.uri, roots)})
    expanded: list[ContentBlock] = []
    for block in blocks:
        expanded.append(block)
        if (page := pages.get(id(block))) is not None:
            expanded.append(page)
        elif id(block) in outside:
            expanded.append(TextContent(text="(outside this session's folders: it cannot be read)"))
    return expanded


async def _read(link: ResourceLink, web: WebAccess, reports: Reports, entry: ToolEntry, max_chars: int) -> ContentBlock:
    arguments = {"url": link.uri}
    call = Call(ToolUse("", entry.name, json.dumps(arguments)), name=entry.name)
    reports.announce(call, entry, Description(f"Read the linked page {link.uri}"), arguments)
    reports.update(call, status="in_progress")
    try:
        read_link = await anyio.to_thread.run_sync(load, READ_LINK)
        text = await read_link(web.client, link.uri, max_chars)
    except ToolError as error:
        reports.fail(call, error)
        return TextContent(text=f"(the page {link.uri} could not be read: {error})")
    except anyio.get_cancelled_exc_class():
        reports.fail(call, ToolError(CANCELLED, "cancelled"))
        raise
    reports.complete(call, ToolResult(text), clean=False)
    return EmbeddedResource(resource=TextResourceContents(uri=link.uri, text=text))


def _leads_out(uri: str, roots: Roots) -> bool:
    try:
        if urlsplit(uri).scheme != "file":
            return False
        return not roots.contains(roots.absolute(uri))
    except (ToolError, ValueError):
        return True
