"""The executor of another machine: its commands and its files, by the program over there."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream

from acp_agent.errors import ExecutorError
from acp_agent.executors import base as contract
from acp_agent.executors import files, search
from acp_agent.executors.encodings import decoded
from acp_agent.executors.far.far_link import FarLink, There
from acp_agent.executors.far.far_peer import SHOWN, STATE
from acp_agent.executors.far.far_walls import FarWalls
from acp_agent.executors.far.host_process import HostProcess
from acp_agent.executors.far.news import News
from acp_agent.executors.far.program import search_program
from acp_agent.executors.local import QUIET, TERMINATE_GRACE, LocalExecutor
from acp_agent.executors.marked import MARK
from acp_agent.executors.route import Offer
from acp_agent.executors.shell_state import load_state, with_state
from acp_agent.executors.start import of_its_own
from acp_agent.executors.tree_walk import Hides
from acp_agent.lazy import load

T = TypeVar("T")
Query = TypeVar("Query")

SEARCHES = "search.pyz"
SH_SEARCHES = {name: f"acp_agent.executors.posix.sh_search:{name}" for name in ("find", "grep")}
UNDONE = 10.0
"""Seconds to remove there what was made for a program that does not begin."""
MOST_LISTED = 50_000
TOUCHED = {
    "remove": (("delete", 0),),
    "move": (("delete", 0), ("write", 1), (SHOWN, 0), (SHOWN, 1)),
    "copy": (("read", 0), ("write", 1), (SHOWN, 0), (SHOWN, 1)),
}
"""What these do with each entry of their first path, and in which of their paths."""
TERMINAL_SCRIPT = "acp_agent.executors.places.far_terminal:terminal_script"
TERMINAL_ENVIRON = "acp_agent.executors.places.far_terminal:terminal_environ"
CONFINED_ARGV = "acp_agent.executors.places.far_terminal:confined_argv"
CONFINED_SCRIPT = "acp_agent.executors.places.far_terminal:confined_script"
START_THERE = "acp_agent.executors.places.far_terminal:start_there"


class FarExecutor(LocalExecutor):
    """`env`: names of the variables of this machine that commands there get. `walls`: what confines them there; `None`:
    nothing."""

    offer = Offer()

    def __init__(
        self,
        link: FarLink,
        *,
        environ: Mapping[str, str] = os.environ,
        env: Sequence[str] = (),
        walls: FarWalls | None = None,
        terminate_grace: float = TERMINATE_GRACE,
        hides: Hides | None = None,
    ) -> None:
        super().__init__(environ=environ, terminate_grace=terminate_grace, hides=hides)
        self.link = link
        self._walls = walls
        self._own = {name: environ[name] for name in env if name in environ}
        self._numbers = itertools.count(1)
        self._searches: dict[bool, str] = {}

    async def ready(self) -> There:
        if (there := self.link.there) is not None:
            return there
        return await anyio.to_thread.run_sync(self.link.ready)

    # --- commands ---------------------------------------------------------------------------------------------

    async def run(self, command: contract.Command) -> contract.Process:
        there = await self.ready()
        confined = command.confined and self._walls is not None and await self._walls.holds()
        mark = f"{self.link.way.mark}.{uuid.uuid4().hex}"
        shell, script, state = there.programs.get("bash", ""), command.script, None
        if (file := self.state_file(command)) is not None:
            script = with_state(
                script, Path(STATE), keep=command.keeps_state, without=of_its_own(command), bash=bool(shell)
            )
            state = load_state(file).decode("utf-8", "surrogateescape")
        argv = [shell or "/bin/sh", *contract.shell_options(command), "-c", script]
        environ = {**there.environ, **QUIET, **self._own, **command.env, MARK: mark}
        if command.terminal is not None:
            return await self._in_terminal(command, shell or "/bin/sh", environ, mark, confined)
        number = next(self._numbers)
        process = HostProcess(self.link, number, mark, command, self._grace)
        try:
            await self.begin(number, process, argv, environ, str(command.cwd), state, confined=confined)
        except BaseException:
            await process.close()
            raise
        return process

    def state_file(self, command: contract.Command) -> Path | None:
        """As here: an unconfined command never runs what a confined one may have written."""
        apart = not command.confined and self._walls is not None and self._walls.confine
        return None if apart else command.state_file

    async def _in_terminal(
        self, command: contract.Command, shell: str, environ: Mapping[str, str], mark: str, confined: bool
    ) -> contract.Process:
        """By a connection of its own, with which it ends."""
        link = self.link

        async def finish() -> bool:
            return bool(await link.answer_of(link.ask({"do": "kill", "run": 0, "mark": mark, "grace": 0})))

        try:
            if confined:
                assert self._walls is not None
                header = {"do": "confine", "mark": mark, "argv": load(CONFINED_ARGV)(command, shell, Path(STATE))}
                header |= {"env": load(TERMINAL_ENVIRON)(command, environ), "cwd": str(command.cwd)}
                header["state"] = load_state(self.state_file(command)).decode("utf-8", "surrogateescape")
                way_in = await self._walls.way_in(header)
                text = load(CONFINED_SCRIPT)(way_in.argv, way_in.cwd, way_in.env, way_in.files)
            else:
                text = load(TERMINAL_SCRIPT)(command, shell, environ)
            file = await self._put(uuid.uuid4().hex, text)
            argv, way = link.way.argv(shell, file, terminal=True), link.way
            about = (command, mark, self._grace, finish, way.where)
            process: contract.Process = load(START_THERE)(argv, way.environ, *about, held=confined)
        except BaseException:
            if confined:  # There it may be ready to begin.
                with anyio.CancelScope(shield=True), anyio.move_on_after(UNDONE), contextlib.suppress(ExecutorError):
                    await finish()
            raise
        return process

    async def _put(self, name: str, data: bytes) -> str:
        return str(await self.link.answer_of(self.link.ask({"do": "put", "name": name}, data)))

    async def begin(
        self,
        number: int,
        hears: Any,
        argv: Sequence[str],
        environ: Mapping[str, str],
        cwd: str,
        state: str | None = None,
        *,
        confined: bool = False,
    ) -> None:
        """Starts a program there. Raises ExecutorError."""
        if any("\0" in text for text in (*argv, *environ, *environ.values())):
            raise ExecutorError("the command could not be started: embedded null byte")
        self.link.runs[number] = hears
        header = {"do": "run", "run": number, "argv": list(argv), "env": dict(environ), "cwd": cwd, "state": state}
        header["confined"] = confined
        try:
            with anyio.CancelScope(shield=True):  # Who is only half started could not be ended.
                answer = self.link.ask(header)
                await anyio.to_thread.run_sync(self.link.value_of, answer)
        except BaseException:
            self.link.runs.pop(number, None)
            raise

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.link.close)

    # --- files ------------------------------------------------------------------------------------------------

    async def _in_thread(self, path: Path, work: Callable[..., T], *arguments: Any, **options: Any) -> T:
        if work is files.read_decoded:
            data = await self._in_thread(path, files.read, *arguments)
            return cast("T", decoded(data))
        name = f"{work.__module__.rpartition('.')[2]}.{work.__name__}"
        options = {**options, "check": True} if "check" in options else options
        try:
            await self.ready()
            if (judged := options.get("judged")) is not None:
                options["approved"] = await self._approved(work.__name__, arguments, judged)
            number, answer = self.link.call(name, *arguments, **options)
            try:
                found = await self.link.answer_of(answer)
            except BaseException:
                self.link.send({"do": "cancel", "call": number})
                raise
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ExecutorError(f"{path}: {error.strerror or error}") from error
        return cast("T", found)

    async def _approved(self, name: str, paths: Sequence[Any], judged: Callable[..., None]) -> Mapping[str, Any] | None:
        """What is judged before a tree is touched, so that not each of its entries has to be asked about: what is there
        now. `None`: too much."""
        ticket = next(self._numbers)
        header = {"do": "list", "ticket": ticket, "path": str(paths[0]), "most": MOST_LISTED}
        listed = await self.link.answer_of(self.link.ask(header))
        if listed is None:
            return None
        places = [(doing, paths[index]) for doing, index in TOUCHED[name]]
        hides = self._hides

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

    async def _search(self, how: search.Search[Query], query: Query, hides: Hides | None) -> contract.Found:
        there = await self.ready()
        host = _FarHost(self, there)
        if there.python[0] or host.ripgrep:
            with contextlib.suppress(_NoPython):
                return await how(query, hides, host)
        found: contract.Found = await load(SH_SEARCHES[how.__name__])(query, hides, host)
        return found

    async def worker(self) -> str:
        """The path of the program that searches, which is sent once."""
        confined = self._walls is not None and self._walls.confine
        if confined not in self._searches:  # Once there are walls, it is behind them.
            self._searches[confined] = await self._put(SEARCHES, search_program())
        return self._searches[confined]


class _NoPython(Exception):
    """Our program that searches cannot run there."""


class _FarHost:
    def __init__(self, executor: FarExecutor, there: There) -> None:
        self._executor, self._there = executor, there
        self.ripgrep = there.programs.get("rg") or None

    async def worker(self, arguments: Mapping[str, object]) -> list[str]:
        if not self._there.python[0]:
            raise _NoPython
        return [self._there.python[0], "-I", await self._executor.worker(), json.dumps(dict(arguments))]

    async def start(self, argv: list[str], *, own: bool = False) -> search.Process:
        link, number = self._executor.link, next(self._executor._numbers)
        mark = f"{link.way.mark}.{uuid.uuid4().hex}"
        process = _FarSearch(link, number, mark)
        await self._executor.begin(number, process, argv, {**self._there.environ, MARK: mark}, "/")
        return process

    async def asked(self, work: Callable[..., T], *arguments: Any) -> T:
        return await self._executor._in_thread(Path("/"), work, *arguments)


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
