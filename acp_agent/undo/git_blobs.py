"""What git keeps of files that are as git's index has them: their contents need no copy of ours.

Only reads: the index here, the blobs by `git cat-file`. Commands can write both, so what they say counts only where a
file's own bytes have said the same: they hash to the blob's name, and so does what git gives back.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from acp_agent.own_programs import run_git
from acp_agent.safety.folders.paths import read_regular
from acp_agent.undo.git_index import ALTERNATES, MOST_READ, entries, name_of

PATIENCE = 60.0
"""Seconds to wait for git."""


Blob = tuple[int, int, int, bytes]
"""Size (modulo 2**32) and times (ns; of content and inode) of the file for which git has this blob, and its name."""


class Tracked(Struct):
    """The files of one repository that are as its index says, unless their size or time differs."""

    folder: str
    """The top of its work tree."""
    git: Path
    """The repository."""
    index: tuple[int, int]
    """Size and time of the index."""
    blobs: dict[str, Blob]
    """By absolute path."""
    folders: frozenset[str]
    """Those that contain such files."""
    checked: bool = False
    """Whether the blobs are known to be there, with the sizes of the files."""


def state_of_index(git: Path) -> tuple[int, int]:
    """Tells whether the index is another one; zeros if there is none."""
    try:
        found = os.stat(git / "index")
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def tracked(folder: str, git: Path) -> Tracked:
    """What the index of `git` says of the files below `folder`; nothing if it cannot be read, or if git would look for
    contents in another repository, too. None of it is believed before `has_blob` has compared."""
    state = state_of_index(git)
    blobs: dict[str, Blob] = {}
    folders: set[str] = set()
    try:
        data = read_regular(git / "index", MOST_READ) if not os.path.lexists(git / ALTERNATES) else None
        for entry in entries(data) if data else ():
            mtime = entry.seconds * 1_000_000_000 + entry.nanoseconds
            if mtime < state[1]:  # Else it may have changed in the same moment.
                path = f"{folder}/{entry.path.decode('utf-8', 'surrogateescape')}"
                blobs[path] = (entry.size, mtime, entry.changed_ns, entry.blob)
    except (OSError, ValueError, struct.error):
        blobs = {}
    for path in blobs:
        above = path.rpartition("/")[0]
        while above not in folders and len(above) >= len(folder):
            folders.add(above)
            above = above.rpartition("/")[0]
    return Tracked(folder, git, state, blobs, frozenset(folders))


def read_blobs(git: Path, blobs: Iterable[bytes], folders: Sequence[Path]) -> dict[bytes, bytes]:
    """The contents of these blobs, as far as they are there and hash to their names. `folders`: those in which no
    program is looked for."""
    wanted = list(dict.fromkeys(blobs))
    out = _cat_file(git, wanted, "--batch", folders)
    found: dict[bytes, bytes] = {}
    at = 0
    for name in wanted:
        end = out.find(b"\n", at)
        if end < 0:
            break
        size = _size(out[at:end])
        at = end + 1
        if size is not None:
            if name_of(content := out[at : at + size]) == name:
                found[name] = content
            at += size + 1
    return found


def read_sizes(git: Path, blobs: Iterable[bytes], folders: Sequence[Path]) -> dict[bytes, int]:
    """The sizes of these blobs in bytes, as far as they are there. Where git changes line endings (`core.autocrlf`,
    `core.eol`, the attribute `text`), a file that it changed has another size than its blob."""
    wanted = list(dict.fromkeys(blobs))
    sizes = map(_size, _cat_file(git, wanted, "--batch-check", folders).split(b"\n"))
    return {name: size for name, size in zip(wanted, sizes, strict=False) if size is not None}


def _cat_file(git: Path, blobs: Sequence[bytes], how: str, folders: Sequence[Path]) -> bytes:
    if not blobs:
        return b""
    names = "".join(f"{name.hex()}\n" for name in blobs).encode()
    try:
        done = run_git(
            [f"--git-dir={git}", "cat-file", "--buffer", how], timeout=PATIENCE, outside=folders, stdin=names
        )
    except (OSError, subprocess.SubprocessError):
        return b""
    return done.stdout


def _size(head: bytes) -> int | None:
    """From a line of `git cat-file`; `None` if it is not that of a blob."""
    parts = head.split()
    return int(parts[2]) if len(parts) == 3 and parts[1] == b"blob" else None
