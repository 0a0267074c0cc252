"""The git repository that one of the session's folders is in, found as git finds it, and judged: what of it outside of
the folder commands may use.

Git looks for `.git` in the folder and in those above it. What is there may have been put there to lead commands to
somebody else's repository, or to have git in the folder read and write elsewhere. So commands get it only where

- it is a folder of git's, and neither a link nor one that names another repository or work tree;
- it and the top of its work tree have the owner that the session's folder has, and not everybody may write there;
- it is not the home folder's (dotfiles) nor a machine's, and not outside of what a server's token may open; and only
  around the session's working folder;
- where `.git` is a file: the repository that it leads to names this work tree, or its index has seen these files.

What was judged is held to its identity until it is mounted. Needs little: it is also sent to other hosts.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from acp_agent.disk import HERE, Folder, Identity
from acp_agent.lazy import load
from acp_agent.safety.folders.paths import read_regular
from acp_agent.safety.folders.protect import BRANCHES, WORKTREES

if TYPE_CHECKING:
    from acp_agent.safety.folders.paths import Roots

HAS_SEEN = "acp_agent.undo.git_index:has_seen"

MAX_CONFIG = 200_000
MAX_INDEX = 50_000_000
MACHINES_OWN = frozenset("/ /bin /boot /dev /etc /home /lib /lib64 /proc /root /run /sbin /sys /usr /var".split())
"""Where whoever keeps a repository (`etckeeper`) has more in it than a project."""

WORKTREE = re.compile(r"(?:^|\])\s*worktree\s*=\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
POINTER = re.compile(r"gitdir: (.+?)\s*")
ENDS = "which does not say that this is its work tree"


class Repository(Struct, frozen=True):
    top: Path
    """The top of its work tree: the session's folder, or one above it."""
    git: Path
    """Git's folder, in `top` or elsewhere."""
    why: str = ""
    """Why commands do not get it, in a few words; empty if they do, or need nothing outside of the session's folder."""
    writable: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    opened: Mapping[Path, Identity] = field(default_factory=dict)
    """What was judged: nothing else may be mounted there."""
    hidden: tuple[Path, ...] = ()
    """Of `top`, what must not be read all the same."""

    @property
    def is_there(self) -> bool:
        """Whether all of it still is what was judged."""
        return all(Folder(path).identity == meant for path, meant in self.opened.items())

    def without(self, why: str) -> Repository:
        return Repository(self.top, self.git, why)


def repository_of(folder: Path, roots: Roots) -> Repository | None:
    """Of a resolved folder on this machine; `None` where git would find none. Does not look for what is `hidden`."""
    try:
        own = os.stat(folder)
        for top in (folder, *folder.parents):
            found = os.lstat(top)
            if found.st_dev != own.st_dev:
                return None  # As git, which stays on one file system.
            if top != folder and _is_git(Folder(top)):
                return None  # A bare one, or inside of one.
            if (made := _at(top, folder, roots)) is not None:
                return made if top == folder or made.why else _above(made, found, own, folder, roots)
    except (OSError, ValueError, RuntimeError):
        pass
    return None


def _at(top: Path, folder: Path, roots: Roots) -> Repository | None:
    git = top / ".git"
    try:
        mode = os.lstat(git).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        opened = Folder(git)
        if not _is_git(opened):
            return None
        return Repository(top, git) if top == folder else _of(top, opened)
    if stat.S_ISLNK(mode):
        inside = folder in HERE.real_path(git).parents
        return Repository(top, git, "" if inside else f"{git} is a link that leads elsewhere")
    named = POINTER.fullmatch(_text(Folder(top), ".git") or "")
    if named is None:
        return Repository(top, git, f"{git} names no repository")
    return _led(top, folder, Folder(HERE.real_path(top / named[1])), roots)


def _of(top: Path, git: Folder, readable: tuple[Path, ...] = ()) -> Repository:
    """All of it, but what names programs."""
    assert git.identity is not None
    special = (git.path / "hooks", git.path / "config")
    return Repository(top, git.path, "", (git.path,), special, readable, {git.path: git.identity})


def _above(found: Repository, there: os.stat_result, own: os.stat_result, folder: Path, roots: Roots) -> Repository:
    """The same with the files around the session's folder, if all is the user's own."""
    top, home = found.top, HERE.real_path(roots.rules.home or Path.home())
    owners = {there.st_uid, *(os.stat(path).st_uid for path in found.opened)}
    why = ""
    if top == home or top in home.parents:
        why = f"it is that of the home folder, or of one above it ({top})"
    elif str(top) in MACHINES_OWN:
        why = f"{top} is the machine's own"
    elif folder != roots.real[0]:
        why = f"of {top}, only the folder {folder} was added to the session"
    elif owners != {own.st_uid}:
        why = f"{top} or its `.git` belongs to another user than the session's folder"
    elif there.st_mode & stat.S_IWOTH:
        why = f"everybody may write in {top}"
    elif closed := _closed(top, roots, top / ".git", found.git):
        why = closed
    elif found.git == top / ".git" and _names_another(top, Folder(found.git)):
        why = f"{found.git} names another repository or work tree"
    if why:
        return found.without(why)
    return replace(found, readable=(*found.readable, top), opened={**found.opened, top: (there.st_dev, there.st_ino)})


def _closed(place: Path, roots: Roots, *parts: Path) -> str:
    """Why nobody may have it, if a server's token cannot open it or rules hide it or one of these parts."""
    if roots.within and not any(place.is_relative_to(each) for each in roots.within):
        return f"{place} is outside of the folders that may be opened"
    return f"{place} is hidden" if any(map(roots.rules.hides, (place, *parts))) else ""


def _names_another(top: Path, git: Folder) -> bool:
    """Whether git would take the configuration of a plain `.git`, or the files, from elsewhere."""
    if _has_common(git):
        return True
    trees = [tree for name in ("config", "config.worktree") for tree in WORKTREE.findall(_text(git, name) or "")]
    return any(HERE.real_path(git.path / tree.strip('"')) != top for tree in trees)


def _has_common(git: Folder) -> bool:
    """Whether it takes its configuration from elsewhere; our own file (`common_dirs`) says that it does not."""
    for _ in range(2):  # Our file may come or go between two looks.
        if (text := _text(git, "commondir")) is not None:
            return text.strip() != "."
        if not os.path.lexists(git.path / "commondir"):
            return False
    return True


def _led(top: Path, folder: Path, git: Folder, roots: Roots) -> Repository:
    """Where `.git` is a file: a worktree, a submodule, or made with `--separate-git-dir`."""
    none, home = Repository(top, git.path), HERE.real_path(roots.rules.home or Path.home())
    if git.identity is None or not _is_git(git):
        return none.without(f"`.git` leads to {git.path}, where no repository is")
    if folder in git.path.parents:
        return none  # Commands have it as it is.
    made, place = None, git.path
    if (back := _text(git, "gitdir")) is not None:
        if HERE.real_path(git.path / back.strip()) == top / ".git":
            made = _worktree(top, git)
        if made is None:
            return none.without(f"`.git` leads to {git.path}, {ENDS} (`git worktree repair`)")
        place = git.path.parent.parent
    if place in top.parents or home.is_relative_to(place):
        return none.without(f"`.git` leads to {place}, which has more in it than a repository")
    if why := _closed(place, roots):
        return none.without(why)
    if os.stat(top).st_uid != os.stat(place).st_uid:
        return none.without(f"{place} belongs to another user than {top}")
    if made is not None:
        return made
    if _has_common(git):
        return none.without(f"{git.path} names another repository")
    tree = WORKTREE.search(_text(git, "config") or "")
    ours = _has_seen(git, top) if tree is None else HERE.real_path(git.path / tree[1].strip('"')) == top
    told = f"`.git` leads to {git.path}, {ENDS} (`git config core.worktree {top}` does)"
    return _of(top, git) if ours else none.without(told)


def _worktree(top: Path, git: Folder) -> Repository | None:
    """Git's folders for a worktree. Of one that the agent made, only what a commit on its own branch writes is
    writable."""
    common = Folder(HERE.real_path(git.path / (_text(git, "commondir") or ".").strip()))
    folders = (git.path.parent.name, git.path.parent.parent)
    if folders != ("worktrees", common.path) or common.identity is None or not os.path.isdir(common.path / "objects"):
        return None
    assert git.identity is not None
    opened, own = {git.path: git.identity, common.path: common.identity}, git.path / "config.worktree"
    if top.parent.name != WORKTREES:
        special = (common.path / "hooks", common.path / "config", own)
        return Repository(top, git.path, "", (common.path,), special, (), opened)
    branches = (common.path / "refs" / "heads" / BRANCHES, common.path / "logs" / "refs" / "heads" / BRANCHES)
    special = (own, git.path / "gitdir", git.path / "commondir")
    return Repository(
        top, git.path, "", (common.path / "objects", *branches, git.path), special, (common.path,), opened
    )


def _has_seen(git: Folder, top: Path) -> bool:
    """Whether the index knows one of the files in `top` by inode and time of change, which nobody can set; or whether
    nothing is in the repository that could be read, and it is not the plain one of another folder."""
    if (data := _data(git, "index", MAX_INDEX)) is not None:
        return bool(load(HAS_SEEN)(data, top))
    if git.path.name == ".git" or any(os.path.lexists(git.path / name) for name in ("packed-refs", "reftable")):
        return False
    return all(entry.name in ("info", "pack") for entry in os.scandir(git.path / "objects"))


def _is_git(folder: Folder) -> bool:
    """Whether git takes it for a repository."""
    if folder.identity is None or not os.path.isfile(folder.path / "HEAD"):
        return False
    return os.path.lexists(folder.path / "commondir") or all(
        os.path.isdir(folder.path / name) for name in ("objects", "refs")
    )


def _text(folder: Folder, name: str) -> str | None:
    data = _data(folder, name, MAX_CONFIG)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _data(folder: Folder, name: str, limit: int) -> bytes | None:
    """Of a file in the folder that was opened, whatever is at its path by now; `None` if there is none."""
    try:
        if folder.handle is None:
            return read_regular(folder.path / name, limit)
        return read_regular(name, limit, folder.handle)
    except OSError:
        return None
