"""Scans a session's folders for what commands must not touch: files that `deny_read` matches, and the configuration of
every repository, which git reads when it is used there.

Blocking: run it in a thread. Scans at most `MAX_LOOKED_AT` entries (`MAX_LOOKED_AT_FOR_HIDDEN`).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from acp_agent.safety.folders.paths import Roots, read_regular, real_path

MAX_LOOKED_AT = 20_000
MAX_LOOKED_AT_FOR_HIDDEN = 300_000
"""If there is something to hide."""

MAX_REPOSITORIES = 50

SKIPPED = frozenset((".git", "node_modules", "__pycache__", ".venv", "venv", "target", ".tox", ".mypy_cache"))
"""Large folders with copies of other people's files."""

INSIDE = ("hooks", "config", "commondir", "config.worktree")
"""Files in a repository's folder that name programs for git to run, or another folder that does."""


MAX_CONFIG = 200_000
NAMING = re.compile(r"^[ \t]*(hookspath|path)[ \t]*=[ \t]*(\S[^\n]*)", re.IGNORECASE | re.MULTILINE)


class Survey(Struct, frozen=True):
    hidden: tuple[Path, ...] = ()
    """Files and folders that must not be read; a folder stands for everything below it."""
    repositories: tuple[Path, ...] = ()
    """Git's folders (`.git`, those of submodules and worktrees, bare repositories) in the session's folders."""
    pointers: tuple[Path, ...] = ()
    """Files named `.git`, which point to a worktree's or submodule's repository."""
    named: tuple[Path, ...] = ()
    """Paths named by the configuration of these repositories: hook folders, further configuration."""
    complete: bool = True
    """Whether everything was scanned."""

    def special(self) -> list[Path]:
        """Paths in the repositories that must not be changed; `hooks` and `config` even if missing."""
        inside = [
            folder / name
            for folder in self.repositories
            for name in INSIDE
            if name in ("hooks", "config") or os.path.exists(folder / name)
        ]
        return [*inside, *self.pointers, *self.named]


def survey(roots: Roots) -> Survey:
    rules = roots.rules
    hidden = [Path(glob) for glob in rules.hidden_globs if not any(char in glob for char in "*?[")]
    hidden = [path for path in hidden if os.path.exists(path) and rules.hides(path)]
    repositories: dict[Path, None] = {}
    pointers: list[Path] = []
    looked, most = 0, MAX_LOOKED_AT_FOR_HIDDEN if rules.hides_any else MAX_LOOKED_AT
    complete = True
    for root in roots.real:
        for here, folders, files in os.walk(root):
            looked += len(folders) + len(files)
            if looked > most:
                complete = False
                break
            base = Path(here)
            if ".git" in folders:
                git = base / ".git"
                if not os.path.islink(git) or roots.contains(git := real_path(git)):
                    repositories |= dict.fromkeys(_with_inner(git))
            elif "HEAD" in files and {"objects", "refs"} <= {*folders}:  # A bare one.
                repositories |= dict.fromkeys(_with_inner(base))
            elif ".git" in files and not os.path.islink(base / ".git"):
                pointers.append(base / ".git")
            if rules.hides_any:
                hidden += [path for name in files if rules.hides(path := base / name) and _plain(path)]
                unseen = [name for name in folders if rules.hides(base / name)]
                hidden += [base / name for name in unseen]
                folders[:] = [name for name in folders if name not in unseen]
            folders[:] = [name for name in folders if name not in SKIPPED]
    kept = tuple(repositories)[:MAX_REPOSITORIES]
    complete = complete and len(kept) == len(repositories) and len(pointers) <= MAX_REPOSITORIES
    named = tuple(dict.fromkeys(path for folder in kept for path in _named(folder)))
    return Survey(tuple(dict.fromkeys(hidden)), kept, tuple(pointers[:MAX_REPOSITORIES]), named, complete)


def _named(git: Path) -> Iterator[Path]:
    """`core.hooksPath` and `include.path`, if they exist inside the repository's own folder."""
    try:
        text = (read_regular(git / "config", MAX_CONFIG) or b"").decode("utf-8", "replace")
    except OSError:
        return
    for name, value in NAMING.findall(text):
        base = git.parent if name.lower() == "hookspath" else git
        path = real_path(base / value.strip().strip('"'))
        if os.path.exists(path) and git.parent in path.parents and path not in (git, git.parent):
            yield path


def _with_inner(git: Path) -> Iterator[Path]:
    """A repository's folder, and those of its submodules and worktrees in it."""
    yield git
    pending = [git / "modules", git / "worktrees"]
    while pending:
        folder = pending.pop()
        try:
            inner = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        for each in inner:
            if os.path.exists(each / "HEAD"):
                yield each
                pending.append(each / "modules")
            else:
                pending.append(each)  # `path/to/submodule`


def _plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
