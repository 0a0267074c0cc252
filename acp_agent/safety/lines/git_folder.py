"""Whether reading a git repository would run a program that the repository itself names.

`git status` runs `core.fsmonitor`, `git diff` runs filters and text converters, and a missing object is fetched as a
remote's configuration says. Git never takes these from a clone, but an unpacked archive can bring a `.git/config`, and
a clone can contain a bare repository among its files, whose `config` git reads when run there. So a repository's
configuration may contain only keys known to run nothing; an unknown key, or a line that is not understood, counts as
hostile. The user's own configuration (`~/.gitconfig`) is trusted.

Git also enters checked-out submodules, with their own configuration: a repository that has any counts as hostile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from acp_agent.toml_table import toml_table

MAX_BYTES = 200_000
MAX_INDEX_BYTES = 100_000_000
SUBMODULE = b"\0\0\xe0\0"
"""The mode of a submodule in the index; an accidental match elsewhere only costs an unnecessary question."""

HOOKS = ("post-index-change", "fsmonitor-watchman")
HEAD = re.compile(r"ref:\s*refs/\S+\s*|[0-9a-f]{40}(?:[0-9a-f]{24})?\s*")

TOKEN = re.compile(
    r"""[ \t\n]+ | [#;][^\n]*
    | \[ (?P<section>[A-Za-z0-9.-]+) (?:[ \t]+ "(?P<sub>(?:[^"\\\n]|\\[^\n])*)")? \]
    | (?P<key>[A-Za-z][A-Za-z0-9-]*) [ \t]*
      (?: = (?P<value>(?:[^"\\\n#;]|\\[tbn"\\\n]|"(?:[^"\\\n]|\\[tbn"\\\n])*")*) (?:[#;][^\n]*)? )? (?=\n|\Z)""",
    re.VERBOSE,
)
QUOTING = re.compile(r'\\(.)|"', re.DOTALL)


class _Harmless(Struct, frozen=True, forbid_unknown_fields=True):
    sections: frozenset[str]
    """Sections in which no key makes read-only git commands run anything."""
    keys: frozenset[str]
    """Keys that run nothing, whatever their value; `*` stands for a subsection."""
    values: dict[str, str]
    """Keys that run nothing if the value matches an expression."""
    not_settings: frozenset[str]
    """Keys and sections of these that nevertheless weaken something, or change what else is read."""
    settings: dict[str, str]
    """Keys that run nothing with such a value whatever git does, in addition or instead."""


@cache
def harmless() -> _Harmless:
    return toml_table(__file__, _Harmless)


def runs_programs(folder: Path) -> bool:
    """Whether git, started in `folder`, may run a program named inside the repository. Never raises."""
    try:
        return any(_is_hostile(git) for git in _git_folders(folder.resolve()))
    except (OSError, ValueError, RuntimeError):
        return True


def names_programs(git: Path, known: Collection[Path]) -> bool:
    """Whether git may run a program that the repository at `git` names: a folder of git's, or the file that points to
    one. False for what git takes for no repository (yet), and for a configuration of a `known` one. Never raises.

    Submodules do not count: each has a folder of its own to ask about.
    """
    try:
        folder = git.parent / _link(git, "gitdir: ") if git.is_file() else git
        common = folder / _link(folder / "commondir", "") if _has(folder, "commondir") else folder
        if not (_has(folder, "HEAD") and _has(common, "objects", "refs")):
            return False
        folders = [each for each in dict.fromkeys((folder.resolve(), common.resolve())) if each not in known]
        return any(_runs_hooks(each) or not _is_harmless(each) for each in folders)
    except (OSError, ValueError, RuntimeError):
        return True


def _git_folders(folder: Path) -> list[Path]:
    """The folders git would read its configuration from, found as git does from `folder`."""
    for place in (folder, *folder.parents):
        dot_git = place / ".git"
        if dot_git.is_file():
            return _with_common(place / _link(dot_git, "gitdir: "))
        if os.path.lexists(dot_git):
            return _with_common(dot_git)
        if _has(place, "HEAD") and (_has(place, "objects", "refs") or _has(place, "commondir")):
            raise ValueError("a bare repository")
    return []


def _with_common(git: Path) -> list[Path]:
    """`git` and the folder it shares with other worktrees. Git searches on if `git` is not a repository."""
    common = git / _link(git / "commondir", "") if _has(git, "commondir") else git
    if not HEAD.fullmatch(_read(git / "HEAD")) or not _has(common, "objects", "refs"):
        raise ValueError("no git folder")
    return [git, common]


def _has(folder: Path, *names: str) -> bool:
    return all(os.path.lexists(folder / name) for name in names)


def _link(file: Path, prefix: str) -> str:
    text = _read(file).rstrip("\r\n")
    target = text.removeprefix(prefix)
    if not text.startswith(prefix) or not target or target != target.strip() or "\n" in target:
        raise ValueError("no git link")
    return target


def _is_hostile(git: Path) -> bool:
    return _runs_hooks(git) or _has_submodules(git) or not _is_harmless(git)


def _runs_hooks(git: Path) -> bool:
    return any((git / "hooks" / hook).exists() for hook in HOOKS)


def _is_harmless(git: Path) -> bool:
    """Whether its configuration has only keys that run nothing."""
    files = [file for name in ("config", "config.worktree") if (file := git / name).exists() and not file.is_dir()]
    return all(_is_allowed(*entry) for file in files for entry in _entries(_read(file)))


def _has_submodules(git: Path) -> bool:
    for index in (git / "index", *git.glob("sharedindex.*")):
        if index.exists():
            if index.stat().st_size > MAX_INDEX_BYTES:
                raise ValueError("too large")
            if SUBMODULE in index.read_bytes():
                return True
    return False


def is_plain_setting(name: str, value: str) -> bool:
    """Whether a command may set the key `section.key` or `section.*.key` in a repository's configuration: it runs
    nothing whatever git does."""
    known = harmless()
    if (pattern := known.settings.get(name)) is not None:
        return re.fullmatch(pattern, value) is not None
    if name in known.not_settings or name.partition(".")[0] in known.not_settings:
        return False
    return _is_allowed(name, value)


def _is_allowed(name: str, value: str) -> bool:
    known = harmless()
    if (pattern := known.values.get(name)) is not None:
        return re.fullmatch(pattern, value) is not None
    return name in known.keys or name.partition(".")[0] in known.sections


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """The keys as `section.key` or `section.*.key`, with their values. Raises if git might read them differently."""
    text = text.replace("\r\n", "\n")
    if "\r" in text or "\0" in text:
        raise ValueError("an odd character")
    at, section = 0, ""
    while at < len(text):
        token = TOKEN.match(text, at)
        if token is None:
            raise ValueError("not understood")
        at = token.end()
        if (header := token["section"]) is not None:
            name, dot, _ = header.lower().partition(".")
            section = f"{name}.*" if dot or token["sub"] is not None else name
        elif (key := token["key"]) is not None:
            if not section:
                raise ValueError("a key without a section")
            value = QUOTING.sub(_unquoted, token["value"]) if token["value"] is not None else "true"
            yield f"{section}.{key.lower()}", value.strip()


def _unquoted(found: re.Match[str]) -> str:
    escaped = found[1]
    return {None: "", "\n": "", "t": "\t", "b": "\b", "n": "\n"}.get(escaped, escaped)


def _read(file: Path) -> str:
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError("too large")
    return data.decode()
