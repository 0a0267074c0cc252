"""Facts about the project at the session's start. Names are data: only plain ones are listed."""

from __future__ import annotations

import re
from datetime import date

from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.repository import repository_of
from acp_agent.undo.git_index import changed_files, git_of

MOST_NAMES = 40
MOST_ENTRIES = 2_000
"""Entries of a folder that are looked at."""
PLAIN = re.compile(r"[\w.@+-]{1,60}")
HEAD = re.compile(r"ref: refs/heads/([\w./@+-]{1,100})\s*")
HEAD_BYTES = 400


def facts_of(roots: Roots, limits: str = "") -> str:
    """A few lines: what commands cannot do, the date, git's branch and changes, the names in the working directory."""
    facts = [*filter(None, [limits]), f"Date: {date.today().isoformat()}."]
    facts.append(_git(roots))
    if listed := _listed(roots):
        facts.append(f"In the working directory: {listed}.")
    return " ".join(facts)


def _git(roots: Roots) -> str:
    """The branch, the top of the repository if that is above, and, on this machine, the count of changed files. From
    git's files, without git, which would run what a repository's configuration names."""
    folder, disk = roots.cwd, roots.disk
    try:
        found = repository_of(folder, roots) if disk.here else None
        if found is not None and found.why:
            return f"The git repository of {found.top} was not looked at: {found.why}."
        tops = (folder,) if disk.here else (folder, *folder.parents)
        known = ((git_of(above, disk), above) for above in tops) if found is None else [(found.git, found.top)]
        git, top = next(((git, top) for git, top in known if git and disk.kind(git / "HEAD") == "file"), (None, folder))
        if git is None or disk.is_link(git / "HEAD"):
            return "No git repository."
        match = HEAD.fullmatch(disk.text(git / "HEAD", HEAD_BYTES))
        branch = f"Git branch at the start: {match[1] if match else 'none (detached)'}"
        if disk.here and (count := changed_files(git, top)) is not None:
            branch += f", {count or 'no'} changed file{'' if count == 1 else 's'} not staged"
        return f"{branch}." if top == folder else f"{branch}. The git repository's root is {top}."
    except (OSError, ValueError):
        return "No git repository."


def _listed(roots: Roots) -> str:
    """Folders end in a slash; what commands cannot see is left out."""
    try:
        entries = roots.disk.names(roots.cwd, MOST_ENTRIES)
        found = sorted((not is_folder, name) for name, is_folder in entries if not roots.rules.hides(roots.cwd / name))
    except OSError:
        return ""
    names = [name if is_file else f"{name}/" for is_file, name in found if PLAIN.fullmatch(name)]
    more = len(found) - min(len(names), MOST_NAMES)
    return ", ".join(names[:MOST_NAMES]) + (
        f" and {'at least ' * (len(entries) == MOST_ENTRIES)}{more} more" if more else ""
    )
