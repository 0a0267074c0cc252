"""The disk of another machine, by the program over there."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio.to_thread
from anyio.abc import ByteReceiveStream

from acp_agent.errors import ExecutorError
from acp_agent.executors import base as contract
from acp_agent.executors import files, search
from acp_agent.executors.far.far_link import FarLink, There
from acp_agent.executors.far.far_peer import SHOWN
from acp_agent.executors.far.far_walls import FarWalls
from acp_agent.executors.far.news import News
from acp_agent.executors.far.program import search_program
from acp_agent.executors.marked import MARK
from acp_agent.executors.tree_walk import Hides
from acp_agent.lazy import load

T = TypeVar("T")
Query = TypeVar("Query")

SEARCHES = "search.pyz"
SH_SEARCHES = {name: f"acp_agent.executors.posix.sh_search:{name}" for name in ("find", "grep")}
MOST_LISTED = 50_000
TOUCHED = {
    "remove": (("delete", 0),),
    "move": (("delete", 0), ("write", 1), (SHOWN, 0), (SHOWN, 1)),
    "copy": (("read", 0), ("write", 1), (SHOWN, 0), (SHOWN, 1)),
}
"""What these do with each entry of their first path, and in which of their paths."""


class RemoteDisk:
    """Implements `Disk` by a link. `walls`: what confines commands there; `None`: nothing."""

    def __init__(self, link: FarLink, walls: FarWalls | None = None) -> None:
        self._link = link
        self._walls = walls
        self._searches: dict[bool, str] = {}

    async def do(self, path: Path, work: Callable[..., T], *arguments: Any, **options: Any) -> T:
        if work is files.read_version:
            data = await self.do(path, files.read, *arguments)
            return cast("T", files.version_of(data))
        name = f"{work.__module__.rpartition('.')[2]}.{work.__name__}"
        options = {**options, "check": True} if "check" in options else options
        try:
            await self._link.reached()
            if (judged := options.get("judged")) is not None:
                options["approved"] = await self._approved(work.__name__, arguments, judged, options.get("hides"))
            number, answer = self._link.call(name, *arguments, **options)
            try:
                found = await self._link.answer_of(answer)
            except BaseException:
                self._link.send({"do": "cancel", "call": number})
                raise
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ExecutorError(f"{path}: {error.strerror or error}") from error
        return cast("T", found)

    async def _approved(
        self, name: str, paths: Sequence[Any], judged: Callable[..., None], hides: Hides | None
    ) -> Mapping[str, Any] | None:
        """What is judged before a tree is touched, so that not each of its entries has to be asked about: what is there
        now. `None`: too much."""
        ticket = next(self._link.numbers)
        header = {"do": "list", "ticket": ticket, "path": str(paths[0]), "most": MOST_LISTED}
        listed = await self._link.answer_of(self._link.ask(header))
        if listed is None:
            return None
        places = [(doing, paths[index]) for doing, index in TOUCHED[name]]

        def refused() -> list[tuple[int, str]]:
            found = []
            for index, (doing, place) in enumerate(places):
                for entry, mode in listed:
                    try:
                        if doing != SHOWN:
                            judged(doing, place / entry, mode)
                        elif hides is not None and hides(place / entry):
                            found.append((index, entry))
                    except ExecutorError:
                        found.append((index, entry))
            return found

        said = await anyio.to_thread.run_sync(refused)
        return {"ticket": ticket, "places": [(doing, str(place)) for doing, place in places], "refused": said}

    async def search(self, how: search.Search[Query], query: Query, hides: Hides | None) -> contract.Found:
        there = await self._link.reached()
        host = _FarHost(self, self._link, there)
        if there.python[0] or host.ripgrep:
            with contextlib.suppress(_NoPython):
                return await how(query, hides, host)
        found: contract.Found = await load(SH_SEARCHES[how.__name__])(query, hides, host)
        return found

    async def worker(self) -> str:
        """The path of the program that searches, which is sent once."""
        confined = self._walls is not None and self._walls.confine
        if confined not in self._searches:  # Once there are walls, it is behind them.
            self._searches[confined] = await self._link.put(SEARCHES, search_program())
        return self._searches[confined]


class _NoPython(Exception):
    """Our program that searches cannot run there."""


class _FarHost:
    def __init__(self, disk: RemoteDisk, link: FarLink, there: There) -> None:
        self._disk, self._link, self._there = disk, link, there
        self.ripgrep = there.programs.get("rg") or None

    async def worker(self, arguments: Mapping[str, object]) -> list[str]:
        if not self._there.python[0]:
            raise _NoPython
        return [self._there.python[0], "-I", await self._disk.worker(), json.dumps(dict(arguments))]

    async def start(self, argv: list[str], *, own: bool = False) -> search.Process:
        link, number = self._link, next(self._link.numbers)
        mark = f"{link.way.mark}.{uuid.uuid4().hex}"
        process = _FarSearch(link, number, mark)
        await link.begin(number, process, argv, {**self._there.environ, MARK: mark}, "/")
        return process

    async def asked(self, work: Callable[..., T], *arguments: Any) -> T:
        return await self._disk.do(Path("/"), work, *arguments)


class _FarStream(ByteReceiveStream):
    """Bytes that another thread puts in; empty ones say that there are no more."""

    def __init__(self, heard: Callable[[int], None]) -> None:
        self.news: News[bytes] = News()
        self._heard = heard
        self._over = False

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        while True:
            pieces = self.news.take()
            self._over = self._over or b"" in pieces
            if data := b"".join(pieces):
                self._heard(len(data))
                return data
            if self._over:
                raise anyio.EndOfStream
            await self.news.wait()

    async def aclose(self) -> None:
        self.news.close()


class _FarSearch:
    """A program over there whose output is wanted as bytes."""

    def __init__(self, link: FarLink, number: int, mark: str) -> None:
        self._link, self._number, self._mark = link, number, mark
        heard = lambda size: link.send({"do": "heard", "run": number, "bytes": size})  # noqa: E731
        self.stdout, self.stderr = _FarStream(heard), _FarStream(heard)
        self.returncode: int | None = None

    def printed(self, stream: str, data: bytes) -> None:
        (self.stdout if stream == "stdout" else self.stderr).news.put(data)

    def ended(self, code: int | None, cwd: str, state: bytes) -> None:
        self.returncode = -1 if code is None else code
        self.stdout.news.put(b"")
        self.stderr.news.put(b"")

    async def wait(self) -> int:
        """Only once its streams have ended."""
        return -1 if self.returncode is None else self.returncode

    def kill(self) -> None:
        with contextlib.suppress(ExecutorError):
            self._link.ask({"do": "kill", "run": self._number, "mark": self._mark, "grace": 0})

    async def aclose(self) -> None:
        self._link.runs.pop(self._number, None)
        await self.stdout.aclose()
        await self.stderr.aclose()
