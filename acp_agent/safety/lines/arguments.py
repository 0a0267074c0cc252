"""Finds the programs a command line names, and forbidden paths in it."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from acp_agent.safety.lines.examined import Examined

if TYPE_CHECKING:
    from acp_agent.disk import Disk

HOME = re.compile(r"\$HOME(?!\w)|\$\{HOME\}")
QUOTES = str.maketrans("", "", "'\"\\")
WILD = re.compile(r"[*?\[]")


def program_names(examined: Examined) -> tuple[str, ...] | None:
    """Every program as written; `None` if not all of them are known."""
    names: dict[str, None] = {}
    for part in examined.parts:
        if part.program is None or "" in part.dangers:
            return None
        names[part.program] = None
    return tuple(names) if examined.understood else None


def forbidden_argument(examined: Examined, forbidden: Sequence[str], home: Path, disk: Disk) -> str | None:
    """The first argument, redirection target or option value that is a forbidden path, or below one.

    Text known only at run time and lines that are not understood are searched as plain text.
    """
    if not forbidden:
        return None
    closed = [path for text in forbidden for path in _both(text, examined.cwd, home, disk)]
    for part in examined.parts:
        folders = part.folders or (examined.cwd,)
        texts = [*part.rough, *(redirect.target or redirect.shown for redirect in part.redirects)]
        for text in texts:
            for piece in _pieces(text):
                if any(_meets(path, closed) for folder in folders for path in _both(piece, folder, home, disk)):
                    return text
    if examined.understood and all(part.words is not None or part.looks for part in examined.parts):
        return None
    shown = HOME.sub(str(home), examined.command.translate(QUOTES)).replace("~/", f"{home}/")
    for text in forbidden:
        for spelling in {text, _at_home(text, home)}:
            if re.search(rf"(?<![\w.-]){re.escape(spelling.rstrip('/') or '/')}(?![\w.-])", shown):
                return text
    return None


def _pieces(text: str) -> Iterator[str]:
    """Parts of an argument that may be a path: all of it, the value of an option, a value attached to one."""
    yield text
    for sign in "=:,@":
        if sign in text:
            yield from (piece for piece in text.split(sign)[1:] if piece)
    if text.startswith("-"):
        for mark in ("/", "~", ".", "$"):
            if (at := text.find(mark)) > 0:
                yield text[at:]
        if len(text) > 2 and text[1] != "-":
            yield text[2:]


def _at_home(text: str, home: Path) -> str:
    text = HOME.sub(lambda found: str(home), text)
    if text == "~" or text.startswith("~/"):
        return f"{home}{text[1:]}"
    return text


def _both(text: str, folder: Path, home: Path, disk: Disk) -> set[Path]:
    """The path as written, and with its links followed."""
    path = folder / _at_home(text, home)
    found = {Path(os.path.normpath(path))}
    try:
        found.add(disk.real_path(path))
    except (OSError, ValueError, RuntimeError):
        pass
    return found


def _meets(path: Path, forbidden: Sequence[Path]) -> bool:
    parts = path.parts
    wild = WILD.search(str(path)) is not None
    for other in forbidden:
        theirs = other.parts
        if parts[: len(theirs)] == theirs:
            return True
        if wild and len(parts) >= len(theirs) and all(map(fnmatch.fnmatchcase, theirs, parts)):
            return True
    return False
