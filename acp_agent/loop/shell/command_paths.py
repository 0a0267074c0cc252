"""The folders and files that `tools.sandbox` names for commands: globs, relative paths, paths that are not there yet.

A path that leads through a link which commands could have made counts only where it stays in the session's folders:
otherwise the first command would choose what the second one may do.
"""

from __future__ import annotations

import glob
import itertools
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from acp_agent.errors import ExecutorError
from acp_agent.executors.beneath import folder
from acp_agent.safety.folders.paths import real_path
from acp_agent.safety.folders.protect import links_to
from acp_agent.safety.globs import WILD

log = logging.getLogger(__name__)

MAX_MATCHES = 1_000
"""Paths that one glob may stand for."""


class Named(Struct, frozen=True):
    """An entry of the configuration, and what it stands for now."""

    text: str
    paths: tuple[Path, ...]
    linked: bool = False
    """Whether a path was left out because it leads through a link that commands could have made."""

    def __str__(self) -> str:
        if self.linked:
            return f"{self.text} (left out: it leads through a link to another place)"
        if not self.paths:
            return f"{self.text} (nothing is there now)"
        return self.text if WILD.isdisjoint(self.text) else f"{self.text} ({len(self.paths)} now)"


def named(
    texts: Iterable[str],
    folders: Sequence[Path],
    home: Path | None,
    inside: Sequence[Path],
    written: Sequence[Path] = (),
    *,
    make: bool = False,
) -> list[Named]:
    """What each entry stands for, resolved. Relative entries are relative to `folders`. Links in `inside` and in
    `written` may have been made by commands, so they may lead to `inside` only. `make`: whether an entry that ends with
    a slash is made as a folder if it is missing."""
    found = []
    for text in texts:
        kept: dict[Path, None] = {}
        linked = False
        for spelled in _spelled(text, folders, home):
            for place in _matching(spelled):
                if _led_away(place, inside, written):
                    linked = True
                elif os.path.exists(place) or (make and spelled.endswith("/") and _made(place)):
                    kept[real_path(place)] = None
        found.append(Named(text, tuple(kept), linked and not kept))
    return found


def paths_of(entries: Iterable[Named]) -> list[Path]:
    return [path for entry in entries for path in entry.paths]


def _spelled(text: str, folders: Sequence[Path], home: Path | None) -> list[str]:
    """As absolute globs."""
    if text == "~" or text.startswith("~/"):
        return [] if home is None else [f"{glob.escape(str(home))}{text[1:]}"]
    if text.startswith("/"):
        return [text]
    return [f"{glob.escape(str(folder))}/{text}" for folder in folders]


def _matching(text: str) -> list[Path]:
    """The paths that match a glob; the path itself, whether or not it is there, if it is none."""
    if WILD.isdisjoint(text):
        return [Path(os.path.normpath(text))]
    found = glob.iglob(text.rstrip("/"), include_hidden=True)
    return [Path(os.path.normpath(path)) for path in itertools.islice(found, MAX_MATCHES)]


def _made(path: Path) -> bool:
    try:
        make_folder(real_path(path))
    except (OSError, ExecutorError) as error:
        log.warning("%s could not be made: %s", path, error)
        return False
    return True


def make_folder(path: Path) -> None:
    """Makes a folder and those above it, following no link. `path`: resolved. Raises OSError, ExecutorError."""
    with folder(path, make=True):
        pass


def _led_away(path: Path, inside: Sequence[Path], written: Sequence[Path]) -> bool:
    """Whether a link on the way that commands could have made leads out of what is `inside`."""
    there = real_path(path)
    if any(there.is_relative_to(folder) for folder in inside):
        return False
    places = [real_path(link.parent) for link in links_to(path)]
    return any(place.is_relative_to(folder) for place in places for folder in (*inside, *written))
