"""`acp-coder uninstall`: what this program has put on the machine; with `--purge` it is removed.

The program itself is removed by what installed it.
"""

from __future__ import annotations

import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from acp_agent.commands.setup import agreed
from acp_agent.config.credentials import forget_key, stored_names
from acp_agent.config.xdg import config_dir, data_dir, state_dir
from acp_agent.errors import UsageError
from acp_agent.legible import legible, size_words
from acp_agent.loop.shell.worktrees import folder_of
from acp_agent.setup.change import is_set_up, undone, write
from acp_agent.setup.editor_table import Editor, config_path, editors

FOLDERS = (
    (config_dir, "configuration, sub-agents, commands, keys"),
    (state_dir, "sessions, undo, log, audit log, answers to questions"),
    (data_dir, "plugins"),
)
HOW = "The program itself: as it was installed (`pip uninstall acp-coder`, `uv tool uninstall acp-coder`)."


class _Found(Struct, frozen=True):
    folders: list[tuple[Path, str]]
    editors: list[tuple[Editor, Path]]
    keys: list[str]
    """Names of providers with a stored key."""

    @property
    def lines(self) -> Iterator[str]:
        for path, what in self.folders:
            yield f"{legible(str(path))}: {what} ({size_words(size) if (size := _size(path)) else 'empty'})"
        for row, path in self.editors:
            yield f"{legible(str(path))}: the entry in the configuration of {row.name}"
        if self.keys:
            yield f"stored keys: {legible(', '.join(self.keys))}"


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """Returns 0 if it was told, or done; 1 if the user said no. Raises UsageError where work would be lost."""
    found = _found(environ)
    lines = list(found.lines)
    sys.stdout.write("On this machine:\n" if lines else "Nothing of acp-coder's is on this machine.\n")
    sys.stdout.write("".join(f"- {line}\n" for line in lines))
    if not lines or not options.purge:
        sys.stdout.write("`acp-coder uninstall --purge` removes this.\n" if lines else "")
        sys.stdout.write(f"{HOW}\n")
        return 0
    if kept := [path for path in folder_of(Path(state_dir(environ))).glob("*") if path.is_dir()]:
        raise UsageError(
            f"sessions have worktrees in {legible(str(kept[0].parent))}, in which there may be work: `git worktree "
            "list` in their repositories names them, `/worktree remove NAME` in a session removes one; nothing was "
            "removed"
        )
    if not (options.yes or agreed("Close editors and terminals that use it first. Remove all of this?")):
        sys.stdout.write("Nothing was removed. `--yes` removes without asking.\n")
        return 1
    for row, path in found.editors:
        write(row, undone(row, path, environ), environ, undo=True)
    for name in (*found.keys, "default"):
        forget_key(name, environ)
    for path, _ in found.folders:
        if path.is_symlink():
            path.unlink()  # What it leads to is the user's own.
        else:
            shutil.rmtree(path)
    sys.stdout.write(f"All of this is removed. {HOW}\n")
    return 0


def _found(environ: Mapping[str, str]) -> _Found:
    folders = [(Path(folder(environ)), what) for folder, what in FOLDERS]
    rows = [(row, config_path(row, environ)) for row in editors().values()]
    return _Found(
        [(path, what) for path, what in folders if path.is_dir()],
        [(row, path) for row, path in rows if _set_up(row, path)],
        stored_names(environ),
    )


def _set_up(row: Editor, path: Path) -> bool:
    try:
        return is_set_up(row, path)
    except UsageError:
        return False  # What cannot be read has nothing of ours that could be taken out.


def _size(path: Path) -> int:
    return sum(each.lstat().st_size for each in path.rglob("*") if not each.is_dir())
