"""The known language servers, and which of them handle a file's language. Cheap to import: without pygls.

A row of `lsp.servers` in the configuration with a known name replaces the keys it sets; one with another name defines a
new server, which precedes the known ones.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field, json
from msgspec.structs import replace

from acp_agent.config.language_settings import LspConfig
from acp_agent.own_programs import search_path

TABLE = Path(__file__).with_suffix(".json")
OWN_PROGRAMS = (".venv/bin", "venv/bin", "node_modules/.bin")
"""Where a project keeps its own programs."""


class ServerRow(Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    command: tuple[str, ...] = ()
    languages: Mapping[str, str] = field(default_factory=dict)
    """A file's extension, or its whole name -> LSP language id."""
    root_markers: tuple[str, ...] = ()
    """Names, with `*` patterns, of files that mark its workspace folder."""
    group: str = ""
    """Of servers with the same group, only the first installed one is started."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    enabled: bool = True


MOST_LOOKED_AT = 1_000
NOT_OWN = frozenset(("node_modules", "target", "venv", "__pycache__"))
"""Folders with other people's files."""

PYTHON_TYPES = "python types"


@cache
def known() -> dict[str, ServerRow]:
    """By name, in order of precedence."""
    found = json.decode(TABLE.read_bytes(), type=dict[str, ServerRow])
    return {name: replace(row, name=name) for name, row in found.items()}


def rows(config: LspConfig) -> tuple[ServerRow, ...]:
    """The servers that may be started, in order of precedence."""
    changed: dict[str, ServerRow] = {}
    for name, given in config.servers.items():
        row = known().get(name, ServerRow(name))
        changed[name] = replace(
            row,
            command=tuple(given.command) or row.command,
            languages=given.languages or row.languages,
            root_markers=tuple(given.root_markers) or row.root_markers,
            group=given.group or row.group,
            # A TOML date becomes text in JSON.
            settings=msgspec.to_builtins(given.settings) or row.settings,
            options=msgspec.to_builtins(given.options) or row.options,
            enabled=given.enabled,
        )
    own = [row for name, row in changed.items() if name not in known()]
    every = own + [changed.get(name, row) for name, row in known().items()]
    return tuple(row for row in every if row.enabled and row.command and row.languages)


def language_of(row: ServerRow, path: Path) -> str | None:
    """The LSP language id for the file; None if the server does not handle it. The longest extension wins."""
    for name in (path.name, path.name.lower()):
        found = [ending for ending in row.languages if name == ending or (ending[:1] == "." and name.endswith(ending))]
        if found:
            return row.languages[max(found, key=len)]
    return None


def where(path: Path, folders: Sequence[Path], markers: Sequence[str]) -> Path:
    """The nearest folder at or above the file, within `folders`, that has a marker; else the one of `folders` that
    contains the file, else the first."""
    inside = [folder for folder in folders if path.is_relative_to(folder)]
    if not inside:
        return folders[0]
    top = min(inside, key=lambda folder: len(folder.parts))
    for folder in path.parents:
        if not folder.is_relative_to(top):
            break
        if any(_stands(folder, marker) for marker in markers):
            return folder
    return max(inside, key=lambda folder: len(folder.parts))


def _stands(folder: Path, marker: str) -> bool:
    try:
        return any(folder.glob(marker)) if "*" in marker else (folder / marker).exists()
    except (OSError, ValueError, NotImplementedError):
        return False


def serving(known: Sequence[ServerRow], folders: Sequence[Path]) -> list[ServerRow]:
    """The servers for files that are in the folders, as far as a short look shows: the topmost `MOST_LOOKED_AT`
    entries."""
    names, queue, left = set[str](), list(folders), MOST_LOOKED_AT
    while queue and left > 0:
        try:
            with os.scandir(queue.pop(0)) as entries:
                for entry in islice(entries, left):
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        queue += [] if entry.name.startswith(".") or entry.name in NOT_OWN else [Path(entry.path)]
                    else:
                        names |= {entry.name, f".{entry.name.lower().rpartition('.')[2]}"}
        except OSError:
            continue
    return [row for row in known if not names.isdisjoint(row.languages)]


def any_installed(known: Sequence[ServerRow], folders: Sequence[Path], environ: Mapping[str, str]) -> bool:
    """Whether one of the servers for the folders' files seems to be installed, judging by the names in program
    folders."""
    places = [str(folder / place) for folder in folders for place in OWN_PROGRAMS]
    places += [place for place in environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(place)]
    wanted = {row.command[0] for row in serving(known, folders)}
    return any(os.path.exists(os.path.join(place, name)) for place in dict.fromkeys(places) for name in wanted) or any(
        os.sep in name and os.path.exists(name) for name in wanted
    )


def which(program: str, near: Path, top: Path, environ: Mapping[str, str]) -> str | None:
    """The program's absolute path: the project's own, from the folder `near` up to `top`, else the one on PATH.

    A name with a slash is resolved against `top`."""
    if os.sep in program:
        return shutil.which(str(top / Path(program).expanduser()))
    folders = [folder for folder in (near, *near.parents) if folder.is_relative_to(top)] or [top]
    for folder in folders:
        for place in OWN_PROGRAMS:
            if found := shutil.which(program, path=str(folder / place)):
                return found
    return shutil.which(program, path=search_path(environ.get("PATH", os.defpath)))


def interpreter(folder: Path, top: Path) -> str | None:
    """The Python of the project's own environment, from `folder` up to `top`."""
    for above in (folder, *folder.parents):
        if not above.is_relative_to(top):
            break
        for place in (".venv/bin/python", "venv/bin/python"):
            if found := shutil.which(str(above / place)):
                return found
    return None
