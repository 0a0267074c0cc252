"""Commands and files on this machine.

A command is `bash -c` in a process group of its own, with stdin closed and a pipe for each output stream. One selector
holds both pipes and the process itself, and the selector's own descriptor is what is waited for: chunks come in the
order the kernel reports them, and a background child that keeps a pipe open does not hold the call open.

Every process started here carries a mark in its environment, so that what put itself into another session is still
found (on Linux, in /proc) when the command is killed or the executor closed. A confined command (see `sandbox`) ends
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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.from_thread
import anyio.to_thread

from acp_agent.child import User, exit_descriptor, signal_group, signal_name
from acp_agent.disk import Entered
from acp_agent.errors import ExecutorError
from acp_agent.executors import base as contract
from acp_agent.executors import files, search, tree
from acp_agent.executors.buffer import KeptOutput, Utf8Stream
from acp_agent.executors.encodings import UTF8, Decoded, Encoding, decoded_part
from acp_agent.executors.marked import MARK, kill_round
from acp_agent.executors.sandbox.base import Confined, Invocation
from acp_agent.executors.shell_state import repair_state, with_state
from acp_agent.executors.start import Confine, of_its_own, start, start_confined
from acp_agent.executors.tree_walk import Hides
from acp_agent.executors.users import in_thread_as
from acp_agent.lazy import load
from acp_agent.limits.descriptors import as_before
from acp_agent.own_programs import find_bash, find_program, with_search_path

if TYPE_CHECKING:
    from acp_agent.executors.terminals.pseudo_terminal import Pty

T = TypeVar("T")
Query = TypeVar("Query")

OPEN_PTY = "acp_agent.executors.terminals.pseudo_terminal:open_pty"
TERMINAL = "acp_agent.executors.terminals.process:TerminalProcess"
UNQUIET = "acp_agent.executors.terminals.pseudo_terminal:UNQUIET"
UNQUIETED = "acp_agent.executors.terminals.pseudo_terminal:unquieted"
IN_TERMINAL = "xterm-256color"
"""TERM of a command in a terminal."""

CHECK = anyio.from_thread.check_cancelled
READ_SIZE = 64 * 1024
TERMINATE_GRACE = 0.1
"""Seconds between SIGTERM and SIGKILL."""
KILL_ROUNDS = 5
"""How often /proc is searched for what escaped the process group."""
KILL_PAUSE = 0.005
"""Seconds between two rounds."""

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


class LocalExecutor:
    """`hidden`: names of variables that commands do not inherit. `confine`: how commands are confined; `None`: not.
    `hides`: whether a path is kept from being read, listed, found, copied or written; `None`: none is."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str] = os.environ,
        hidden: frozenset[str] = frozenset(),
        terminate_grace: float = TERMINATE_GRACE,
        confine: Confine | None = None,
        hides: Hides | None = None,
        user: Callable[[], User | None] = lambda: None,
        folders: Sequence[Path] = (),
        entered: Entered = nullcontext,
    ) -> None:
        """`user`: the user that commands run as, `None` for this process's own. It may raise ExecutorError. `folders`:
        the session's, in which no program of ours is looked for. `entered`: as `Roots.entered`."""
        self._inherited = environ
        self._folders = tuple(folders)
        self._entered = entered
        self.user = user
        self._hides = hides
        self._grace = terminate_grace
        self._confine = confine
        self._mark = uuid.uuid4().hex
        self._environ = {**shell_environment(environ, hidden), MARK: self._mark}
        self._bash = find_bash(environ, folders)
        self._started = False
        self._remarks: dict[Path, str] = {}
        self._encodings: dict[Path, Encoding] = {}
        """Of files that are not UTF-8."""

    # --- commands ---------------------------------------------------------------------------------------------

    async def run(self, command: contract.Command) -> contract.Process:
        mark = f"{self._mark}.{uuid.uuid4().hex}"
        environ = {**self.environment(command), MARK: mark}
        if (user := self.user()) is not None:
            environ |= user.environment
        script = as_before() + with_state(
            command.script,
            self.state_file(command),
            keep=command.keeps_state,
            without=of_its_own(command),
            then="" if command.terminal is None else load(UNQUIETED)(IN_TERMINAL),
        )
        argv = (self._bash, *contract.shell_options(command), "-c", script)
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
        with self._entered(command.cwd) as cwd:
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

    async def close(self) -> None:
        """Kills everything this executor's commands left running."""
        if self._started:
            await kill_marked(self._mark)

    # --- files ------------------------------------------------------------------------------------------------

    async def read_text(self, path: Path) -> str:
        return (await self.decoded(path)).text

    async def decoded(self, path: Path) -> Decoded:
        """The file's text with its encoding, which is noted for `remark`. Raises as `read_text`."""
        self._need_shown(path)
        found = await self._in_thread(path, files.read_decoded, path)
        self._encodings.pop(path, None)
        if found.encoding != UTF8:
            self._encodings[path] = found.encoding
        self.note(
            path, "" if found.encoding == UTF8 else f"It is in {found.encoding.name}, and changes are written so."
        )
        return found

    def remark(self, path: Path) -> str:
        return self._remarks.get(path, "")

    def lacks(self, path: Path, text: str) -> str:
        if (encoding := self._encodings.get(path)) is None:
            return ""
        try:
            text.encode(encoding.codec)
        except UnicodeEncodeError as error:
            return f"{encoding.name}, which has no {text[error.start]!r}"
        return ""

    def note(self, path: Path, remark: str) -> None:
        if remark:
            self._remarks[path] = remark
        else:
            self._remarks.pop(path, None)

    async def read_bytes(self, path: Path, limit: int) -> bytes:
        self._need_shown(path)
        return await self._in_thread(path, files.read, path, limit)

    async def read_part(self, path: Path, query: contract.PartQuery) -> contract.Part:
        self._need_shown(path)
        about = query.first, query.lines, query.bytes, query.skip, query.timeout
        head, _, data = (await self._in_thread(path, files.part, path, *about)).partition(b"\n")
        first, size = map(int, head.split())
        cut = len(data) == query.bytes
        return contract.Part(first, size, *decoded_part(data, begun=query.skip > 0, goes_on=cut), cut)

    async def write_text(self, path: Path, text: str) -> str:
        return await self.write_as(path, text, None)

    async def write_as(self, path: Path, text: str, encoding: Encoding | None) -> str:
        """Writes the file itself in `encoding`, `None` for the one it has, or in UTF-8 if that lacks a character."""
        self._need_shown(path)
        now, remark = await self._in_thread(path, files.write_text, path, text, encoding)
        self.note(path, remark)
        return now

    async def need_plain(self, path: Path) -> None:
        """Raises ExecutorError for a path that must not be opened by name: hidden, reached through a link, or not a
        regular file. It may be missing."""
        self._need_shown(path)
        await self._in_thread(path, files.need_plain, path)

    def _need_shown(self, path: Path) -> None:
        if self._hides is not None and self._hides(path):
            words = "must not be read or changed (`tools.files.deny_read`, `tools.risk.forbidden_paths`)"
            raise ExecutorError(f"{path} is hidden and {words}")

    async def stat(self, path: Path) -> contract.FileStat | None:
        return await self._in_thread(path, files.look_at, path)

    async def list(self, path: Path, most: int | None = None) -> contract.Listing:
        self._need_shown(path)
        found, more = await self._in_thread(path, files.entries, path, most)
        hides = self._hides
        shown = found if hides is None else [entry for entry in found if not hides(path / entry[0])]
        return contract.Listing(tuple(shown), more)

    async def find(self, query: contract.FindQuery) -> contract.Found:
        self._need_shown(query.root)
        return await self._search(search.find, query, self._hides)

    async def grep(self, query: contract.GrepQuery) -> contract.Found:
        self._need_shown(query.root)
        hides, skips = self._hides, query.skips
        if skips is not None:
            hides = lambda path: skips(path) or (self._hides is not None and self._hides(path))  # noqa: E731
        return await self._search(search.grep, query, hides)

    async def _search(self, how: search.Search[Query], query: Query, hides: Hides | None) -> contract.Found:
        return await how(query, hides, search.Here(find_program("rg", self._inherited, self._folders), self.user()))

    async def make_directory(self, path: Path) -> int:
        return await self._in_thread(path, tree.make_directory, path)

    async def remove(self, path: Path, *, max_entries: int, judged: contract.Judged | None = None) -> contract.Tally:
        return await self._in_thread(path, tree.remove, path, max_entries, check=CHECK, judged=judged)

    async def move(
        self,
        source: Path,
        destination: Path,
        *,
        overwrite: bool,
        max_entries: int,
        judged: contract.Judged | None = None,
    ) -> contract.Tally:
        bounds = {"check": CHECK, "hides": self._hides, "judged": judged}
        return await self._in_thread(source, tree.move, source, destination, overwrite, max_entries, **bounds)

    async def copy(
        self,
        source: Path,
        destination: Path,
        *,
        overwrite: bool,
        max_entries: int,
        judged: contract.Judged | None = None,
    ) -> contract.Tally:
        bounds = {"check": CHECK, "hides": self._hides, "judged": judged}
        return await self._in_thread(source, tree.copy, source, destination, overwrite, max_entries, **bounds)

    async def _in_thread(self, path: Path, work: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """What `work` returns, done by the user that tools act as."""
        try:
            return await in_thread_as(self.user(), partial(work, *arguments, **options))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ExecutorError(f"{path}: {error.strerror or error}") from error


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
            await kill_marked(self._mark)
            return
        if self._confined is None or not self._confined.killed_at_once:
            signal_group(self._popen.pid, signal.SIGTERM)
            with anyio.move_on_after(self._grace):
                await self.wait()
        signal_group(self._popen.pid, signal.SIGKILL)
        await kill_marked(self._mark)
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


async def kill_marked(mark: str) -> None:
    """SIGKILL to every process whose environment carries `mark` (or a mark below it). Linux only; elsewhere nothing."""
    for _ in range(KILL_ROUNDS):
        if not any(await anyio.to_thread.run_sync(kill_round, mark)):
            return
        await anyio.sleep(KILL_PAUSE)
