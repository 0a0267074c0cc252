"""A shell over there that answers questions (`sh_program`), and its successors, once a link was lost."""

from __future__ import annotations

import errno
import math
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path

from acp_agent.child import readable
from acp_agent.errors import ExecutorError
from acp_agent.executors.beneath import Swapped, what_it_is
from acp_agent.executors.far.far_peer import Lost
from acp_agent.executors.far.started import Started, Way
from acp_agent.executors.places.engine import LACKS, STOPPED
from acp_agent.executors.posix.sh_program import (
    BOOT,
    DENIED,
    FOLDER,
    GONE,
    IRREGULAR,
    KERNELS,
    MISSING,
    NO_FOLDER,
    PREFIX,
    SAID,
    STUCK,
    SWAPPED,
    words,
)

SILENT = 60.0
"""Seconds without a byte of an answer after which a link is taken for lost."""
WORKING = 600.0
"""The same while something is changed there, which may take long."""
MOST_TRIES = 50
MOST_SILENCES = 2
READ_SIZE = 262_144
MOST_ANSWER = 256 * 1024 * 1024
MOST_TRAILER = 4096
ENDS = 2.0
"""Seconds for whoever asks to hear that it is over."""
KEEPER_LOOKS = 5
"""Seconds after which it is looked again whether the agent was heard of, at most."""
PAUSES = (0.1, 0.3, 1.0, 2.0)
"""Seconds between attempts to reach it again; the last one from then on."""
CODES = frozenset(map(str, range(256)))
TOPS = ("/tmp", "/var/tmp")
ERRORS = {os.strerror(number): number for number in errno.errorcode}
UNSURE = "the connection was lost meanwhile, and whether it was done is not known"


class Failed(Exception):
    """A question whose answer is an error: the exit code, and the last line of what went wrong."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(code, said)
        self.code, self.said = code, said

    def about(self, path: Path, mode: str = "") -> Exception:
        """The same as the functions of `files` raise. `mode`: of what is there, as `stat` prints it."""
        what = path
        made: dict[int, Callable[[], Exception]] = {
            MISSING: lambda: FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(what)),
            SWAPPED: lambda: Swapped(what),
            NO_FOLDER: lambda: NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(what)),
            FOLDER: lambda: IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(what)),
            IRREGULAR: lambda: ExecutorError(f"{what} is {_kind(mode)}, not a regular file, so it was not opened"),
            KERNELS: lambda: ExecutorError(f"{what} belongs to the kernel, not to a project, so it was not opened"),
            SAID: lambda: ExecutorError(self.said),
            DENIED: lambda: PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(what)),
            STUCK: lambda: ExecutorError(
                f"{what} has other names (hard links), whose content would change with it, and it cannot be replaced, "
                "so nothing was written"
            ),
            GONE: lambda: ExecutorError(UNSURE),
        }
        if self.code in made:
            return made[self.code]()
        reason = self.said.rpartition(": ")[2].strip() or f"exit code {self.code}"
        return OSError(ERRORS.get(reason, errno.EIO), reason, str(what))


def _kind(mode: str) -> str:
    try:
        return what_it_is(int(mode.strip() or "0", 16))
    except ValueError:
        return "no file"


class ShState:
    """What the shells of one session have in common. `lost` and `found` are told when a link is lost and when there is
    one again."""

    def __init__(
        self, way: Way, owner: str, linger: float, lost: Callable[[], None], found: Callable[[], None]
    ) -> None:
        self.way, self.linger = way, linger
        self.lost, self.found = lost, found
        self._owner = owner
        self.folder = ""
        """Ours over there, once it was made."""
        self.over = ""
        """Why nothing is asked any more."""
        self.closed = threading.Event()

    def hello(self, folder: str) -> str:
        """What makes our folder there, or finds it again; `$h` is 0 then."""
        first = "again" if self.folder else "first"
        step = max(1, min(KEEPER_LOOKS, int(self.linger / 4)))
        made = f"( hello {words(folder, self.way.mark, self._owner, math.ceil(self.linger), first, step)} )"
        return f"{made}; h=$?; [ $h != 0 ] || D={words(folder)}"


class ShShell:
    """Asked from threads, one question at a time."""

    def __init__(self, state: ShState) -> None:
        self._state = state
        self._started: Started | None = None
        self._key = ""
        self._one = threading.Lock()
        self._last = "0"

    def ask(self, body: str, data: bytes | None = None, *, most: int = MOST_ANSWER, silent: float = SILENT) -> bytes:
        """What `body`, one line, prints over there. Asked again if the link is lost meanwhile. Raises Failed; Lost once
        it is over; ExecutorError for an answer that is too long."""
        silences = 0
        with self._one:
            for _ in range(MOST_TRIES):
                started = self._ready()
                try:
                    return self._asked(started, body, data, most, silent)
                except OSError as error:
                    self._drop()
                    silences += isinstance(error, TimeoutError)
                    if silences == MOST_SILENCES:
                        break
            raise ExecutorError(f"{self._state.way.words} did not answer; {UNSURE}")

    def once(self, body: str, data: bytes | None = None) -> bytes:
        """The same for what changes something: it is done once."""
        name = uuid.uuid4().hex
        with self._one:
            last, self._last = self._last, name
        return self.ask(f"once {words(name, body, last)}", data, silent=WORKING)

    @property
    def begun(self) -> bool:
        return bool(self._key)

    def end(self) -> None:
        """Whoever waits for an answer gets Lost."""
        if (started := self._started) is not None:
            started.kill()
        if self._one.acquire(timeout=ENDS):
            self._drop()
            self._one.release()

    def _asked(self, started: Started, body: str, data: bytes | None, most: int, silent: float) -> bytes:
        nonce = uuid.uuid4().hex
        line = f"{self._key} " + ("" if data is None else f"g {len(data)} {nonce}; ") + f"q {nonce} {words(body)}\n"
        with suppress(OSError):  # There may be an answer that says why.
            started.write(line.encode("utf-8", "surrogateescape") + (data or b""))
        ends, held, at = f"\n{nonce} ".encode(), bytearray(), -1
        while at < 0 or b"\n" not in held[at + len(ends) :]:
            if not readable(started.reads, silent):
                raise TimeoutError
            piece = os.read(started.reads, READ_SIZE)
            if not piece:
                raise ConnectionResetError
            begin = max(0, len(held) - len(ends))
            held += piece
            at = held.find(ends, begin) if at < 0 else at
            if len(held) > most + MOST_TRAILER:
                self._drop()
                raise ExecutorError(f"{self._state.way.words} gave an answer that is too long")
        code, _, said = bytes(held[at + len(ends) :]).decode("utf-8", "replace").strip("\n").partition(" ")
        if code != "0":
            raise Failed(int(code) if code in CODES else 1, said)
        return bytes(held[:at])

    def _drop(self) -> None:
        if self._started is not None:
            self._started.kill()
            self._started.release()
            self._started = None

    def _ready(self) -> Started:
        """Raises Lost if there will be none."""
        state = self._state
        if state.over:
            raise Lost(state.over)
        if self._started is not None:
            return self._started
        if not self._key:
            return self._begun()
        state.lost()
        lost, pauses = time.monotonic(), chain(PAUSES, repeat(PAUSES[-1]))
        while not state.over:
            try:
                started = self._begun()
            except Failed as error:
                said = "the connection was lost, and what ran there has ended"
                state.over = said if error.code == GONE else f"the connection was lost: {error.said}"
            except ExecutorError as error:
                if any(gone in str(error) for gone in (STOPPED, LACKS)):
                    state.over = f"the connection was lost, and what ran there has ended: {error}"
                elif time.monotonic() - lost > state.linger:
                    state.over = f"the connection was lost for {state.linger:g} s, after which all ends there: {error}"
                else:
                    state.closed.wait(next(pauses))
            else:
                state.found()
                return started
        raise Lost(state.over)

    def _begun(self) -> Started:
        """Raises ExecutorError, Failed."""
        state = self._state
        key = uuid.uuid4().hex
        started = Started(state.way, "sh", "-c", BOOT, "sh", key)
        self._key, self._started = key, started
        if state.over:  # Meanwhile.
            self._drop()
            raise Lost(state.over)
        folders = [state.folder] if state.folder else [f"{top}/{PREFIX}{state.way.mark}" for top in TOPS]
        for folder in folders:
            nonce = uuid.uuid4().hex
            line = f"{key} {state.hello(folder)}; q {nonce} 'exit $h'\n"
            try:
                with suppress(OSError):  # What it says is read next.
                    started.write(line.encode())
                told = started.until(f"\n{nonce} ".encode(), b"\n")
            except OSError as error:
                self._started = None
                raise ExecutorError(f"{state.way.words} cannot be used: {started.last_words(error)}") from error
            code = told.split(b" ")[0]
            if code == b"0":
                state.folder = folder
                return started
        self._drop()
        raise Failed(GONE if state.folder else 1, f"no folder can be made in {', '.join(folders)}")
