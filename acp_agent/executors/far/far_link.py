"""The connection of a session to its program over there, kept up over lost links.

Everything here but what is awaited blocks or runs in threads of its own: the disk that deciders ask is asked from
wherever they are.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread
from msgspec import Struct

from acp_agent.errors import ExecutorError
from acp_agent.executors.far.far_peer import HEARTBEAT, Header, Link, Lost, Malformed, Peer, Refused
from acp_agent.executors.far.far_values import packed, unpacked
from acp_agent.executors.far.program import BOOT, program
from acp_agent.executors.far.started import BEGINS, Started, Way
from acp_agent.executors.places.engine import LACKS, STOPPED
from acp_agent.lazy import load
from acp_agent.limits.decoding import read_loose_json

if TYPE_CHECKING:
    from acp_agent.executors.posix.sh_side import ShSide

log = logging.getLogger(__name__)

ENDS = 3.0
"""Seconds for the program over there to end all of the session's."""
PAUSES = (0.1, 0.3, 1.0, 2.0)
"""Seconds between attempts to reach it again; the last one from then on."""
PYTHON = ("python3", "-I", "-c", BOOT)
NO_PYTHON = (4, 126, 127)
"""Exit codes where there is none, or an older one than our program needs (`program.PRELUDE`)."""
CLOSED = "the session was closed"
NO_HELLO = (ValueError, KeyError, TypeError, AttributeError, IndexError, Malformed)
SH_SIDE, SH_STATE = "acp_agent.executors.posix.sh_side:ShSide", "acp_agent.executors.posix.sh_shell:ShState"
GONE = ("FileNotFoundError", "ConnectionRefusedError", STOPPED, LACKS)
"""In the last words of what looks for the program over there, which is no more."""

Answer = Future[tuple[Any, bytes]]


class There(Struct, frozen=True):
    """What the host says of itself."""

    environ: Mapping[str, str]
    programs: Mapping[str, str]
    """Their paths; empty for those it has not."""
    python: tuple[str, str]
    """Its path and version; empty where there is none, and a shell stands for our program."""
    system: str


class Unsuited(ExecutorError, ValueError):
    """What was asked does not suit what is there: a ValueError over there."""


class Hears(Protocol):
    """Gets what a command prints, in the thread that reads."""

    def printed(self, stream: Any, data: bytes) -> None: ...

    def ended(self, code: int | None, cwd: str, state: bytes) -> None: ...


class FarLink:
    """`owner`: this agent, in words that tell it from others; `left`: whether an agent of such words is gone. `linger`:
    seconds for which what runs there waits for a lost link. `heartbeat`: as in `Peer`."""

    def __init__(
        self, way: Way, owner: str, left: Callable[[str], bool], linger: float, heartbeat: float = HEARTBEAT
    ) -> None:
        self.way = way
        self._heartbeat = heartbeat
        self._owner, self._left, self._linger = owner, left, linger
        self._peer: Peer | ShSide = Peer(self._handle, self._lost, heartbeat)
        self.there: There | None = None
        """Once it was reached."""
        self._token = self._socket = ""
        self._finding = threading.Lock()
        self.runs: dict[int, Hears] = {}
        self.numbers = itertools.count(1)
        """Of `runs` and tickets."""
        self._asked: dict[int, tuple[Callable[..., None] | None, Callable[..., bool] | None]] = {}
        self.lost_at: float | None = None
        """When the link was lost that is not there again yet; `time.monotonic`."""
        self.losses = 0
        self.hearers: set[Callable[[str], None]] = set()
        """They are told, in a thread, when it is lost and when it is there again."""
        self._closed = False

    def ready(self) -> There:
        """Reaches it, once. Raises ExecutorError with a sentence."""
        with self._finding:
            if self.there is None:
                if self._peer.over:
                    raise ExecutorError(f"{self.way.words}: {self._peer.over}")
                self.there = self._begin()
                if self._closed:  # Meanwhile: by whoever did not wait for it.
                    if (link := self._peer.link) is not None:
                        link.close()
                    self._end_other(self._socket)
                    self._peer.end(CLOSED)
                    raise ExecutorError(f"{self.way.words}: {self._peer.over}")
            return self.there

    def call(
        self,
        name: str,
        *arguments: Any,
        judged: Callable[..., None] | None = None,
        hides: Callable[..., bool] | None = None,
        check: bool = False,
        approved: Header | None = None,
    ) -> tuple[int, Answer]:
        """The number and the future answer of one of `side.CALLS`; `value_of` takes it. `approved`: what `judged` has
        said already (as `Side._approved`). Raises ExecutorError."""
        self.ready()
        header: Header = {"do": "call", "name": name, "arguments": [packed(each) for each in arguments]}
        header |= {"judged": judged is not None, "hides": hides is not None, "check": check, "approved": approved}
        with self._answering():
            number = self._peer.next_number()
            self._asked[number] = judged, hides
            future = self._peer.ask(header, number=number)
        future.add_done_callback(lambda _: self._asked.pop(number, None))
        return number, future

    def ask(self, header: Header, data: bytes = b"") -> Answer:
        self.ready()
        with self._answering():
            return self._peer.ask(header, data)

    def send(self, header: Header) -> None:
        with suppress(Lost):
            self._peer.send(header)

    def value_of(self, future: Answer) -> Any:
        """Waits for it. Raises ExecutorError, OSError."""
        with self._answering():
            try:
                return unpacked(future.result()[0])
            except (TypeError, ValueError, AttributeError, KeyError) as error:
                raise ExecutorError(f"{self.way.words} gave an answer that is none") from error

    async def answer_of(self, future: Answer) -> Any:
        """The same, awaited: who waits can be cancelled, and the thread that waits ends then."""
        try:
            return await anyio.to_thread.run_sync(self.value_of, future, abandon_on_cancel=True)
        finally:
            future.cancel()

    async def reached(self) -> There:
        """`ready`, awaited."""
        return self.there if self.there is not None else await anyio.to_thread.run_sync(self.ready)

    async def put(self, name: str, data: bytes) -> str:
        """Stores a file there until the end; its path."""
        return str(await self.answer_of(self.ask({"do": "put", "name": name}, data)))

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
        self.runs[number] = hears
        header = {"do": "run", "run": number, "argv": list(argv), "env": dict(environ), "cwd": cwd, "state": state}
        header["confined"] = confined
        try:
            with anyio.CancelScope(shield=True):  # Who is only half started could not be ended.
                answer = self.ask(header)
                await anyio.to_thread.run_sync(self.value_of, answer)
        except BaseException:
            self.runs.pop(number, None)
            raise

    def close(self) -> bool:
        """Ends all of the session's over there; whether that is known. Blocks for a moment."""
        self._closed = True
        told = self.there is None
        if not told and not self._peer.over:
            with suppress(Lost, Refused, TimeoutError):
                told = bool(self._peer.ask({"do": "end"}).result(ENDS)[0])
        self._peer.end(CLOSED)
        return told

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """What an answer raises, as an executor does."""
        try:
            yield
        except Lost as error:
            raise ExecutorError(f"{self.way.words}: {error}") from error
        except Refused as error:
            raise _error_of(error) from error

    # --- what comes ---------------------------------------------------------------------------------------------

    def _handle(self, header: Header, data: bytes) -> None:
        what = header["do"]
        if what in ("judge", "hides"):
            judged, hides = self._asked.get(header["call"], (None, None))
            decides = judged if what == "judge" else hides
            threading.Thread(target=self._judge, args=(decides, what, header), daemon=True).start()
        elif (run := self.runs.get(header["run"])) is None:
            return
        elif what == "printed" and header["stream"] in ("stdout", "stderr"):
            run.printed(header["stream"], data)
        elif what == "ended":
            self.runs.pop(header["run"], None)
            code = header["code"]
            run.ended(code if isinstance(code, int) else None, str(header["cwd"]), data)

    def _judge(self, decides: Callable[..., Any] | None, what: str, header: Header) -> None:
        answer: Header = {"id": header["id"], "value": None}
        try:
            about = header["about"]
            where = [about[0], Path(about[1]), int(about[2])] if what == "judge" else [Path(about[0])]
            if decides is None:
                raise ExecutorError("nobody decides about that")
            answer["value"] = decides(*where)
        except ExecutorError as error:
            answer |= {"error": "executor", "words": str(error)}
        except (TypeError, ValueError, LookupError) as error:
            answer |= {"error": "executor", "words": f"the question was none: {error}"}
        self.send(answer)

    # --- links; these block --------------------------------------------------------------------------------------

    def _begin(self) -> There:
        nonce = uuid.uuid4().hex
        about = (self.way.mark, self._owner, self._linger, self._heartbeat)
        started = Started(self.way, *PYTHON, text=program("begin", *about, nonce))
        try:
            there, others = self._told(read_loose_json(started.until(f"\n{nonce}".encode(), b"\n")))
            self._use(started)
        except (OSError, *NO_HELLO) as error:
            words = started.last_words(error)
            if started.code not in NO_PYTHON:
                raise ExecutorError(f"{self.way.words} cannot be used: {words}") from error
            there, others = self._begin_with_sh(words)
        for name, whose in others:
            if name != self._socket and whose and self._left(whose):
                threading.Thread(target=self._end_other, args=(name,), daemon=True).start()
        return there

    def _begin_with_sh(self, without: str) -> tuple[There, list[tuple[str, str]]]:
        """Where our program cannot run, for the reason that `without` says."""
        state = load(SH_STATE)(self.way, self._owner, self._linger, self._note_lost, self._note_found)
        side: ShSide = load(SH_SIDE)(state, self._heartbeat, self._handle, lambda number: self._asked[number])
        self._peer = side
        try:
            return self._told(side.begin())
        except (ExecutorError, *NO_HELLO) as error:
            side.end(str(error))
            raise ExecutorError(f"{self.way.words} cannot be used: {without}; nor its shell: {error}") from error

    def _told(self, hello: Any) -> tuple[There, list[tuple[str, str]]]:
        """What is there, and others' folders or sockets with their owners. Raises what `NO_HELLO` has."""
        self._token, self._socket = str(hello["token"]), str(hello["socket"])
        there = There(
            {str(name): str(value) for name, value in hello["environ"].items()},
            {str(name): str(value) for name, value in hello["programs"].items()},
            (str(hello["python"][0]), str(hello["python"][1])),
            str(hello["system"]),
        )
        return there, [(str(name), str(whose)) for name, whose in hello["others"]]

    def _use(self, started: Started) -> None:
        assert isinstance(self._peer, Peer)
        started.write(f"resume {self._token} {self._peer.received}\n".encode())
        received = int(started.until(b"resumed ", b"\n"))
        self._peer.use(Link(started.reads, started.writes, started.kill, started.release), received)

    def _lost(self, link: Link) -> None:
        if not self._closed:
            self._note_lost()
            threading.Thread(target=self._again, daemon=True).start()

    def _note_lost(self) -> None:
        if self.lost_at is None:
            self.lost_at, self.losses = time.monotonic(), self.losses + 1
            self._tell(self.lost_words())

    def _note_found(self) -> None:
        if self.lost_at is not None:
            seconds, self.lost_at = time.monotonic() - self.lost_at, None
            self._tell(f"{self.way.words} was reached again after {seconds:.1f} s")

    def lost_words(self) -> str:
        return (
            f"the connection to {self.way.words} was lost; what runs there goes on, how it goes is unknown until the "
            f"connection is there again (for {self._linger:g} s at most)"
        )

    def _tell(self, words: str) -> None:
        log.warning("%s", words)
        for hears in tuple(self.hearers):
            hears(words)

    def _again(self) -> None:
        lost, pauses = time.monotonic(), itertools.chain(PAUSES, itertools.repeat(PAUSES[-1]))
        while not (self._closed or self._peer.over):
            try:
                started = Started(self.way, *PYTHON, text=program("pass_on", self._socket))
                try:
                    self._use(started)
                except (OSError, ValueError, Malformed) as error:
                    words = started.last_words(error)
                else:
                    self._note_found()
                    return
            except ExecutorError as error:
                words = str(error)
            if any(gone in words for gone in GONE):
                self._over("the connection was lost, and what ran there has ended")
            elif time.monotonic() - lost > self._linger:
                self._over(f"the connection was lost for {self._linger:g} s, after which all ends there: {words}")
            else:
                time.sleep(next(pauses))

    def _over(self, why: str) -> None:
        self._peer.end(why)
        runs, self.runs = self.runs, {}
        for run in runs.values():
            run.ended(None, "", b"")

    def _end_other(self, name: str) -> None:
        with suppress(ExecutorError):
            if not isinstance(self._peer, Peer):
                self._peer.end_other(name)
                return
            started = Started(self.way, *PYTHON, text=program("end_other", name))
            started.wait(BEGINS)
            started.kill()
            started.release()

    @property
    def over(self) -> str:
        """Why the connection is; empty while it is not."""
        return self._peer.over


def _error_of(refused: Refused) -> Exception:
    words = refused.words
    if refused.kind == "missing":
        return FileNotFoundError(2, "No such file or directory", str(words))
    if refused.kind == "os" and isinstance(words, list) and len(words) == 2 and isinstance(words[0], int):
        return OSError(words[0], str(words[1]))
    return Unsuited(str(words)) if refused.kind == "value" else ExecutorError(str(words))
