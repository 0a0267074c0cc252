"""Scans a session's folders for what commands must not touch: files that `deny_read` matches, and the configuration of
every repository, which git reads when it is used there.

Blocking: run it in a thread. Scans at most `MAX_LOOKED_AT` entries (`MAX_LOOKED_AT_FOR_HIDDEN`).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.lazy import load
from acp_agent.safety.folders.paths import Roots, read_regular, real_path
from acp_agent.safety.folders.repository import WORKTREE, Repository
from acp_agent.safety.globs import PathGlobs

UNKNOWN = "acp_agent.undo.git_index:unknown"

MAX_LOOKED_AT = 20_000
MAX_LOOKED_AT_FOR_HIDDEN = 300_000
"""If there is something to hide."""

MAX_REPOSITORIES = 50

MAX_ABOVE = 100_000
"""Entries of a repository that encloses a session's folder, which are looked at for what is to be hidden."""
MAX_HIDDEN_ABOVE = 200
"""Of them, how many are hidden; with more, commands do not get the repository."""

SKIPPED = frozenset((".git", "node_modules", "__pycache__", ".venv", "venv", "target", ".tox", ".mypy_cache"))
"""Large folders with copies of other people's files."""

INSIDE = ("hooks", "config", "commondir", "config.worktree")
"""Files in a repository's folder that name programs for git to run, or another folder that does."""


MAX_CONFIG = 200_000
NAMING = re.compile(r"(?:^|\])[ \t]*(hookspath|path)[ \t]*=[ \t]*(\S[^\n]*)", re.IGNORECASE | re.MULTILINE)


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


def survey(roots: Roots, more: Mapping[Path, Path] = MappingProxyType({})) -> Survey:
    """`more`: git's folders of the session's that are elsewhere -> the tops of their work trees."""
    rules = roots.rules
    hidden = [Path(glob) for glob in rules.hidden_globs if not any(char in glob for char in "*?[")]
    hidden = [path for path in hidden if os.path.exists(path) and rules.hides(path)]
    repositories = dict.fromkeys(inner for git in more for inner in _with_inner(git))
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
    complete = complete and not any(map(_is_beyond, kept))
    named = tuple(dict.fromkeys(path for folder in kept for path in _named(folder, more.get(folder), roots)))
    return Survey(tuple(dict.fromkeys(hidden)), kept, tuple(pointers[:MAX_REPOSITORIES]), named, complete)


def _common(git: Path) -> Path:
    return git.parents[1] if git.parent.name == "worktrees" else git


def _is_beyond(git: Path) -> bool:
    """Whether its configuration is too large to be read for what it names."""
    try:
        return os.lstat(_common(git) / "config").st_size > MAX_CONFIG
    except OSError:
        return False


def _named(git: Path, top: Path | None, roots: Roots) -> Iterator[Path]:
    """`core.hooksPath` and `include.path`, if they exist inside the repository's own folder, or its work tree (`top`;
    of a submodule or worktree, what it says itself, in the session's folders)."""
    common = _common(git)
    try:
        text = (read_regular(common / "config", MAX_CONFIG) or b"").decode("utf-8", "replace")
        back = (read_regular(git / "gitdir", MAX_CONFIG) or b"").decode("utf-8", "replace") if common != git else ""
    except OSError:
        return
    tree = WORKTREE.search(text) if common == git else None
    said = git / tree[1].strip('"') if tree is not None else (git / back.strip()).parent if back else git.parent
    base = top or real_path(said)
    for name, value in NAMING.findall(text):
        path = real_path((base if name.lower() == "hookspath" else common) / value.strip().strip('"'))
        inside = git.parent in path.parents or (base in path.parents and (top is not None or roots.contains(path)))
        if os.path.exists(path) and inside and path not in (git, git.parent, base):
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


# --- what is around a session's folder ------------------------------------------------------------------------


def replaceable(folders: Iterable[Path]) -> Path | None:
    """A link among what is to be protected in git's folders: it cannot be."""
    inside = (inner / name for git in folders for inner in _with_inner(git) for name in INSIDE)
    return next((path for path in inside if os.path.islink(path)), None)


def with_hidden(found: Repository, roots: Roots) -> Repository:
    """With what commands must not read of the files around a session's folder: what rules hide, what belongs to others,
    what is no file (a pipe is written even where all is read-only), and files that may keep keys, unless git has the
    same. May take a while."""
    top, rules = found.top, roots.rules
    if found.why or top not in found.readable or any(top.is_relative_to(root) for root in roots.real):
        return found
    owner, left, todo, begins = os.stat(top).st_uid, MAX_ABOVE, [str(top)], len(str(top)) + 1
    denied, allowed = (PathGlobs(rules.given[name], [top], rules.home) for name in ("deny_read", "allow_read"))
    hidden: list[Path] = []
    keys: list[Path] = []
    skipped = {str(root) for root in roots.real}
    while todo:
        entries = list(_listed(todo.pop()))
        if (left := left - len(entries)) < 0:
            return found.without(f"{top} has more than {MAX_ABOVE} files, too many to see which to hide")
        for path, status in entries:  # As text: there are many.
            name = path.rpartition("/")[2]
            if path in skipped or name == ".git" or stat.S_ISLNK(status.st_mode):
                continue
            is_folder, is_key = stat.S_ISDIR(status.st_mode), rules.key_name(path[begins:]) is not None
            is_hidden = rules.hides_any and rules.hides(Path(path))
            is_hidden = is_hidden or (bool(denied) and denied.matches(Path(path)) and not allowed.matches(Path(path)))
            is_hidden = is_hidden or not (is_folder or stat.S_ISREG(status.st_mode))
            if is_hidden or status.st_uid != owner or (is_key and is_folder):
                hidden.append(Path(path))
            elif is_key:
                keys.append(Path(path))
            elif is_folder and name not in SKIPPED:
                todo.append(path)
    if around := next((path for path in hidden for root in roots.real if path in root.parents), None):
        return found.without(f"{around} is hidden")
    hidden += load(UNKNOWN)(found.git, top, keys) if keys else []
    if len(hidden) > MAX_HIDDEN_ABOVE:
        return found.without(f"more than {MAX_HIDDEN_ABOVE} files in {top} would have to be hidden")
    return replace(found, hidden=tuple(hidden))


def _listed(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """What is in a folder; nothing where that is gone, or cannot be read: commands cannot either."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                yield entry.path, entry.stat(follow_symlinks=False)
