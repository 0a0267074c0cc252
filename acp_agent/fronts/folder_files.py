"""What is completed as the name of a file: those below a folder, for the chat in a terminal and the page."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

MAX_FILES = 20_000
"""Files of a folder that are completed."""
MAX_FOUND = 40
FRESH_SECONDS = 10.0
SKIPPED = {"node_modules", "__pycache__", "venv", "target", "dist"}
"""Folders that are not looked into, nor those whose name begins with a dot."""


class FolderFiles:
    """The files below a folder, by their relative paths, the shallow ones first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: list[str] = []
        self._at = -FRESH_SECONDS

    def matching(self, text: str) -> list[str]:
        """Those with the letters of `text` in this order; what has it as one piece, at the front of a name, first."""
        if time.monotonic() - self._at > FRESH_SECONDS:
            self._found, self._at = list(self._walk()), time.monotonic()
        wanted = text.lower()
        letters = re.compile(".*?".join(map(re.escape, wanted)))
        found = [path for path in self._found if letters.search(path.lower())]

        def rank(path: str) -> tuple[bool, bool, int]:
            low = path.lower()
            return not low.rpartition("/")[2].startswith(wanted), wanted not in low, len(path)

        return sorted(found, key=rank)[:MAX_FOUND]

    def _walk(self) -> Iterator[str]:
        number, waiting = 0, [""]
        while waiting:
            below: list[str] = []
            for relative in waiting:
                try:
                    entries = sorted(os.scandir(self._folder / relative), key=lambda entry: entry.name)
                except OSError:
                    continue
                for entry in entries:
                    path = f"{relative}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in SKIPPED and not entry.name.startswith("."):
                            below.append(f"{path}/")
                            yield f"{path}/"
                    else:
                        yield path
                    number += 1
                    if number >= MAX_FILES:
                        return
            waiting = below
