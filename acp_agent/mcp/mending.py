"""Results of servers whose entries are not all valid: what is wrong with one tool or block costs only that.

The package refuses such a result as a whole. So what it would refuse is left out first, or said in its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mcp_types.methods import validate_server_result

from acp_agent.mcp.content import one_line
from acp_agent.mcp.input_schema import fitted

KEYS = {
    "tools/list": "tools",
    "tools/call": "content",
    "prompts/list": "prompts",
    "prompts/get": "messages",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "resources/read": "contents",
}
"""The list in the result of each method."""
MOST_TTL = 1_000_000_000
"""Milliseconds."""
NAMED = 3
"""Places of a schema that are named."""


def mended(method: str, version: str, raw: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """The result of a request. `say` gets a clause for the user about what of a list is not as it should be."""
    key = KEYS.get(method, "")
    if not key or raw.get("resultType", "complete") != "complete":
        return raw
    entries = raw.get(key)
    if not isinstance(entries, list):
        entries = [] if entries is None else [entries]
    if method == "tools/list":
        entries = [_with_schema(entry, say) for entry in entries]
    made = {**raw, key: entries}
    if method not in ("tools/call", "prompts/get"):  # Needed since 2026-07-28, in which a server may forget them.
        ttl = raw.get("ttlMs")
        ttl = min(max(ttl, 0), MOST_TTL) if type(ttl) is int else 0
        made |= {"resultType": "complete", "ttlMs": ttl, "cacheScope": "private"}
    if _fits(method, version, made):
        return made
    made[key] = []
    if method == "tools/call" and not _fits(method, version, made):
        made = {key: [], "isError": raw.get("isError") in (True, 1, "true")}
        entries = entries or [json.dumps(raw.get("structuredContent"), ensure_ascii=False)]
    elif not _fits(method, version, made):
        made = {name: value for name, value in made.items() if name not in ("_meta", "nextCursor")}
    for entry in entries:
        if _fits(method, version, {**made, key: [entry]}):
            made[key].append(entry)
        elif key in ("tools", "prompts", "resources", "resourceTemplates"):
            made[key] += _bare(method, version, made, key, entry, say)
        else:
            made[key].append(_block(key, entry))
    return made


def _fits(method: str, version: str, raw: dict[str, Any]) -> bool:
    try:
        validate_server_result(method, version, raw)
    except ValueError:
        return False
    return True


def _with_schema(tool: Any, say: Callable[[str], None]) -> Any:
    """The tool with the valid part of its schema, and a note about the rest for the model."""
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return tool
    schema, wrong = fitted(tool.get("inputSchema"))
    made = {**tool, "inputSchema": schema}
    if wrong:
        places = ", ".join(one_line(place, 80) for place in wrong[:NAMED])
        places += f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        say(f"the schema of its tool `{one_line(tool['name'], 60)}` is not valid ({places})")
        words = tool["description"] if isinstance(tool.get("description"), str) else ""
        made["description"] = f"{words}\n(What is not valid in its schema is left out: {places}.)".strip()
    return made


def _bare(
    method: str, version: str, raw: dict[str, Any], key: str, entry: Any, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """What of an entry is valid; nothing if that is not enough."""
    given = entry if isinstance(entry, dict) else {}
    wanted = ("name", "description", "inputSchema", "uri", "uriTemplate")
    made = {name: given[name] for name in wanted if isinstance(given.get(name), dict if name == "inputSchema" else str)}
    name = one_line(str(given.get("name") or "without a name"), 60)
    if _fits(method, version, {**raw, key: [made]}):
        say(f"not all that it says of `{name}` is valid")
        return [made]
    say(f"one of its {key} is not valid and left out: {name}")
    return []


def _block(key: str, entry: Any) -> dict[str, Any]:
    """Text in place of an entry of a result."""
    given = entry if isinstance(entry, dict) else {"text": entry}
    kind = given.get("type")
    text = given.get("text")
    if kind not in (None, "text") or not isinstance(text, str):
        text = f"[content {f'of type {one_line(str(kind), 40)}' if kind else 'without a type'} cannot be shown]"
    if key == "contents":
        return {"uri": str(given.get("uri") or ""), "text": text}
    if key == "messages":
        return {"role": "user", "content": _block("content", given.get("content"))}
    return {"type": "text", "text": text}
