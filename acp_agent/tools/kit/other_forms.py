"""Calls in the forms of other agents' tools that no alias or synonym covers. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from acp_agent.errors import ToolError
from acp_agent.tools.kit.registry import plain_name

EDITORS = frozenset(("str_replace_based_edit_tool", "str_replace_editor", "text_editor"))
"""One tool with a `command` for reading, creating and editing."""

COMMANDS = {"view": "read", "create": "write", "str_replace": "edit"}

NAMES = {
    other: ours
    for ours, others in {
        "bash": "run execute exec terminal command run_shell_command bash_command run_bash console cmd",
        "read": "open open_file view view_file cat get_file read_text_file load_file show_file",
        "write": "create_file create save_file new_file overwrite_file write_to_file write_text_file",
        "edit": "replace replace_in_file replace_text apply_edit modify_file update_file str_replace_edit",
        "grep": "search search_text find_in_files search_in_files ripgrep rg file_search",
        "find_path": "find find_file find_files search_path file_glob_search",
        "list_directory": "list list_files list_dir dir list_folder",
        "move_path": "move mv rename rename_file move_rename",
        "copy_path": "copy cp",
        "delete_path": "remove rm remove_file unlink",
        "create_directory": "create_folder make_dir create_dir",
        "fetch": "browse get_url open_url read_url",
        "ask_user": "ask question",
    }.items()
    for other in others.split()
}
"""Names that models make up for our tools, in no schema and no documentation: no rule can be written for them."""
ENDS = frozenset(
    "finish done end exit answer final_answer respond reply submit complete task_complete attempt_completion".split()
)
"""Tools of other agents by which a turn ends."""
PYTHON = frozenset("python python3 python_repl run_python execute_python code_interpreter python_interpreter".split())
CODE = ("code", "script", "source", "program", "input", "content", "query")


def in_our_form(name: str, arguments: Any, *, known: bool) -> tuple[str, Any]:
    """The name and arguments of our tool for a call that means it; others unchanged. `known`: a tool has that name.
    Raises ToolError for a command of an editor tool that no tool of ours has, and for a tool that ends the turn."""
    plain = plain_name(name)
    if known and not (plain == "rename" and isinstance(arguments, dict) and "symbol" not in arguments):
        return name, arguments
    if plain in ENDS:
        raise ToolError(f"There is no tool `{name}`: to end, answer the user in words.", "tool_not_found")
    if plain in PYTHON and isinstance(arguments, dict):
        code = next((arguments[key] for key in CODE if isinstance(arguments.get(key), str)), None)
        return (name, arguments) if code is None else ("bash", {"command": _program(code)})
    if plain not in EDITORS or not isinstance(arguments, dict):
        return NAMES.get(plain, name), arguments
    rest = dict(arguments)
    command = rest.pop("command", None)
    if command not in COMMANDS:
        raise ToolError(
            f"`{name}` has no command {command!r} here.",
            "invalid_parameters",
            suggestion="Use `edit` to change a file (to insert lines, give the line before them as `old_string` and "
            "write it again in `new_string`), `read` or `write`.",
        )
    lines = rest.pop("view_range", None)
    if command == "view" and isinstance(lines, list) and len(lines) == 2 and all(type(line) is int for line in lines):
        first, last = max(lines[0], 1), lines[1]
        rest["offset"] = first
        rest |= {"limit": last - first + 1} if last >= first else {}
    return COMMANDS[command], rest


def _program(code: str) -> str:
    end = "END"
    while end in code:
        end += "_"
    return f"python3 - <<'{end}'\n{code.rstrip()}\n{end}"


def renamed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a tool that renames: a new name without a folder is one in the folder of the old path."""
    path = next((arguments[key] for key in ("path", "source", "file_path", "file") if key in arguments), None)
    new = arguments.get("new_name")
    if not isinstance(path, str) or not isinstance(new, str) or "/" in new:
        return arguments
    return {**arguments, "new_name": str(PurePosixPath(path).parent / new)}
