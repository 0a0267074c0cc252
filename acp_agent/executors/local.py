"""Commands on this machine.

A command is `bash -c` in a process group of its own, with stdin closed and a pipe for each output stream. One selector
holds both pipes and the process itself, and the selector's own descriptor is what is waited for: chunks come in the
order the kernel reports them, and a background child that keeps a pipe open does not hold the call open.

Every process started here carries a mark in its environment, so that what put itself into another session is still
found (on Linux, in /proc) when the command is killed or all of them are ended. A confined command (see `sandbox`) ends
as a whole with the process that was started; what is found by its mark is ended as well.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread

from acp_agent.child import User, exit_descriptor, signal_group, signal_name
from acp_agent.disk import Entered
from acp_agent.executors import base as contract
from acp_agent.executors.buffer import KeptOutput, Utf8Stream
from acp_agent.executors.marked import MARK, kill_round
from acp_agent.executors.sandbox.base import Confined, Invocation
from acp_agent.executors.shell_state import repair_state, with_state
from acp_agent.executors.start import Confine, of_its_own, start, start_confined
from acp_agent.lazy import load
from acp_agent.limits.descriptors import as_before
from acp_agent.own_programs import find_bash, with_search_path

if TYPE_CHECKING:
    from acp_agent.executors.terminals.pseudo_terminal import Pty

OPEN_PTY = "acp_agent.executors.terminals.pseudo_terminal:open_pty"
TERMINAL = "acp_agent.executors.terminals.process:TerminalProcess"
UNQUIET = "acp_agent.executors.terminals.pseudo_terminal:UNQUIET"
UNQUIETED = "acp_agent.executors.terminals.pseudo_terminal:unquieted"
IN_TERMINAL = "xterm-256color"
"""TERM of a command in a terminal."""

READ_SIZE = 64 * 1024
TERMINATE_GRACE = 0.1
"""Seconds between SIGTERM and SIGKILL."""
KILL_ROUNDS = 5
"""How often /proc is searched for what escaped the process group."""
KILL_PAUSE = 0.005
"""Seconds between two rounds."""
STILL_STARTS = "what it started starts programs faster than they are ended: some may still run"

QUIET = {
    "TERM": "dumb",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_NO_LAZY_FETCH": "1",
    "PYTHONUNBUFFERED": "1",
    "CDPATH": "",
}
"""Keeps programs from waiting for input, and `cd` from printing its target."""


def shell_environment(environ: Mapping[str, str], hidden: frozenset[str] = frozenset()) -> dict[str, str]:
    """The environment commands get: ours without `hidden` (the agent's own keys) and without relative entries of PATH,
    with pagers and prompts off."""
    inherited = {name: value for name, value in environ.items() if name not in hidden}
    return {**with_search_path(inherited), **QUIET}


class LocalCommands:
    """Implements `Commands`. `hidden`: names of variables that commands do not inherit. `confine`: how commands are
    confined; `None`: not."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str] = os.environ,
        hidden: frozenset[str] = frozenset(),
        terminate_grace: float = TERMINATE_GRACE,
        confine: Confine | None = None,
        user: Callable[[], User | None] = lambda: None,
        folders: Sequence[Path] = (),
        entered: Entered = nullcontext,
    ) -> None:
        """`user`: the user that commands run as, `None` for this process's own. It may raise ExecutorError. `folders`:
        the session's, in which no program of ours is looked for. `entered`: as `Roots.entered`."""
        self._inherited = environ
        self.entered = entered
        self._user = user
        self._grace = terminate_grace
        self._confine = confine
        self._mark = uuid.uuid4().hex
        self._environ = {**shell_environment(environ, hidden), MARK: self._mark}
        self.bash = find_bash(environ, folders)
        """Its path."""
        self._started = False

    async def run(self, command: contract.Command) -> contract.Process:
        mark = f"{self._mark}.{uuid.uuid4().hex}"
        environ = {**self.environment(command), MARK: mark}
        if (user := self._user()) is not None:
            environ |= user.environment
        script = as_before() + with_state(
            command.script,
            self.state_file(command),
            keep=command.keeps_state,
            without=of_its_own(command),
            then="" if command.terminal is None else load(UNQUIETED)(IN_TERMINAL),
        )
        argv = (self.bash, *contract.shell_options(command), "-c", script)
        terminal: Pty | None = None
        confined: Confined | None = None
        try:
            if command.terminal is not None:
                terminal = command.opened or load(OPEN_PTY)(command.terminal, None if user is None else user.uid)
            if self._confine is None or not command.confined:
                popen = self._unconfined(argv, environ, command, user, terminal)
            else:
                invocation = Invocation(argv, command.cwd, environ, in_terminal=terminal is not None)
                confined = self._confine(invocation, command)
                popen = start_confined(confined, command, user, terminal)
            self._started = True
            if terminal is None:
                return LocalProcess(popen, mark, command.output_limit, self._grace, confined)
            made = load(TERMINAL)(popen, terminal, mark, command.terminal, self._grace, confined)
            return cast("contract.Process", made)
        except BaseException:
            if confined is not None:
                confined.close()
            if terminal is not None:
                terminal.drop()
            raise
        finally:
            if terminal is not None:
                terminal.given()

    def _unconfined(
        self,
        argv: tuple[str, ...],
        environ: Mapping[str, str],
        command: contract.Command,
        user: User | None,
        terminal: Pty | None,
    ) -> subprocess.Popen[bytes]:
        with self.entered(command.cwd) as cwd:
            if not command.stdin or terminal is not None:
                return start(argv, cwd, environ, command, user=user, terminal=terminal)
            with tempfile.TemporaryFile() as stdin:  # Not a pipe: the command need not read it.
                stdin.write(command.stdin)
                stdin.seek(0)
                return start(argv, cwd, environ, command, user=user, stdin=stdin.fileno())

    def state_file(self, command: contract.Command) -> Path | None:
        """Where the shell's state is stored. An unconfined command never runs what a confined one may have written."""
        if command.state_file is None or (self._confine is not None and not command.confined):
            return None
        repair_state(command.state_file)
        return command.state_file

    def environment(self, command: contract.Command) -> dict[str, str]:
        """The complete environment of `command`."""
        if command.terminal is None:
            return {**self._environ, **command.env}
        unquiet = load(UNQUIET)
        own = {name: value for name, value in self._environ.items() if name not in unquiet}
        return {**own, **command.env, "TERM": IN_TERMINAL}

    def own_path(self) -> str | None:
        """PATH of commands, if it is not the inherited one because that has relative entries."""
        path = self._environ.get("PATH", "")
        return None if path == self._inherited.get("PATH", "") else path

    async def close(self) -> None:
        """Kills everything that its commands left running."""
        if self._started:
            await kill_marked(self._mark)


class LocalProcess(KeptOutput):
    """A running `bash -c`. Iterate `output()` or await `wait()`; both read the pipes."""

    view: contract.TerminalView | None = None
    terminal: contract.Terminal | None = None
    remark = ""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        mark: str,
        limit: int,
        grace: float,
        confined: Confined | None = None,
        streams: Mapping[contract.StreamName, int] | None = None,
    ) -> None:
        """`streams`: descriptors to read in the place of its pipes; they are closed with it."""
        super().__init__(limit)
        self._grace = grace
        self._confined = confined
        self._popen = popen
        self._mark = mark
        self._selector = selectors.DefaultSelector()
        self._decoders: dict[contract.StreamName, Utf8Stream] = {}
        self._streams = _pipes_of(popen) if streams is None else streams
        for name, fd in self._streams.items():
            os.set_blocking(fd, False)
            self._decoders[name] = Utf8Stream()
            self._selector.register(fd, selectors.EVENT_READ, name)
        self._exit_fd = exit_descriptor(popen)
        self._selector.register(self._exit_fd, selectors.EVENT_READ, None)
        self._ended = False
        self._closed = False

    # --- the contract -----------------------------------------------------------------------------------------

    async def output(self) -> AsyncIterator[contract.OutputChunk]:
        while True:
            chunks, self._ready = self._ready, []
            for chunk in chunks:
                yield chunk
            if self._ended:
                return
            await self._step()

    async def wait(self) -> contract.ExitStatus:
        while not self._ended:
            await self._step()
        code = self._popen.returncode
        if code is not None and code < 0:
            return contract.ExitStatus(None, signal_name(-code))
        return contract.ExitStatus(code, None)

    async def look(self) -> None:
        if self._ended or self._closed:
            return
        for key, _ in self._selector.select(0):
            if key.data is not None:
                self._read(key.fd, key.data)

    async def kill(self) -> None:
        if self._ended:
            # Its number may have been reused: only processes with the mark are killed.
            self.remark = await kill_marked(self._mark) or self.remark
            return
        if self._confined is None or not self._confined.killed_at_once:
            signal_group(self._popen.pid, signal.SIGTERM)
            with anyio.move_on_after(self._grace):
                await self.wait()
        signal_group(self._popen.pid, signal.SIGKILL)
        self.remark = await kill_marked(self._mark) or self.remark
        with anyio.move_on_after(self._grace):
            await self.wait()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            with anyio.CancelScope(shield=True):
                if not self._ended:
                    await self.kill()
        finally:
            self._close_confined()
        self._selector.close()
        os.close(self._exit_fd)
        for fd in self._streams.values():
            os.close(fd)

    def _close_confined(self) -> None:
        if self._confined is not None:
            self.remark = self._confined.close() or self.remark

    # --- reading ----------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        await anyio.wait_readable(self._selector)
        exited = False
        for key, _ in self._selector.select(0):
            if key.data is None:
                exited = True
            else:
                self._read(key.fd, key.data)
        if exited:
            self._popen.wait()  # It has ended: this only reaps it.
            await self._last()
            self._drain()
            self._ended = True
            self._close_confined()
            self._no_more()

    async def _last(self) -> None:
        """What it printed is in the pipes already."""

    def _read(self, fd: int, stream: contract.StreamName) -> bool:
        try:
            data = self._read_some(fd)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(fd)
        self._take(stream, data)
        return bool(data)

    def _read_some(self, fd: int) -> bytes:
        return os.read(fd, READ_SIZE)

    def _take(self, stream: contract.StreamName, data: bytes) -> None:
        self._add(stream, self._decoders[stream].decode(data, final=not data))

    def _drain(self) -> None:
        """Reads what the pipes hold now. A background child may keep them open: its later output is ignored."""
        for key in tuple(self._selector.get_map().values()):
            if key.data is not None:
                while self._read(key.fd, key.data):
                    pass


def _pipes_of(popen: subprocess.Popen[bytes]) -> dict[contract.StreamName, int]:
    assert popen.stdout is not None and popen.stderr is not None
    pipes: dict[contract.StreamName, int] = {"stdout": popen.stdout.fileno(), "stderr": popen.stderr.fileno()}
    pipes = {name: os.dup(fd) for name, fd in pipes.items()}
    for pipe in (popen.stdout, popen.stderr):
        pipe.close()
    return pipes


async def kill_marked(mark: str) -> str:
    """SIGKILL to every process whose environment carries `mark` (or a mark below it). Linux only; elsewhere nothing.
    Returns what is to be said if there were new ones at each look."""
    new, before = set[int](), set[int]()
    for _ in range(KILL_ROUNDS):
        killed, unclear = await anyio.to_thread.run_sync(kill_round, mark)
        if not (killed or unclear):
            return ""
        new, before = killed - before, before | killed  # What was killed may need a while to be gone.
        await anyio.sleep(KILL_PAUSE)
    return STILL_STARTS if new else ""
