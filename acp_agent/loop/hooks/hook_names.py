"""The names that Claude Code has for our tools and their parameters: hooks are written for these. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class Theirs(Struct, frozen=True):
    name: str
    keys: Mapping[str, str] = {}
    """Our parameter -> theirs, where they differ."""


TOOLS: dict[str, Theirs] = {
    "bash": Theirs("Bash", {"background": "run_in_background"}),
    "bash_kill": Theirs("KillShell", {"run_id": "shell_id"}),
    "bash_output": Theirs("BashOutput", {"run_id": "bash_id"}),
    "read": Theirs("Read", {"path": "file_path"}),
    "write": Theirs("Write", {"path": "file_path"}),
    "edit": Theirs("Edit", {"path": "file_path"}),
    "edit_notebook": Theirs("NotebookEdit", {"path": "notebook_path", "cell": "cell_id"}),
    "find_path": Theirs("Glob"),
    "grep": Theirs("Grep"),
    "list_directory": Theirs("LS"),
    "fetch": Theirs("WebFetch"),
    "web_search": Theirs("WebSearch"),
    "delegate": Theirs("Task", {"title": "description"}),
    "plan": Theirs("TodoWrite", {"entries": "todos"}),
    "skill": Theirs("Skill", {"name": "skill"}),
    "switch_mode": Theirs("ExitPlanMode"),
    "ask_user": Theirs("AskUserQuestion"),
}

SEVERAL = "MultiEdit"
"""Their `edit` with several replacements."""
PATHS = frozenset(("file_path", "notebook_path"))
"""Their parameters that hold absolute paths."""
MILLISECONDS = {"bash": "timeout"}
"""Parameters that are seconds with us."""
MCP, THEIR_MCP = "mcp_", "mcp__"


def their_names(tool: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Their names for one of our tools, the one that hooks are told first; empty if they have none.

    `mcp_SERVER_TOOL` is `mcp__SERVER__TOOL`, divided at each place where the server's name may end.
    """
    if tool.startswith(MCP):
        words = tool.removeprefix(MCP).split("_")
        return tuple(f"{THEIR_MCP}{'_'.join(words[:end])}__{'_'.join(words[end:])}" for end in range(1, len(words)))
    known = TOOLS.get(tool)
    if known is None:
        return ()
    return (SEVERAL, known.name) if tool == "edit" and arguments.get("edits") else (known.name,)


def in_their_form(tool: str, arguments: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    """The arguments with their names; paths of files are absolute."""
    keys = TOOLS[tool].keys if tool in TOOLS else {}
    found = {keys.get(name, name): value for name, value in arguments.items()}
    for name in PATHS & found.keys():
        if isinstance(found[name], str):
            found[name] = os.path.join(cwd, found[name])
    seconds = MILLISECONDS.get(tool, "")
    if isinstance(found.get(seconds), int | float):
        found[seconds] = round(1000 * found[seconds])
    return found


def in_our_names(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What `in_their_form` does, taken back."""
    keys = {theirs: ours for ours, theirs in TOOLS[tool].keys.items()} if tool in TOOLS else {}
    found = {keys.get(name, name): value for name, value in arguments.items()}
    seconds = MILLISECONDS.get(tool, "")
    if isinstance(found.get(seconds), int | float):
        found[seconds] = found[seconds] / 1000
    return found
