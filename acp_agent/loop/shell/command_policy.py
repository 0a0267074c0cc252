"""What the commands of a session may touch, on the disk of the machine that they run on.

Computed for each command, since files come and go. It is also sent to other hosts (`side_walls.py`), so it needs
little.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from acp_agent.executors.base import NO_GIT
from acp_agent.executors.sandbox.base import Invocation, SandboxPolicy
from acp_agent.executors.sandbox.holders import is_held
from acp_agent.lazy import load
from acp_agent.legible import NO_LIMIT, size_words
from acp_agent.loop.shell.command_paths import Named, make_folder, named, paths_of
from acp_agent.loop.shell.held_files import HeldFiles
from acp_agent.loop.shell.private_folder import CLOSED_PARTS, PrivateFolder, others_below
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.safety.folders.repository import Repository, repository_of
from acp_agent.safety.folders.survey import Survey, replaceable, survey, with_hidden

if TYPE_CHECKING:
    from acp_agent.child import User
    from acp_agent.config.safety_settings import SandboxConfig

log = logging.getLogger(__name__)

ACTING_AS = "acp_agent.executors.users:acting_as"
UNWRITTEN = "acp_agent.undo.git_index:unwritten"
TOOLCHAINS = "acp_agent.executors.sandbox.toolchains:toolchains"

KIB = 1024
"""Bytes in bash's unit of `ulimit`."""

TOO_LARGE = (
    "the session's folders are too large to scan: not every repository in them is protected, nor every file hidden "
    "that `deny_read` matches"
)

MAX_NAMED = 10

MOST_NAMES = 1_000
"""Entries of a folder that are listed to spare a question for each protected name: of more, each name is asked for."""
UNWRITTEN_WORDS = (
    "Git has other versions of files in {top} than are there, since commands cannot write them: {names}. A commit of "
    "all files (`-a`, `git add -A`) would record the old ones as changes; `git restore` outside of the session updates "
    "them."
)

START_FILES = (".bash", ".profile", ".zsh", ".zprofile", ".zlogin", ".config/fish")


class CommandPolicy:
    """Of one session."""

    def __init__(
        self, config: SandboxConfig, roots: Roots, environ: Mapping[str, str], home: Path | None, folder: PrivateFolder
    ) -> None:
        self._config = config
        self._roots = roots
        self._environ = environ
        self._home = home
        self._folder = folder
        self._readable: tuple[Path, ...] | None = None
        self.other: User | None = None
        """Whom commands run as, if not this process's user."""
        self.links: list[Path] = []
        """Protected paths that are links: their targets are protected, the links are not."""
        self.survey = Survey()
        self._repositories: dict[Path, Repository | None] = {}
        """Of each of the session's folders."""
        self._unwritten: dict[Path, tuple[int, list[str]]] = {}
        """Git's folder -> when its index was last changed, and what it had that git could not write."""
        self.hidden: dict[Path, None] = {}
        """Paths that were ever hidden: they stay hidden, however large the folders become."""
        self._held: HeldFiles | None = None

    def follow(self) -> None:
        """From now on: commands may move what is hidden."""
        if self._held is None:
            self._held = HeldFiles()
            self._folder.at_end(self._held.close)

    def look(self) -> None:
        """Finds what is hidden, and git's folders. Blocks; may take a while."""
        self._repositories.clear()
        own = [each for each in self.repositories() if not _is_agents(each)]
        self.survey = survey(self._roots, {git: each.top for each in own for git in each.writable})
        rules = self._roots.rules
        found = (path for path in self.survey.hidden if rules.moved.isdisjoint((path, *path.parents)))
        self.hidden = {**self.hidden, **dict.fromkeys(found)}
        if self._held is not None:
            self._held.hold([*self.hidden, *rules.forbidden])
            rules.moved = frozenset(self._held.now(self._roots.real))

    def _found(self, folder: Path) -> Repository | None:
        found = repository_of(folder, self._roots)
        if found is None or folder == found.top or self._config.enclosing_repository:
            return found
        return found.without("`tools.sandbox.enclosing_repository` is off")

    def _judged(self, folder: Path) -> Repository | None:
        if (found := self._found(folder)) is None:
            return None
        if not _is_agents(found) and (link := replaceable(found.writable)) is not None:
            return found.without(f"{link} is a link, which commands could replace")
        try:
            return with_hidden(found, self._roots)
        except OSError as error:
            return found.without(f"{found.top} cannot be looked through ({error.strerror})")

    def repositories(self) -> list[Repository]:
        """Those that the session's folders are in, as they were judged; anew where something else is there by now. May
        take a while."""
        for folder in self._roots.real:
            known = self._repositories.get(folder)
            if folder not in self._repositories or (known is not None and not known.is_there):
                self._repositories[folder] = self._judged(folder)
        return [found for found in self._repositories.values() if found is not None]

    def linked(self) -> list[Path]:
        """Git's folders outside of the session's that commands may write."""
        return [place for each in self.repositories() for place in each.writable]

    def git_words(self) -> str:
        """What commands have of a repository that a folder of the session is in, or why not, for the model; empty where
        all of it is in the folder."""
        known = self._repositories or {folder: self._found(folder) for folder in self._roots.real}
        found = [each for each in known.values() if each is not None]
        around = {each.top: None for each in found if each.top in each.readable}
        said = [
            f"Commands write `.git` of the repository {top}, and can only read its other files: those that git cannot "
            "write (`git switch`, `merge`, `pull`) look changed or deleted then, and are not to be committed so."
            for top in around
        ]
        why = dict.fromkeys(each.why for each in found if each.why)
        return " ".join([*said, *([f"{NO_GIT}: {'; '.join(why)}."] if why else [])])

    def unwritten(self) -> str:
        """What git could not write around a session's folder since this was last asked, for user and model."""
        told = []
        for each in filter(None, self._repositories.values()):
            if each.top not in each.readable or not (now := _changed(each.git / "index")):
                continue
            before, known = self._unwritten.get(each.git, (0, []))
            if now != before:
                found = load(UNWRITTEN)(each.git, each.top, self._roots.real)
                self._unwritten[each.git] = now, found
                new = sorted({*found} - {*known})
                names = ", ".join(map(repr, new[:MAX_NAMED])) + (", …" if len(new) > MAX_NAMED else "")
                told += [UNWRITTEN_WORDS.format(top=each.top, names=names)] if new else []
        return "\n".join(told)

    def limited(self, invocation: Invocation) -> Invocation:
        """Its shell sets the limits for itself and all it starts; nothing in the sandbox may raise them again."""
        config, (*first, script) = self._config, invocation.argv
        letters = [(config.max_memory, "d"), (config.max_file_size, "f")]
        lines = [f"ulimit -{letter} {max(1, most // KIB)} || exit 126; " for most, letter in letters if most]
        return replace(invocation, argv=(*first, "".join(lines) + script)) if lines else invocation

    @property
    def protects_git(self) -> bool:
        return any(name in self._config.protect for name in (".git/config", ".git/hooks"))

    def git_folders(self) -> list[Path]:
        """Of the repositories that are in the session's folders; a place holder is none."""
        own = [folder / ".git" for folder in self._roots.real]
        found = dict.fromkeys([*own, *self.survey.repositories])
        if self._config.writable:
            places = paths_of(self.named()[2])
            found = {path: None for path in found if any(path.is_relative_to(place) for place in places)}
        return [path for path in found if os.path.isdir(path) and not is_held(path)]

    def policy(self) -> SandboxPolicy:
        """Returns what a command may touch now."""
        config, roots = self._config, self._roots
        folders = list(roots.real)
        protected = [path for folder in folders for path in self._protected(folder)]
        read, write, narrowed = self.named()
        inside = [path for path in paths_of(narrowed) if any(path.is_relative_to(folder) for folder in folders)]
        writable = [*(inside if config.writable else folders), *paths_of(write), self._folder.path / "state"]
        seen = folders if config.writable else []
        repositories = self.repositories()
        for each in repositories:
            seen += each.readable
            if _is_agents(each):  # Git removes folders of branches that it packs.
                for place in each.writable:
                    make_folder(place)
            if config.writable:
                seen += each.writable
            else:
                writable += each.writable
            protected += each.protected
        if self.protects_git:
            protected += self.survey.special()
        own = [
            *self._roots.rules.own,
            *self._roots.rules.rotated(),
            *self._roots.rules.forbidden,
            *(self._folder.path / part for part in CLOSED_PARTS),
            *others_below([*writable, *self._readable_places(read), *seen], self._folder.path),
        ]
        protected += [path for path in self._roots.rules.own if not os.path.exists(path)]
        if config.writable:
            protected = [path for path in protected if any(path.is_relative_to(place) for place in writable)]
        above = [path for each in repositories for path in each.hidden]
        judged = {path: meant for each in repositories for path, meant in each.opened.items()}
        return SandboxPolicy(
            writable=tuple(dict.fromkeys(writable)),
            readable=tuple(dict.fromkeys([*self._readable_places(read), *seen])),
            hidden=tuple(filter(os.path.exists, dict.fromkeys([*self.hidden, *above, *self._roots.rules.moved, *own]))),
            protected=tuple(dict.fromkeys(protected)),
            opened=judged | {each.path: each.identity for each in roots.opened if each.identity is not None},
            network="all" if config.network == "allow" else "none",
            unix_sockets=config.allow_unix_sockets,
            scratch=self._folder.path / "scratch",
            home=self._home if self.other is None else self.other.home,
            max_processes=config.max_processes,
            runs_as=None if self.other is None else (self.other.uid, self.other.gid),
        )

    def _readable_places(self, read: list[Named]) -> list[Path]:
        if self._readable is None:
            other = self.other  # Another user may not be able to see what is installed in our home.
            home, environ = (self._home, self._environ) if other is None else (other.home, {})
            self._readable = load(TOOLCHAINS)(home, environ)
        return [*self._readable, *paths_of(read)]

    def lines(self) -> list[str]:
        """What commands may touch, for the user."""
        policy, config, private = self.policy(), self._config, self._folder.path
        read, write, narrowed = self.named()
        lines = [f"Writable: {_names(policy.writable, private)}."]
        for what, entries in (
            ("Also writable", write),
            ("In the session's folders, only these are writable", narrowed),
        ):
            if entries:
                lines.append(f"{what}: {', '.join(map(str, entries))}.")
        lines.append(f"Protected in them: {', '.join(config.protect) or 'nothing'}.")
        if self.links:
            lines.append(
                f"Links, so they can be replaced despite the protection: {_names(tuple(self.links), private)}."
            )
        if not self.survey.complete:
            lines.append(f"{TOO_LARGE[0].upper()}{TOO_LARGE[1:]}.")
        if self.hidden:
            lines.append(f"Hidden (`deny_read`): {_names(tuple(self.hidden), private)}.")
        for each in self.repositories():
            if each.top in each.readable:
                hidden = f" but {_names(each.hidden, private)}" if each.hidden else ""
                lines.append(f"Readable around the session's folder: the repository {each.top}{hidden}.")
            elif each.why:
                lines.append(f"{NO_GIT}: {each.why}.")
        if read:
            lines.append(f"Also readable: {', '.join(map(str, read))}.")
        limits = {"processes": f"{config.max_processes:,}" if config.max_processes else NO_LIMIT}
        limits |= {"memory of each": size_words(config.max_memory), "size of a file": size_words(config.max_file_size)}
        lines.append(f"Limits of a command: {', '.join(f'{what}: {most}' for what, most in limits.items())}.")
        if config.strict:
            lines.append("Strict: without a sandbox no command runs.")
        return lines

    def _protected(self, folder: Path) -> list[Path]:
        """Returns the paths that are protected below one of the session's folders, also where it does not exist yet.

        What a shell reads at its start counts in the user's home only, unless it is there. A link can be replaced
        whatever is done about what it leads to; so where nothing stricter is asked for, that is what is protected.
        """
        found = []
        sandbox = self._config
        begun = _names_in(folder)
        there = [path for name in sandbox.protect_existing for path in _matching(folder, name.strip("/"), begun)]
        for path in (*(folder / name.strip("/") for name in sandbox.protect), *there):
            name = str(path.relative_to(folder))
            if path == folder or (name.startswith(START_FILES) and folder != self._home and not os.path.exists(path)):
                continue
            linked = any(os.path.islink(f"{folder}/{step}") for step in accumulate(name.split("/"), "{}/{}".format))
            if not linked or sandbox.strict:
                found.append(path)
                continue
            if path not in self.links:
                self.links.append(path)
                log.warning("%s is a link, which commands in the sandbox could replace", path)
            target = real_path(path)
            if os.path.exists(target) and any(root in target.parents for root in self._roots.real):
                found.append(target)
        return found

    def named(self) -> tuple[list[Named], list[Named], list[Named]]:
        """What `allow_read`, `allow_write` and `writable` stand for now."""
        config, folders, home = self._config, self._roots.all, self._home
        inside = list(self._roots.real)
        written = paths_of(named(config.allow_write, folders, home, inside))
        with load(ACTING_AS)(self.other) if self.other is not None else nullcontext():  # What is made is theirs.
            write = named(config.allow_write, folders, home, inside, written, make=True)
            narrowed = named(config.writable, folders, home, inside, make=True)
        return named(config.allow_read, folders, home, inside, written), write, narrowed


def _changed(file: Path) -> int:
    try:
        return os.lstat(file).st_mtime_ns
    except OSError:
        return 0


def _is_agents(repository: Repository) -> bool:
    """Whether it is that of a worktree of ours, of which commands only read what all worktrees share."""
    return repository.git.parent.parent in repository.readable


def _names_in(folder: Path) -> frozenset[str] | None:
    """Its entries, in small letters: some file systems find a name by any. `None` if it has very many, or may be
    readable by name only."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name.casefold() for entry in islice(entries, MOST_NAMES + 1)]
    except OSError:
        return None
    return frozenset(names) if len(names) <= MOST_NAMES else None


def _matching(folder: Path, name: str, begun: frozenset[str] | None) -> list[Path]:
    """What there is of that name, which may contain `*`. `begun`: as `_names_in`, so that the disk, which may be far
    away, is not asked for each of very many names."""
    if "*" in name:
        return sorted(folder.glob(name))
    first = name.partition("/")[0]
    if begun is not None and first.isascii() and first not in (".", "..") and first.casefold() not in begun:
        return []
    # As text: there are many names, and a Path for each takes longer than all the rest.
    return [folder / name] if name and os.path.lexists(f"{folder}/{name}") else []


def _names(paths: tuple[Path, ...], private: Path) -> str:
    """For users, who need not see the session's private folder."""
    shown = [str(path) for path in paths if private not in path.parents]
    more = f" and {len(shown) - MAX_NAMED} more" if len(shown) > MAX_NAMED else ""
    return (", ".join(shown[:MAX_NAMED]) or "nothing") + more
