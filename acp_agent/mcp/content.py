"""Turns a server's content into content for a model: size-limited text and images, never anything else.

The functions take MCP's content as JSON (`{"type": "text", ...}`), so that they do not depend on the package.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any

from acp_agent.lazy import pattern
from acp_agent.mcp.base import McpContent, McpLink, McpResult

IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""Image types that models accept."""

ESCAPES = pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""A terminal's colours and titles."""
CONTROLS = pattern("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")
LINKS = 50
"""Links of a result that are passed on as such."""
BINARY_SHARE = 0.1
"""Text with a higher share of control characters is not text."""


def readable(text: str) -> str:
    """The text without control characters; a description instead of binary data."""
    text = ESCAPES.sub("", text).encode("utf-8", "replace").decode("utf-8")
    text = text.replace("\r\n", "\n")
    junk = len(CONTROLS.findall(text))
    if junk > 8 and junk > len(text) * BINARY_SHARE:
        return f"[{len(text)} characters of binary data are not shown]"
    return CONTROLS.sub("", text) if junk else text


def one_line(text: str, limit: int) -> str:
    """A server's text as a title or question: one line of at most `limit` characters."""
    line = " ".join(readable(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def read_content(blocks: Iterable[dict[str, Any]], limit: int) -> tuple[str, tuple[McpContent, ...]]:
    """Text (joined by newlines) and images, together about `limit` bytes at most; omissions are mentioned."""
    texts: list[str] = []
    images: list[McpContent] = []
    left = limit
    for block in blocks:
        image = _image(block)
        if image is not None:
            if len(image.data) > left:
                texts.append(f"[an image of {len(image.data) * 3 // 4} bytes is too large and not shown]")
                continue
            left -= len(image.data)
            images.append(image)
            continue
        text = _text(block)
        data = text.encode("utf-8", "replace")
        if len(data) > left:
            kept = data[:left].decode("utf-8", "ignore")
            texts.append(f"{kept}\n[{len(data) - len(kept.encode())} more bytes of the result are not shown]")
            left = 0
        else:
            left -= len(data)
            texts.append(text)
    return "\n".join(texts), tuple(images)


def read_result(raw: dict[str, Any], limit: int) -> McpResult:
    """Reads the JSON of a `tools/call` result. Structured content becomes the text if there is no other."""
    blocks = raw.get("content") or ()
    text, images = read_content(blocks, limit)
    structured = raw.get("structuredContent")
    if structured is not None:
        encoded = json.dumps(structured, ensure_ascii=False)
        if len(encoded.encode("utf-8", "replace")) > limit:
            structured = None
        if not text.strip() and not images:
            text, _ = read_content([{"type": "text", "text": encoded}], limit)
    links = tuple(_link(block) for block in blocks if block.get("type") == "resource_link")
    if len(links) > LINKS:
        text = f"{text}\n[{len(links) - LINKS} more links are not shown]".lstrip("\n")
    return McpResult(text, images, links[:LINKS], structured, bool(raw.get("isError")))


def progress_line(progress: float, total: float | None, message: str | None) -> str:
    """What a server says of a call's progress."""
    count = f"{progress:g}" + (f" of {total:g}" if total else "")
    return f"{one_line(message, 200)} ({count})" if message else count


def _link(block: dict[str, Any]) -> McpLink:
    words = [one_line(str(block.get(key) or ""), 1000) for key in ("uri", "name", "title", "description", "mimeType")]
    return McpLink(*words)


def _image(block: dict[str, Any]) -> McpContent | None:
    """The image in a block, if models accept its type."""
    if block.get("type") == "resource" and "blob" in block.get("resource", {}):
        block = {"type": "image", "data": block["resource"]["blob"], "mimeType": block["resource"].get("mimeType")}
    mime = str(block.get("mimeType") or "").lower()
    if block.get("type") != "image" or mime not in IMAGES:
        return None
    data = str(block.get("data", ""))
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return McpContent(mime, data) if data else None


def _text(block: dict[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return readable(str(block.get("text", "")))
        case "image" | "audio" as kind:
            return f"[{kind}, {_kind(block)}: cannot be shown]"
        case "resource_link":
            words = [str(block.get(key) or "") for key in ("title", "name", "uri", "description")]
            title, name, uri, description = words
            line = f"[resource] {title or name}: {uri}" + (f" ({description})" if description else "")
            return one_line(line, 1000)
        case "resource":
            resource = block.get("resource", {})
            uri = one_line(str(resource.get("uri", "")), 500)
            if "text" in resource:
                return f"[resource {uri}]\n{readable(str(resource['text']))}"
            size = len(str(resource.get("blob", ""))) * 3 // 4
            return f"[resource {uri}, {_kind(resource)}, {size} bytes: cannot be shown]"
    return f"[content of type {one_line(str(block.get('type')), 40)} cannot be shown]"


def _kind(block: dict[str, Any]) -> str:
    return one_line(str(block.get("mimeType") or "unknown type"), 80)
