"""Facts about the project at the session's start. Names are data: only plain ones are listed."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from acp_agent.safety.folders.paths import Roots
from acp_agent.undo.git_index import changed_files, git_of

if TYPE_CHECKING:
    from acp_agent.disk import Disk

MOST_NAMES = 40
MOST_ENTRIES = 2_000
"""Entries of a folder that are looked at."""
PLAIN = re.compile(r"[\w.@+-]{1,60}")
HEAD = re.compile(r"ref: refs/heads/([\w./@+-]{1,100})\s*")
HEAD_BYTES = 400


def facts_of(roots: Roots, limits: str = "") -> str:
    """A few lines: what commands cannot do, the date, git's branch and changes, the names in the working directory."""
    facts = [*filter(None, [limits]), f"Date: {date.today().isoformat()}."]
    facts.append(_git(roots.cwd, roots.disk))
    if listed := _listed(roots):
        facts.append(f"In the working directory: {listed}.")
    return " ".join(facts)


def _git(folder: Path, disk: Disk) -> str:
    """The branch and, on this machine, the count of changed files. From git's files, without git, which would run what
    a repository's configuration names."""
    for above in (folder, *folder.parents):
        try:
            if (git := git_of(above, disk)) is not None and disk.kind(git / "HEAD") == "file":
                if disk.is_link(git / "HEAD"):
                    break
                match = HEAD.fullmatch(disk.text(git / "HEAD", HEAD_BYTES))
                branch = f"Git branch at the start: {match[1] if match else 'none (detached)'}"
                if disk.here and (count := changed_files(git, above)) is not None:
                    branch += f", {count or 'no'} changed file{'' if count == 1 else 's'} not staged"
                return f"{branch}."
        except (OSError, ValueError):
            break
    return "No git repository."


def _listed(roots: Roots) -> str:
    """Folders end in a slash; what commands cannot see is left out."""
    try:
        found = sorted(
            (not is_folder, name)
            for name, is_folder in roots.disk.names(roots.cwd, MOST_ENTRIES)
            if not roots.rules.hides(roots.cwd / name)
        )
    except OSError:
        return ""
    names = [name if is_file else f"{name}/" for is_file, name in found if PLAIN.fullmatch(name)]
    more = len(found) - min(len(names), MOST_NAMES)
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more else "")
