"""Diagnostics of TypeScript's server, requested with its own command.

typescript-language-server publishes them without a version, after a pause, and not at all for a file that remains free
of diagnostics, so there is no telling when to stop waiting. The server behind it answers this command immediately.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lsprotocol import types

from acp_agent.lsp.answers import diagnostics
from acp_agent.schema.lsp_types import Diagnostic

COMMAND = "typescript.tsserverRequest"
REQUESTS = ("syntacticDiagnosticsSync", "semanticDiagnosticsSync")
SEVERITIES = {"error": 1, "warning": 2, "message": 3, "suggestion": 4}

Ask = Callable[[str, Any], Awaitable[Any]]


async def look(ask: Ask, uri: str) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for request in REQUESTS:
        params = types.ExecuteCommandParams(command=COMMAND, arguments=[request, {"file": uri}])
        answer = await ask(types.WORKSPACE_EXECUTE_COMMAND, params)
        body = answer.get("body") if isinstance(answer, dict) else None
        found += diagnostics(
            [_as_lsp(each) for each in body if isinstance(each, dict)] if isinstance(body, list) else []
        )
    return found


def _as_lsp(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "range": {"start": _position(item.get("start")), "end": _position(item.get("end"))},
        "message": item.get("text"),
        "code": item.get("code"),
        "severity": SEVERITIES.get(str(item.get("category")), 1),
        "source": item.get("source") or "typescript",
    }


def _position(place: Any) -> dict[str, int] | None:
    if isinstance(place, dict) and isinstance(place.get("line"), int) and isinstance(place.get("offset"), int):
        return {"line": place["line"] - 1, "character": place["offset"] - 1}
    return None
