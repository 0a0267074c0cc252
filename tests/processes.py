"""Processes of this machine."""

from contextlib import suppress
from pathlib import Path


def running(marked: str = "", parent: int | None = None) -> set[int]:
    """The numbers of those that have this in their command line, and are children of `parent`. Zombies do not run."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state, above = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z" and marked in words and parent in (None, int(above)):
                found.add(int(folder.name))
    return found
