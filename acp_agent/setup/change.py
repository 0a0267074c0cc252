"""Changes an editor's configuration: what would be written, writing it, and undoing it.

Nothing else in the file changes, and the original is kept in the state folder until it is undone: a file unchanged
since then is restored byte by byte; from any other, only what was written is removed.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from acp_agent.config.xdg import state_dir
from acp_agent.errors import UsageError
from acp_agent.own_programs import find_program
from acp_agent.setup.editor_table import Editor, folder
from acp_agent.setup.helix import add, ask_helix, remove
from acp_agent.setup.json_text import get_member, remove_member, set_member

BEGIN = "acp-coder setup: begin (these lines are written by it)"
END = "acp-coder setup: end"


class Change(Struct, frozen=True):
    """A planned change of a file."""

    path: Path
    before: str | None
    """None: it does not exist."""
    after: str | None
    """None: it is to be removed."""

    @property
    def any(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """As `diff -u` shows it."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            str(self.path) if self.before is not None else "/dev/null",
            str(self.path) if self.after is not None else "/dev/null",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def planned(row: Editor, path: Path, command: str, environ: Mapping[str, str]) -> Change:
    """Returns what setting the editor up would write. Raises UsageError for a file that cannot be read or is
    malformed."""
    before = read_text(path)
    text = before or ""
    filled = (folder() / row.template).read_text(encoding="utf-8").replace("{{command}}", _quoted(command))
    match row.way:
        case "json":
            after = set_member(text, row.at, json.loads(filled), str(path))
        case "helix":
            program = find_program("hx", environ, (Path.cwd(),)) or find_program("helix", environ, (Path.cwd(),))
            servers = ask_helix(program or "hx")
            after = add(text, tomllib.loads(filled), servers, str(path))
        case "block":
            after = _with_block(text, filled, row.comment, str(path))
        case "file":
            if before is not None and BEGIN not in before:
                raise UsageError(f"{path} exists and was not written by `acp-coder setup`; move it away first")
            after = filled if before is None else _with_block(text, filled, row.comment, str(path))
    return Change(path, before, after)


def undone(row: Editor, path: Path, environ: Mapping[str, str]) -> Change:
    """Returns what undoing it would write. Raises UsageError if nothing was set up."""
    now = read_text(path)
    if now is None or not _stands_in(row, now, path):
        raise UsageError(f"{row.name} is not set up in {path}: there is nothing to undo")
    kept = _kept(row, environ).get(str(path))
    if kept is not None and kept["after"] == now:
        return Change(path, now, kept["before"])
    return Change(path, now, _taken_out(row, now, path))


def _taken_out(row: Editor, text: str, path: Path) -> str | None:
    match row.way:
        case "json":
            return remove_member(text, row.at, str(path))
        case "helix":
            return remove(text, str(path))
        case "block":
            return _without_block(text, str(path))
        case "file":
            rest = _without_block(text, str(path))
            return rest if rest.strip() else None


def is_set_up(row: Editor, path: Path) -> bool:
    """Whether the editor's configuration names the agent. Raises UsageError for a malformed file."""
    now = read_text(path)
    return now is not None and _stands_in(row, now, path)


def write(row: Editor, change: Change, environ: Mapping[str, str], *, undo: bool = False) -> None:
    """Makes the change atomically if the file is unchanged.

    A link stays a link. Raises UsageError if it changed in the meantime or cannot be written.
    """
    path = Path(os.path.realpath(change.path))
    if read_text(path) != change.before:
        raise UsageError(f"{change.path} was changed in the meantime, so nothing was written; try again")
    try:
        if not undo:
            _keep(row, change, environ)
        if change.after is None:
            path.unlink()
        else:
            replace_text(path, change.after)
        if undo:
            _forget(row, change, environ)
    except OSError as error:
        raise UsageError(f"{error.filename or path} could not be written: {error.strerror}") from error


# --- marked lines ---------------------------------------------------------------------------------------------


def _with_block(text: str, block: str, comment: str, file: str) -> str:
    """Adds `block`, between marks unless it has its own, or replaces the existing one."""
    lines = block if BEGIN in block else f"{comment} {BEGIN}\n{block.rstrip()}\n{comment} {END}\n"
    if "\r\n" in text:
        lines = lines.replace("\n", "\r\n")
    if (found := _block(text, file)) is not None:
        return text[: found[0]] + lines + text[found[1] :]
    if text and not text.endswith("\n"):
        text += "\n"
    return f"{text}\n{lines}" if text else lines


def _without_block(text: str, file: str) -> str:
    found = _block(text, file)
    if found is None:
        return text
    before = text[: found[0]]
    return (before[:-1] if before.endswith("\n\n") else before) + text[found[1] :]


def _block(text: str, file: str) -> tuple[int, int] | None:
    start = re.search(_line_of(BEGIN), text, re.MULTILINE)
    if start is None:
        return None
    end = re.compile(_line_of(END), re.MULTILINE).search(text, start.end())
    if end is None:
        raise UsageError(f"{file}: the line `{END}` is missing after `{BEGIN}`; fix it first")
    return start.start(), end.end()


def _line_of(mark: str) -> str:
    """A comment of any language; editors that save with other line ends keep it."""
    return rf"^\S+ {re.escape(mark)}[ \t]*(?:\r?\n|\Z)"


def _stands_in(row: Editor, text: str, path: Path) -> bool:
    match row.way:
        case "json":
            return get_member(text, row.at, str(path)) is not None
        case "helix":
            return remove(text, str(path)) != text
        case "block":
            return f"{row.comment} {BEGIN}" in text
        case "file":
            return BEGIN in text


# --- files ----------------------------------------------------------------------------------------------------


def _quoted(command: str) -> str:
    """Fit for a string of JSON, TOML, Lua and Lisp alike."""
    return command.replace("\\", "\\\\").replace('"', '\\"')


def read_text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text, so it was left alone") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def replace_text(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        mode = path.stat().st_mode & 0o777
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


# --- what is kept for the way back ----------------------------------------------------------------------------


def _record(row: Editor, environ: Mapping[str, str]) -> Path:
    return Path(state_dir(environ)) / "setup" / f"{row.id}.json"


def _kept(row: Editor, environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    try:
        data = json.loads(_record(row, environ).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _keep(row: Editor, change: Change, environ: Mapping[str, str]) -> None:
    """Repeated set-up keeps the original from before the first time, with the user's changes since."""
    kept = _kept(row, environ)
    earlier = kept.get(str(change.path))
    before = change.before
    if earlier is not None and before is not None:
        before = earlier["before"] if earlier["after"] == before else _taken_out(row, before, change.path)
    kept[str(change.path)] = {"before": before, "after": change.after}
    _save(row, kept, environ)


def _forget(row: Editor, change: Change, environ: Mapping[str, str]) -> None:
    kept = _kept(row, environ)
    kept.pop(str(change.path), None)
    _save(row, kept, environ)


def _save(row: Editor, kept: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    record = _record(row, environ)
    if kept:
        replace_text(record, json.dumps(kept, indent=1), 0o600)
    else:
        record.unlink(missing_ok=True)
