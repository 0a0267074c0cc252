"""What git keeps of files that are as git's index has them: their contents need no copy of ours.

Only reads: the index here, the blobs by `git cat-file`, which runs nothing that a repository's configuration names.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from acp_agent.own_programs import find_program
from acp_agent.undo.git_index import entries

MOST_BYTES = 50_000_000
"""Of an index that is read."""
PATIENCE = 60.0
"""Seconds to wait for git."""
GIT_FILE = re.compile(rb"gitdir: (.+?)\s*")
CHANGES_CONTENT = re.compile(rb"\b(filter|working-tree-encoding)=|\bident\b")
"""In attributes: a file's content is not that of its blob. Other line endings show in its size (`read_sizes`)."""
FEW = 500_000
"""Bytes of attributes that are read."""


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


def git_of(folder: str) -> Path | None:
    """The repository whose work tree has `folder` as its top, if it has one."""
    git = Path(folder, ".git")
    if git.is_dir():
        return git
    try:
        with open(git, "rb") as file:
            named = GIT_FILE.fullmatch(file.read(4096))
    except OSError:
        return None
    return None if named is None else Path(folder, os.fsdecode(named[1]))


def state_of_index(git: Path) -> tuple[int, int]:
    """Tells whether the index is another one; zeros if there is none."""
    try:
        found = os.stat(git / "index")
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def tracked(folder: str, git: Path) -> Tracked:
    """What the index of `git` says of the files below `folder`; nothing if it cannot be read or contents differ."""
    state = state_of_index(git)
    blobs: dict[str, Blob] = {}
    folders: set[str] = set()
    attributes = [git / "info" / "attributes"]
    try:
        if 0 < state[0] <= MOST_BYTES:
            for entry in entries((git / "index").read_bytes()):
                mtime = entry.seconds * 1_000_000_000 + entry.nanoseconds
                if mtime < state[1]:  # Else it may have changed in the same moment.
                    path = f"{folder}/{entry.path.decode('utf-8', 'surrogateescape')}"
                    blobs[path] = (entry.size, mtime, entry.changed_ns, entry.blob)
            attributes += [Path(path) for path in blobs if path.endswith("/.gitattributes")]
        if any(_changes_content(path) for path in attributes):
            blobs = {}
    except (OSError, ValueError, struct.error):
        blobs = {}
    for path in blobs:
        above = path.rpartition("/")[0]
        while above not in folders and len(above) >= len(folder):
            folders.add(above)
            above = above.rpartition("/")[0]
    return Tracked(folder, git, state, blobs, frozenset(folders))


def _changes_content(attributes: Path) -> bool:
    try:
        with open(attributes, "rb") as file:
            return CHANGES_CONTENT.search(file.read(FEW)) is not None
    except OSError:
        return False


def read_blobs(git: Path, blobs: Iterable[bytes], folders: Sequence[Path]) -> dict[bytes, bytes]:
    """The contents of these blobs, as far as they are there. `folders`: those in which no program is looked for."""
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
            found[name] = out[at : at + size]
            at += size + 1
    return found


def read_sizes(git: Path, blobs: Iterable[bytes], folders: Sequence[Path]) -> dict[bytes, int]:
    """The sizes of these blobs in bytes, as far as they are there. Where git changes line endings (`core.autocrlf`,
    `core.eol`, the attribute `text`), a file that it changed has another size than its blob."""
    wanted = list(dict.fromkeys(blobs))
    sizes = map(_size, _cat_file(git, wanted, "--batch-check", folders).split(b"\n"))
    return {name: size for name, size in zip(wanted, sizes, strict=False) if size is not None}


def _cat_file(git: Path, blobs: Sequence[bytes], how: str, folders: Sequence[Path]) -> bytes:
    program = find_program("git", os.environ, folders) if blobs else None
    if program is None:
        return b""
    environ = {
        "PATH": os.environ.get("PATH", ""), "HOME": "/", "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }  # fmt: skip
    try:
        done = subprocess.run(
            [program, f"--git-dir={git}", "-c", "safe.directory=*", "cat-file", "--buffer", how],
            input="".join(f"{name.hex()}\n" for name in blobs).encode(),
            capture_output=True,
            cwd="/",
            env=environ,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return b""
    return done.stdout


def _size(head: bytes) -> int | None:
    """From a line of `git cat-file`; `None` if it is not that of a blob."""
    parts = head.split()
    return int(parts[2]) if len(parts) == 3 and parts[1] == b"blob" else None
