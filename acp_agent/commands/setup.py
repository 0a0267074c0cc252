"""`acp-coder setup`: adds the agent to an editor's configuration, shown before it is written, and undoes that."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from acp_agent.errors import UsageError
from acp_agent.own_programs import find_program
from acp_agent.setup.change import is_set_up, planned, undone, write
from acp_agent.setup.editor_table import Editor, config_path, editor, editors


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    if options.editor is None:
        return _list(environ)
    row = editor(options.editor)
    path = Path(options.config).absolute() if options.config else config_path(row, environ)
    if options.undo:
        change = undone(row, path, environ)
    else:
        change = planned(row, path, options.program or own_command(), environ)
    if not change.any:
        sys.stdout.write(f"{row.name} is already set up in {path}; nothing to write.\n")
        return 0
    sys.stdout.write(change.diff())
    what = "Remove" if change.after is None else "Write"
    if options.dry_run or not (options.yes or agreed(f"{what} {change.path}?")):
        sys.stdout.write("Nothing was written.\n" + ("" if options.dry_run else "`--yes` writes without asking.\n"))
        return 0
    write(row, change, environ, undo=options.undo)
    if options.undo:
        sys.stdout.write(f"{change.path} is {'removed' if change.after is None else 'written'}.\n")
    else:
        sys.stdout.write(f"{change.path} is written. {row.then}\n`acp-coder setup {row.id} --undo` reverts it.\n")
    return 0


def own_command() -> str:
    """The agent's program by its absolute path: editors are often started with another PATH than a shell."""
    beside = Path(sys.executable).with_name("acp-coder.exe" if sys.platform == "win32" else "acp-coder")
    if beside.exists():
        return str(beside)
    found = find_program("acp-coder")
    if found is None:
        raise UsageError("the program acp-coder was not found; give its path with --program")
    return str(Path(found).absolute())


def _list(environ: Mapping[str, str]) -> int:
    for row in editors().values():
        path = config_path(row, environ)
        sys.stdout.write(f"{row.id:14} {_state(row, path):10} {row.name} ({row.protocol.upper()}): {path}\n")
    sys.stdout.write("`acp-coder setup EDITOR` shows what it would write, then asks.\n")
    return 0


def _state(row: Editor, path: Path) -> str:
    try:
        return "set up" if is_set_up(row, path) else "-"
    except UsageError:
        return "unreadable"


def agreed(question: str) -> bool:
    """Whether the user says yes; no if nobody can be asked."""
    if not sys.stdin.isatty():
        return False
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
