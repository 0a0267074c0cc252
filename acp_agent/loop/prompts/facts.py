"""Facts about the project at the session's start, for the system prompt. Names are data: only plain ones are listed."""

from __future__ import annotations

import os
import re
from datetime import date
from itertools import islice
from pathlib import Path

from acp_agent.safety.folders.paths import Roots

MOST_NAMES = 40
MOST_ENTRIES = 2_000
"""Entries of a folder that are looked at."""
PLAIN = re.compile(r"[\w.@+-]{1,60}")
HEAD = re.compile(r"ref: refs/heads/([\w./@+-]{1,100})\s*")
HEAD_BYTES = 400


def facts_of(roots: Roots, limits: str = "") -> str:
    """A few lines: what commands cannot do, the date, the git branch, the names in the working directory."""
    facts = [*filter(None, [limits]), f"Date: {date.today().isoformat()}."]
    branch = _branch(roots.cwd)
    facts.append("No git repository." if branch is None else f"Git branch at the start: {branch}.")
    if listed := _listed(roots):
        facts.append(f"In the working directory: {listed}.")
    return " ".join(facts)


def _branch(folder: Path) -> str | None:
    """From the files, without git, which would run what a repository's configuration names. `None`: no repository."""
    for above in (folder, *folder.parents):
        git = above / ".git"
        try:
            if git.is_file():
                pointer = git.read_text(encoding="utf-8", errors="replace")[:HEAD_BYTES]
                git = above / pointer.removeprefix("gitdir:").strip()
            if (git / "HEAD").is_file():
                with (git / "HEAD").open(encoding="utf-8", errors="replace") as file:
                    match = HEAD.fullmatch(file.read(HEAD_BYTES))
                return match[1] if match else "none (detached)"
        except (OSError, ValueError):
            return None
    return None


def _listed(roots: Roots) -> str:
    """Folders end in a slash; what commands cannot see is left out."""
    try:
        with os.scandir(roots.cwd) as entries:
            found = sorted(
                (not entry.is_dir(follow_symlinks=False), entry.name)
                for entry in islice(entries, MOST_ENTRIES)
                if not roots.rules.hides(roots.cwd / entry.name)
            )
    except OSError:
        return ""
    names = [name if is_file else f"{name}/" for is_file, name in found if PLAIN.fullmatch(name)]
    more = len(found) - min(len(names), MOST_NAMES)
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more else "")
