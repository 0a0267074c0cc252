"""The table of editors (`editors/editors.toml`) and the templates beside it, as the program finds them."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

import acp_agent
from acp_agent.errors import UsageError

Way = Literal["json", "helix", "block", "file"]
"""How the change is made: one member of a JSON file, Helix's `languages.toml`, marked lines, or a file of our own."""

SHIPPED = "_editors"
"""Where a wheel has the folder `editors` (pyproject.toml)."""


class Editor(Struct, frozen=True):
    """One row."""

    id: str
    name: str
    protocol: Literal["acp", "lsp"]
    starts: str
    """How the editor starts the agent, in a sentence."""
    capabilities: tuple[str, ...]
    """The client capabilities of ACP or LSP that it offers, by their own names."""
    config: Mapping[str, tuple[str, ...]]
    """Platform -> where its configuration may live; the first that exists, else the first."""
    way: Way
    template: str
    """The file with the text that is written, below `editors/`."""
    at: tuple[str, ...] = ()
    """For JSON: the member that is set."""
    comment: str = ""
    """For marked lines: what begins a comment."""
    then: str = ""
    """The user's next step."""
    docs: str = ""


def folder() -> Path:
    """The folder `editors`: of the wheel, or of the repository."""
    package = Path(acp_agent.__file__).parent
    shipped = package / SHIPPED
    return shipped if shipped.is_dir() else package.parent / "editors"


def editors() -> dict[str, Editor]:
    """All rows by id, in the order of the file."""
    data = tomllib.loads((folder() / "editors.toml").read_text(encoding="utf-8"))
    return {name: _row(name, values) for name, values in data.items()}


def editor(name: str) -> Editor:
    """Raises UsageError naming the known ones."""
    known = editors()
    if name not in known:
        raise UsageError(f"unknown editor {name!r}; known are {', '.join(known)}")
    return known[name]


def _row(name: str, values: Mapping[str, Any]) -> Editor:
    config = {platform: tuple(paths) for platform, paths in values["config"].items()}
    lists: dict[str, Any] = {key: tuple(values[key]) for key in ("capabilities", "at") if key in values}
    rest = {key: value for key, value in values.items() if key not in ("config", *lists)}
    return Editor(id=name, config=config, **lists, **rest)


def config_path(row: Editor, environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Where this user's configuration of the editor lives, or would."""
    system = {"darwin": "macos", "win32": "windows"}.get(platform, "linux")
    paths = [_expanded(text, environ) for text in row.config.get(system, row.config["linux"])]
    return next((path for path in paths if path.exists()), paths[0])


def _expanded(text: str, environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~")
    variables = {
        "HOME": home,
        "CONFIG": environ.get("XDG_CONFIG_HOME") or f"{home}/.config",
        "APPDATA": environ.get("APPDATA") or f"{home}/AppData/Roaming",
        "LOCALAPPDATA": environ.get("LOCALAPPDATA") or f"{home}/AppData/Local",
    }
    for name, value in variables.items():
        text = text.replace(f"{{{name}}}", value)
    return Path(text)
