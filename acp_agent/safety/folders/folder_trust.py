"""The files of a folder that take effect only if the user trusts it: configuration (including hooks and MCP servers),
tools, the programs of hooks, and what the folder has for other agents.

Trust applies to a folder and the exact bytes of these files, and is stored outside it: if a pulled commit changes one,
the user is asked again. Until then the files have no effect.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from acp_agent.safety.folders.paths import read_regular, real_path

FOLDER = ".acp-coder"
CONFIG = f"{FOLDER}/config.toml"
TOOLS = f"{FOLDER}/tools"
HOOKS = f"{FOLDER}/hooks"
OTHERS = ".claude"
"""What the folder has for other agents."""
SETTINGS = f"{OTHERS}/settings.json"
"""Of which the hooks are used."""
THEIR_HOOKS = f"{OTHERS}/hooks"
SERVERS = ".mcp.json"
"""Its MCP servers, also those for other agents."""
MARKDOWN = (f"{OTHERS}/commands", f"{OTHERS}/agents")

MAX_FILES = 100
MAX_FILE_BYTES = 500_000
MARK_CHARS = 12


def own_files(folder: Path) -> dict[str, bytes]:
    """Relative path -> current bytes.

    Only regular files, no links or pipes; each is read once, and exactly those bytes are shown, hashed and used.
    """
    found: dict[str, bytes] = {}
    for inside, name in ((FOLDER, CONFIG), (OTHERS, SETTINGS)):
        try:
            if _is_here(folder, inside) and (data := _regular(folder / name)) is not None:
                found[name] = data
        except OSError:
            continue
    if (data := _regular(folder / SERVERS)) is not None:
        found[SERVERS] = data
    for inside, belongs in BELONGS.items():
        try:
            names = _names(folder, inside) if _is_here(folder, inside) else []
        except OSError:
            continue
        for name in [name for name in names if belongs(name)][:MAX_FILES]:
            if (data := _regular(folder / inside / name)) is not None:
                found[f"{inside}/{name}"] = data
    return found


def _is_here(folder: Path, inside: str) -> bool:
    """Whether it is a folder there, not a link out of it."""
    return os.path.isdir(folder / inside) and real_path(folder / inside) == real_path(folder) / inside


def _names(folder: Path, inside: str) -> list[str]:
    """Of the entries of a folder, by name; also those one folder deeper, but for tools."""
    names = sorted(os.listdir(folder / inside))
    if inside != TOOLS:
        deeper = [name for name in names if _is_here(folder, f"{inside}/{name}")]
        names += [f"{name}/{each}" for name in deeper for each in sorted(os.listdir(folder / inside / name))]
    return names


def tools_of(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The tools among the files: file name -> bytes."""
    return {name.removeprefix(f"{TOOLS}/"): data for name, data in files.items() if name.startswith(f"{TOOLS}/")}


def scope_of(files: Mapping[str, bytes]) -> str:
    """A digest that identifies trusted files: it changes with every byte."""
    state = hashlib.sha256()
    for name, data in sorted(files.items()):
        state.update(f"{name}\0".encode("utf-8", "surrogateescape"))
        state.update(hashlib.sha256(data).digest())
    return f"files {state.hexdigest()}"


def mark_of(scope: str) -> str:
    """A prefix of it, short enough to type."""
    return scope.rpartition(" ")[2][:MARK_CHARS]


def _is_markdown(name: str) -> bool:
    return name.endswith(".md")


def _is_tool(name: str) -> bool:
    return name.endswith(".py") and not name.startswith("_")


def _regular(file: Path) -> bytes | None:
    try:
        return read_regular(file, MAX_FILE_BYTES)
    except OSError:
        return None


BELONGS: dict[str, Callable[[str], bool]] = {
    TOOLS: _is_tool,
    HOOKS: bool,
    THEIR_HOOKS: bool,
    **dict.fromkeys(MARKDOWN, _is_markdown),
}
"""Folder -> which of its files are meant."""
