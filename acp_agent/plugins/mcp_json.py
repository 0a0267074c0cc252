"""The MCP servers that a folder has in `.mcp.json`, the file that Claude Code and others read. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from acp_agent.config.mcp_settings import McpServerConfig
from acp_agent.limits.decoding import read_loose_json
from acp_agent.plugins.manifest import claude_server

FILE = ".mcp.json"
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def folder_servers(data: bytes, environ: Mapping[str, str]) -> tuple[dict[str, McpServerConfig], list[str]]:
    """Returns the servers by name, and what is wrong with others. `environ`: the variables that may stand in them."""
    try:
        value = read_loose_json(data)
        servers = value["mcpServers"]
        entries = dict(servers.items())
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}, [f"{FILE}: it is not JSON with an object `mcpServers`."]
    found: dict[str, McpServerConfig] = {}
    trouble: list[str] = []
    for name, entry in entries.items():
        try:
            found[name] = claude_server(name, _expanded(entry, environ))
        except ValueError as error:
            trouble.append(f"{FILE}: the server {name!r} is left out: {error}.")
    return found, trouble


def _expanded(value: Any, environ: Mapping[str, str]) -> Any:
    """With `${NAME}` and `${NAME:-default}` replaced in its texts. Raises ValueError for a variable that is not set."""

    def text_of(match: re.Match[str]) -> str:
        name, default = match.groups()
        text = environ.get(name, "") or default
        if text is None:
            raise ValueError(f"the variable {name} is not set, or none that commands inherit")
        return text

    match value:
        case str():
            return VARIABLE.sub(text_of, value)
        case list():
            return [_expanded(each, environ) for each in value]
        case dict():
            return {key: _expanded(each, environ) for key, each in value.items()}
    return value
