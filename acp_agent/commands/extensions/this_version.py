"""The version with the commit that it was made from, as `acp-coder --version` says it.

A build writes the commit into the package (`hatch_build.py`). In a checkout it is read from the files of `.git`, so
that no program is started.
"""

from __future__ import annotations

import re
from pathlib import Path

import acp_agent

PACKAGE = Path(acp_agent.__file__).parent
BUILT = "COMMIT"
"""The file that a build adds to the package."""
SHOWN = 8
COMMIT = re.compile("[0-9a-f]{40,64}")


def version_line() -> str:
    """`0.2.0 (1a2b3c4d)`; without a commit where none is known."""
    commit = _text(PACKAGE / BUILT) or commit_of(PACKAGE.parent)
    return f"{acp_agent.__version__} ({commit[:SHOWN]})" if COMMIT.fullmatch(commit) else acp_agent.__version__


def commit_of(checkout: Path) -> str:
    """What HEAD of this checkout or worktree is; empty if that is not found there."""
    pointer = _text(checkout / ".git").removeprefix("gitdir:").strip()
    git = checkout / (pointer or ".git")
    head = _text(git / "HEAD")
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    shared = git / (_text(git / "commondir") or ".")
    if found := _text(git / name) or _text(shared / name):
        return found
    packed = re.search(rf"^(\S+) {re.escape(name)}$", _text(shared / "packed-refs"), re.MULTILINE)
    return packed[1] if packed else ""


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
