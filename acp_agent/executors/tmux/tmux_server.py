"""A tmux server of a session's own, to which the user attaches to watch what runs in its terminals, and to type.

What runs in a pane is not started by tmux: a pane is a terminal whose other end tmux has instead of us, and what is
started in it is started as in any other terminal, in any place, confined or not. It gets neither tmux's variables nor
its socket. tmux draws, and passes on what the user types; what is printed comes to us, too (`pipe-pane`).

A pane begins with a placeholder, which gives up the terminal, so that a session of ours can have it, and ends with the
pane or with the agent, by a pipe. With the last of them tmux ends by itself, also after `kill -9` of the agent; only
windows that the user made go on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
import termios
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from acp_agent.child import one_line, readable
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import TerminalSize
from acp_agent.executors.terminals.pseudo_terminal import Pty
from acp_agent.limits.descriptors import restoring
from acp_agent.own_programs import find_program

PROGRAM = "tmux"
PREFIX = "acp-coder-"
"""Of the names of our sessions."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""In others tmux would find formats (`#(...)` runs a command) and targets (`:`, `.`)."""
KEEPER = "acp-coder"
"""The name of the window that keeps a session while nothing runs in it."""
GREETING = "What acp-coder runs in terminals has a window each. Ctrl-B n: the next one; Ctrl-B d: leave."
ANSWERS = 10.0
"""Seconds for tmux to do what it is asked."""
LONGEST_SOCKET = 100
"""Bytes of a socket's path."""
PLACEHOLDER = (
    "import fcntl, os, signal, sys, termios\n"
    "folder, greeting, *kill = sys.argv[1:]\n"
    "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    "print(greeting, end='', flush=True)\n"
    "hold = os.open(folder + '/hold', os.O_RDONLY | os.O_NONBLOCK)\n"
    "os.set_blocking(hold, True)\n"
    "fcntl.ioctl(0, termios.TIOCNOTTY)\n"
    "with open(folder + '/out', 'wb') as out:\n"
    "    out.write(b'\\n')\n"
    "if not os.read(hold, 1):\n"
    "    os.execv(kill[0], [*kill, os.environ['TMUX_PANE']])\n"
)
"""Where the agent says nothing at its end, it was killed: then what still runs there is hung up."""
OPTIONS = (
    ("-s", "set-clipboard", "off"),
    ("-g", "status-right", ""),
    ("-g", "update-environment", ""),
    ("-gw", "allow-rename", "off"),
    ("-gw", "automatic-rename", "off"),
)
"""Nothing that a program prints reaches the user's clipboard or the names of windows."""


class Pane(Pty):
    """A terminal in a window of tmux, which answers a program's questions about it."""

    def __init__(self, ours: int, theirs: int, name: str, server: Tmux, number: str, hold: int, folder: Path) -> None:
        """`number`: as tmux has it (`%3`). `hold`: open as long as the pane shall be. `folder`: of its pipes."""
        super().__init__(ours, theirs, name)
        self._server = server
        self._number = number
        self._hold = hold
        self._folder = folder

    def given(self) -> None:
        """Its other end stays open: tmux tells nobody else how it is set."""

    def group(self, leader: int) -> int:
        with open(f"/proc/{leader}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[5])

    @property
    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.theirs)

    def answer(self, data: bytes) -> None:
        """tmux has answered."""

    async def type(self, data: bytes) -> None:
        """All at once: what the user types comes before it or after it."""
        buffer = uuid.uuid4().hex
        pastes = ("paste-buffer", "-b", buffer, "-d", "-r", "-t", self._number)
        words = ("load-buffer", "-b", buffer, "-", ";", *pastes)
        await anyio.to_thread.run_sync(partial(self._server.ask, *words, given=data))  # Not half: who stops it waits.

    async def captured(self, *flags: str) -> str | None:
        words = ("capture-pane", "-p", "-q", "-t", self._number, *flags)
        return await anyio.to_thread.run_sync(partial(self._server.ask, *words), abandon_on_cancel=True)

    def finish(self) -> bool:
        """tmux passes on the rest and closes the window."""
        hold, self._hold = self._hold, -1
        if hold >= 0:
            with contextlib.suppress(OSError):
                os.write(hold, b"ended")
            os.close(hold)
        self._shut(self.theirs)
        return True

    def drop(self) -> None:
        self.finish()
        super().drop()
        shutil.rmtree(self._folder, ignore_errors=True)


ENDED = ("server exited", "lost server", "no server running")
"""What tmux says then."""


class _ServerEnded(ExecutorError):
    """It was about to end when it was asked."""


class Tmux:
    """`folder`: for its socket and pipes; commands cannot see it. `name`: of its first session."""

    def __init__(
        self, folder: Path, name: str, environ: Mapping[str, str], outside: Sequence[Path], history: int
    ) -> None:
        """`environ`: of the server, so of windows that the user makes. `outside`: folders in which no program is looked
        for. `history`: lines kept of a pane."""
        self.name = name
        self._folder = folder
        self._environ = {key: value for key, value in environ.items() if key not in ("TMUX", "TMUX_PANE")}
        self._outside = tuple(outside)
        self._history = history
        self._keepers: dict[str, Pane] = {}
        self._lock = threading.Lock()

    @property
    def socket(self) -> Path:
        return self._folder / "tmux"

    def attach_words(self, session: str = "") -> str:
        """The command line that shows it."""
        return shlex.join((PROGRAM, "-S", str(self.socket), "attach", "-t", f"={PREFIX}{session or self.name}"))

    def ask(self, *words: str, given: bytes = b"") -> str:
        """What tmux answers. Blocks. Raises ExecutorError with a sentence."""
        argv = (*self._argv(), "-f", "/dev/null", *words)
        try:
            done: subprocess.CompletedProcess[bytes] = subprocess.run(
                argv,
                input=given,
                capture_output=True,
                timeout=ANSWERS,
                env=self._environ,
                cwd="/",
                check=False,
                **restoring(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ExecutorError(f"tmux does not answer: {error}") from error
        if done.returncode != 0:
            words_of_it = one_line(done.stderr.decode("utf-8", "replace"), 200) or f"exit code {done.returncode}"
            raise (_ServerEnded if words_of_it.startswith(ENDED) else ExecutorError)(f"tmux: {words_of_it}")
        return done.stdout.decode("utf-8", "replace").removesuffix("\n")

    def _argv(self) -> tuple[str, ...]:
        program = find_program(PROGRAM, self._environ, self._outside)
        if program is None:
            raise ExecutorError("there is no `tmux` on this machine")
        if len(os.fsencode(self.socket)) > LONGEST_SOCKET:
            raise ExecutorError(f"tmux cannot have a socket in {self._folder}: the path is too long")
        return program, "-S", str(self.socket)

    async def open(self, size: TerminalSize, window: str, session: str = "") -> Pane:
        """A terminal in a new window. Raises ExecutorError."""
        return await anyio.to_thread.run_sync(self._open, size, window, session or self.name)

    def _open(self, size: TerminalSize, window: str, session: str) -> Pane:
        with self._lock:
            try:
                return self._in(session, window, size)
            except _ServerEnded:  # While it was asked; there is a new one now.
                return self._in(session, window, size)

    def _in(self, session: str, window: str, size: TerminalSize) -> Pane:
        self._kept(session, size)
        return self._window(("new-window", "-d", "-t", f"={PREFIX}{session}:"), window, "", size)

    async def ready(self, size: TerminalSize) -> None:
        """There is something to attach to. Raises ExecutorError."""
        await anyio.to_thread.run_sync(self._ready, size)

    def _ready(self, size: TerminalSize) -> None:
        with self._lock:
            self._kept(self.name, size)

    async def end(self) -> None:
        """Ends ours; what the user made goes on."""
        await anyio.to_thread.run_sync(self._end)

    def _end(self) -> None:
        with self._lock:
            for keeper in self._keepers.values():
                keeper.drop()
            self._keepers.clear()

    def end_session(self, session: str) -> None:
        """Nothing of ours keeps it any more."""
        with self._lock:
            if (keeper := self._keepers.pop(session, None)) is not None:
                keeper.drop()

    def _kept(self, session: str, size: TerminalSize) -> None:
        """Starts it if it is not there, or not any more."""
        if session in self._keepers:
            with contextlib.suppress(ExecutorError):
                self.ask("has-session", "-t", f"={PREFIX}{session}")
                return
            self._keepers.pop(session).drop()
        options = [part for scope, name, value in OPTIONS for part in ("set-option", scope, name, value, ";")]
        options += ["set-option", "-g", "history-limit", str(self._history), ";"]
        words = ("start-server", ";", *options, "new-session", "-d", "-s", f"{PREFIX}{session}")
        self._keepers[session] = self._window(words, KEEPER, GREETING, size)

    def _window(self, words: Sequence[str], window: str, greeting: str, size: TerminalSize) -> Pane:
        assert NAME.fullmatch(window)
        folder = self._folder / uuid.uuid4().hex
        folder.mkdir(mode=0o700)
        ours = theirs = hold = -1
        number = ""
        try:
            os.mkfifo(folder / "hold", 0o600)
            os.mkfifo(folder / "out", 0o600)
            ours = os.open(folder / "out", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            hold = _writes_to(folder / "hold")
            kills = (*self._argv(), "kill-pane", "-t")
            begins = (sys.executable, "-I", "-S", "-c", PLACEHOLDER, str(folder), greeting, *kills)
            said = self.ask(*words, "-P", "-F", "#{pane_id} #{pane_tty}", "-n", window, *begins)
            number, _, name = said.partition(" ")
            self.ask("resize-window", "-t", number, "-x", str(size.columns), "-y", str(size.rows))
            _hears(ours)
            theirs = os.open(name, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            if not greeting:
                pipe = shlex.quote(str(folder / "out"))
                self.ask("pipe-pane", "-O", "-t", number, f"exec >{pipe} && echo && exec cat")
                _hears(ours)
            return Pane(ours, theirs, name, self, number, hold, folder)
        except BaseException as error:
            if number:
                with contextlib.suppress(ExecutorError):
                    self.ask("kill-pane", "-t", number)
            for descriptor in (hold, ours, theirs):
                if descriptor >= 0:
                    os.close(descriptor)
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise ExecutorError(f"tmux has no terminal for the command: {error.strerror or error}") from error
            raise


def _writes_to(path: Path) -> int:
    """Whoever opens it later sees an end only with ours."""
    reads = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    finally:
        os.close(reads)


def _hears(reads: int) -> None:
    """Once a line's end comes: before that, nobody may have it open. Raises OSError."""
    until = time.monotonic() + ANSWERS
    while readable(reads, ANSWERS) and time.monotonic() < until:
        with contextlib.suppress(BlockingIOError):  # It has just been opened.
            if os.read(reads, 1):
                return
        time.sleep(0.002)
    raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
