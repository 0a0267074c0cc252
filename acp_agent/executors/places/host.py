"""Another machine, or the inside of a container: a session's commands run there, and its files are there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from acp_agent.config.place_settings import Place
from acp_agent.errors import ExecutorError
from acp_agent.executors.far.far_disk import FarDisk
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.far.far_link import There as Found
from acp_agent.executors.far.far_walls import FarWalls
from acp_agent.executors.far.news import News
from acp_agent.executors.far.started import Way
from acp_agent.executors.places.engine import NOT_OURS, is_left, owner
from acp_agent.executors.places.inside_container import Inside
from acp_agent.executors.places.ssh import Ssh
from acp_agent.legible import legible

WANTED = {"bash": "commands are those of sh", "git": "commands that use it fail", "rg": "`grep` uses a slower search"}
"""What may be missing there, and what follows."""
READABLE = "What `tools.files.deny_read` hides, the file tools refuse, but commands there can read it."
MOST_SAID = 200


class Host:
    """Of one session."""

    walls: FarWalls | None = None
    """What confines commands there, once it can be asked."""

    def __init__(self, place: Place, folders: Sequence[Path], environ: Mapping[str, str]) -> None:
        """`folders`: the session's on this machine. `environ`: for `ssh` or the engine. Raises ExecutorError for what
        is no host."""
        name, config = place
        self.contained = config.kind == "container"
        """The container is the wall."""
        self.walled = not self.contained or config.landlock
        """Whether something else has to be."""
        way: Way
        if self.contained:
            way = Inside(name, config, environ, folders)
        else:
            login = ("-l", config.user) if config.user else ()
            way = Ssh(config.host, environ, folders, (*login, *config.arguments))
        self._given = f"--{config.kind} {config.container if self.contained else config.host}"
        self.words, self.where = way.words, way.where
        self.identity = way.identity
        self.env = tuple(config.env)
        self.link = FarLink(way, owner(), is_left, config.linger)
        self.disk = FarDisk(self.link)
        self._config = config
        self._folders = tuple(folders)
        self.folders: tuple[Path, ...] = ()
        """The session's there, once it was reached."""
        self.named: tuple[Path, ...] = ()
        """The same, as they are named on this machine."""

    @property
    def lacks_walls(self) -> bool:
        return self.walled and (self.walls is None or self.walls.lacks)

    @property
    def sandbox(self) -> str:
        if not self.walled:
            return "none"
        return "" if self.walls is None else self.walls.kind

    @property
    def over(self) -> str:
        return self.link.over

    async def reached(self) -> Found:
        """Raises ExecutorError with a sentence. Where `folders` are is known afterwards."""
        return await anyio.to_thread.run_sync(self._reached, abandon_on_cancel=True)

    def _reached(self) -> Found:
        there = self.link.ready()
        if not self.folders:
            home = self.home
            first = self._there(self._folders[0], home)
            if self.disk.kind(first) != "dir":
                how = f"`{self._given}:DIR`, `root` or `paths` of its place"
                raise ExecutorError(f"{self.words} has no folder {first}; another one is named by {how}")
            others = [(each, _mapped(each, self._config.paths, home) or each) for each in self._folders[1:]]
            others = [pair for pair in others if self.disk.kind(pair[1]) == "dir"]
            pairs = [(self._folders[0], first), *others]
            self.named, self.folders = tuple(here for here, _ in pairs), tuple(there for _, there in pairs)
        return there

    @property
    def home(self) -> Path:
        """The user's there, once it was reached."""
        there = self.link.there
        return self.disk.real_path(Path("/" if there is None else there.environ.get("HOME", "/")))

    def _there(self, folder: Path, home: Path) -> Path:
        root = self._config.root
        return _mapped(folder, self._config.paths, home) or (_in(root, home) if root else folder)

    async def lines(self) -> list[str]:
        there = await self.reached()
        root, *more = map(str, self.folders)
        also = f" (and {', '.join(more)})" if more else ""
        python = f"Python {there.python[1]}" if there.python[0] else "no Python"
        system = legible(f"{there.system}, {python}")[:MOST_SAID]
        lines = [
            f"Commands run {self.where}, and files are there: {root}{also} ({system}).",
            *(["The container is the wall.", f"{NOT_OURS}."] if self.contained else ()),
            *(() if self.walled else (READABLE,)),
            *(await self.walls.lines() if self.walls is not None else ()),
        ]
        lines += [f"There is no {name} there: {what}." for name, what in WANTED.items() if not there.programs.get(name)]
        lines.append("Not there: the editor's unsaved text, language servers, undo, worktrees.")
        if (lost := self.link.lost_at) is not None:
            lines.append(f"The connection was lost {time.monotonic() - lost:.0f} s ago; what runs there goes on.")
        return lines

    async def watch(self, tell: Callable[[str], None]) -> None:
        news: News[str] = News()
        self.link.hearers.add(news.put)
        try:
            if self.link.lost_at is not None:
                tell(self.link.lost_words())
            while True:
                await news.wait()
                for words in news.take():
                    tell(words)
        finally:
            self.link.hearers.discard(news.put)
            news.close()

    async def end(self) -> bool:
        told = False
        with anyio.CancelScope(shield=True):
            told = await anyio.to_thread.run_sync(self.link.close)
        return bool(told)


def _mapped(folder: Path, paths: Mapping[str, str], home: Path) -> Path | None:
    """Where a folder of this machine is over there, by the longest of `paths`."""
    pairs = [(Path(here).expanduser(), _in(there, home)) for here, there in paths.items()]
    above = [(here, there) for here, there in pairs if folder.is_relative_to(here)]
    if not above:
        return None
    here, there = max(above, key=lambda pair: len(pair[0].parts))
    return there / folder.relative_to(here)


def _in(text: str, home: Path) -> Path:
    """As a shell there, begun in the home folder, understands it."""
    text = text[2:] or "." if text.startswith("~/") or text == "~" else text
    return Path(os.path.normpath(home / text))
