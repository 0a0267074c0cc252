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
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from acp_agent.disk import HERE
from acp_agent.toml_table import toml_table

if TYPE_CHECKING:
    from acp_agent.disk import Disk

MAX_BYTES = 200_000
MAX_INDEX_BYTES = 100_000_000
MOST_INDEXES = 100
TRIES = 3
SUBMODULE = b"\0\0\xe0\0"
"""The mode of a submodule in the index; an accidental match elsewhere only costs an unnecessary question."""

BEFORE_VALUES = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"))
INIT_VALUES = frozenset(
    ("-b", "--initial-branch", "--template", "--separate-git-dir", "--object-format", "--ref-format")
)
"""Options of git, and of `git init`, whose value is the next word."""

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


def runs_programs(folder: Path, disk: Disk = HERE) -> bool:
    """Whether git, started in `folder`, may run a program named inside the repository. Never raises."""
    try:
        return any(_is_hostile(git, disk) for git in _git_folders(disk.real_path(folder), disk))
    except (OSError, ValueError, RuntimeError):
        return True


def names_programs(git: Path, known: Collection[Path]) -> bool:
    """Whether git may run a program that the repository at `git` names: a folder of git's, or the file that points to
    one. False for what git takes for no repository (yet), and for a configuration of a `known` one. Never raises.

    Submodules do not count: each has a folder of its own to ask about.
    """
    for _ in range(TRIES):
        try:
            return _names_programs(git, known)
        except (OSError, ValueError, RuntimeError):
            continue  # Somebody may just be writing or removing a file: git, or we our `commondir`.
    return True


def _names_programs(git: Path, known: Collection[Path]) -> bool:
    folder = git.parent / _link(git, "gitdir: ", HERE) if git.is_file() else git
    common = folder / _link(folder / "commondir", "", HERE) if _has(HERE, folder, "commondir") else folder
    if not (_has(HERE, folder, "HEAD") and _has(HERE, common, "objects", "refs")):
        return False
    folders = [each for each in dict.fromkeys((folder.resolve(), common.resolve())) if each not in known]
    return any(_runs_hooks(each, HERE) or not _is_harmless(each, HERE) for each in folders)


def repository_around(words: Sequence[str], folders: Iterable[Path], home: Path | None, disk: Disk = HERE) -> str:
    """The top of a repository in which `git init`, by its words, makes another one; empty if it makes none in one. The
    home folder's counts for none."""
    place, rest = "", list(words[1:])
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        value = rest.pop(0) if option in BEFORE_VALUES and rest else ""
        place = os.path.join(place, value) if option == "-C" else place
    if rest[:1] not in (["init"], ["init-db"]):
        return ""
    operands = (each for before, each in pairwise(rest) if not each.startswith("-") and before not in INIT_VALUES)
    inner = os.path.join(place, next(operands, ""))
    for folder in folders:
        made = disk.real_path(Path(os.path.normpath(folder / inner)))
        for top in made.parents if not disk.stands(made / ".git" / "HEAD") else ():
            if home is not None and (top == home or top in home.parents):
                break
            if disk.kind(top / ".git") == "file" or disk.stands(top / ".git" / "HEAD"):
                return str(top)
    return ""


def _git_folders(folder: Path, disk: Disk) -> list[Path]:
    """The folders git would read its configuration from, found as git does from `folder`."""
    for place in (folder, *folder.parents):
        dot_git = place / ".git"
        if disk.kind(dot_git) == "file":
            return _with_common(place / _link(dot_git, "gitdir: ", disk), disk)
        if disk.stands(dot_git):
            return _with_common(dot_git, disk)
        if _has(disk, place, "HEAD") and (_has(disk, place, "objects", "refs") or _has(disk, place, "commondir")):
            raise ValueError("a bare repository")
    return []


def _with_common(git: Path, disk: Disk) -> list[Path]:
    """`git` and the folder it shares with other worktrees. Git searches on if `git` is not a repository."""
    common = git / _link(git / "commondir", "", disk) if _has(disk, git, "commondir") else git
    if not HEAD.fullmatch(_read(git / "HEAD", disk)) or not _has(disk, common, "objects", "refs"):
        raise ValueError("no git folder")
    return [git, common]


def _has(disk: Disk, folder: Path, *names: str) -> bool:
    return all(disk.stands(folder / name) for name in names)


def _link(file: Path, prefix: str, disk: Disk) -> str:
    text = _read(file, disk).rstrip("\r\n")
    target = text.removeprefix(prefix)
    if not text.startswith(prefix) or not target or target != target.strip() or "\n" in target:
        raise ValueError("no git link")
    return target


def _is_hostile(git: Path, disk: Disk) -> bool:
    return _runs_hooks(git, disk) or _has_submodules(git, disk) or not _is_harmless(git, disk)


def _runs_hooks(git: Path, disk: Disk) -> bool:
    return any(disk.kind(git / "hooks" / hook) for hook in HOOKS)


def _is_harmless(git: Path, disk: Disk) -> bool:
    """Whether its configuration has only keys that run nothing."""
    files = [git / name for name in ("config", "config.worktree") if disk.kind(git / name) in ("file", "other")]
    entries = [entry for file in files for entry in _entries(_read(file, disk))]
    return all(_is_allowed(*entry) or _is_of_submodule(git, *entry) for entry in entries)


def _is_of_submodule(git: Path, name: str, value: str) -> bool:
    """Whether it says where the files of a submodule are: beside `.git`, in which its own folder is."""
    top = next((each for each in git.parents if each.name == "modules" and each.parent.name == ".git"), None)
    files = Path(os.path.normpath(git / value))
    return (
        name == "core.worktree"
        and top is not None
        and top.parents[1] in files.parents
        and top.parent not in files.parents
    )


def _has_submodules(git: Path, disk: Disk) -> bool:
    shared = disk.matches("sharedindex.*", git, MOST_INDEXES + 1)
    if len(shared) > MOST_INDEXES:
        raise ValueError("too many")
    files = [git / name for name in ("index", *shared) if disk.kind(git / name)]
    return any(disk.holds(file, SUBMODULE, MAX_INDEX_BYTES) for file in files)


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


def _read(file: Path, disk: Disk) -> str:
    text = disk.text(file, MAX_BYTES)
    text.encode()  # Raises ValueError for what is not UTF-8.
    return text
