"""Whether looking at a git repository would run a program that the repository itself names.

`git status` runs `core.fsmonitor`, `git diff` runs filters and text converters. Git never takes these from a clone,
but an unpacked archive can bring a `.git/config`, and a clone can hold a bare repository among its files, whose
`config` git reads when it stands there. The person's own configuration (`~/.gitconfig`) is trusted.

Not looked at: the configuration of submodules, which only an archive could have brought, too.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["runs_programs"]

MAX_BYTES = 200_000
PROGRAMS = re.compile(
    r"^\s*(?:\[[^\]\n]*\]\s*)?(?:fsmonitor\s*=(?!\s*(?:true|false)\s*$)|"
    r"(?:external|textconv|clean|smudge|process|driver|command|program|worktree|hookspath|attributesfile)\s*=|"
    r"\[\s*include(?:if)?\b)",
    re.IGNORECASE | re.MULTILINE,
)
CONTINUED = re.compile(r"\\\r?\n")
HOOKS = ("post-index-change", "fsmonitor-watchman")


def runs_programs(folder: Path) -> bool:
    """Whether git, started in `folder`, may run a program that is named inside the repository. Never raises."""
    try:
        return any(_is_hostile(git) for git in _git_folders(folder.resolve()))
    except (OSError, ValueError, RuntimeError):
        return True


def _git_folders(folder: Path) -> list[Path]:
    """The folders git would read its configuration from, as it finds them from `folder`."""
    for place in (folder, *folder.parents):
        dot_git = place / ".git"
        if dot_git.is_file():
            text = _read(dot_git)
            if not text.startswith("gitdir:"):
                raise ValueError("no git link")
            git = (place / text.removeprefix("gitdir:").strip()).resolve()
            common = git / "commondir"
            return [git, (git / _read(common).strip()).resolve()] if common.is_file() else [git]
        if dot_git.is_dir():
            return [dot_git]
        if (place / "HEAD").is_file() and (place / "objects").is_dir() and (place / "refs").is_dir():
            raise ValueError("a bare repository")
    return []


def _is_hostile(git: Path) -> bool:
    for name in ("config", "config.worktree"):
        file = git / name
        if file.exists() and PROGRAMS.search(CONTINUED.sub("", _read(file))):
            return True
    return any((git / "hooks" / hook).exists() for hook in HOOKS)


def _read(file: Path) -> str:
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError("too large")
    return data.decode("utf-8", "replace")
