"""Calls in the forms of other agents' tools that no alias or synonym covers. Pure."""

from __future__ import annotations

from typing import Any

from acp_agent.errors import ToolError
from acp_agent.tools.kit.registry import plain_name

EDITORS = frozenset(("str_replace_based_edit_tool", "str_replace_editor", "text_editor"))
"""One tool with a `command` for reading, creating and editing."""

COMMANDS = {"view": "read", "create": "write", "str_replace": "edit"}


def in_our_form(name: str, arguments: Any) -> tuple[str, Any]:
    """The name and arguments of our tool for a call of an editor tool; others unchanged. Raises ToolError for a command
    that no tool of ours has."""
    if plain_name(name) not in EDITORS or not isinstance(arguments, dict):
        return name, arguments
    rest = dict(arguments)
    command = rest.pop("command", None)
    if command not in COMMANDS:
        raise ToolError(
            f"`{name}` has no command {command!r} here. Use `edit` to change a file (to insert lines, give the line "
            "before them as `old_string` and write it again in `new_string`), `read` or `write`.",
            "invalid_parameters",
        )
    lines = rest.pop("view_range", None)
    if command == "view" and isinstance(lines, list) and len(lines) == 2 and all(type(line) is int for line in lines):
        first, last = max(lines[0], 1), lines[1]
        rest["offset"] = first
        rest |= {"limit": last - first + 1} if last >= first else {}
    return COMMANDS[command], rest
