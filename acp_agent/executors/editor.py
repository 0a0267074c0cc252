"""Commands in the editor's own terminals and text in its buffers: ACP's `terminal/*` and `fs/*`, through `Client`.

How a command line gets there (TERM-10): some clients execute `command` with `args` directly, others join them for a
shell. `bash` with one script file as its only argument means the same in both, so the line is written to a file.

A confined command (see `sandbox`) is a script that starts the sandbox and waits for it, with nothing of the editor's
environment and none of its descriptors.

Some clients never answer `wait_for_exit` after a kill: every wait on the way out is bounded. Some refuse to kill, or
kill the shell and leave what it started (Toad 0.6 does both): each command carries a mark of its own in its
environment, and what still carries it after a kill is killed here.
"""

from __future__ import annotations

import itertools
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import anyio.to_thread
from msgspec.structs import replace

from acp_agent.child import User
from acp_agent.disk import Entered
from acp_agent.errors import AgentError, ConnectionClosed, ExecutorError, PeerError
from acp_agent.executors import files
from acp_agent.executors.base import Command, ExitStatus, OutputChunk, Process, Terminal, TerminalView, shell_options
from acp_agent.executors.beneath import folder, regular
from acp_agent.executors.buffer import without_first_part
from acp_agent.executors.encodings import BYTE_ORDER, UTF8, Decoded, decoded, line_feeds, lossy
from acp_agent.executors.local import QUIET, TERMINATE_GRACE, LocalExecutor, kill_marked
from acp_agent.executors.marked import MARK
from acp_agent.executors.route import Offer, route
from acp_agent.executors.sandbox.base import Confined, Invocation
from acp_agent.executors.sandbox.script import confined_script
from acp_agent.executors.shell_state import with_state
from acp_agent.executors.start import Confine, of_its_own
from acp_agent.executors.tree_walk import Hides, unmake
from acp_agent.executors.unmoved import Way, way_to
from acp_agent.protocol.client import Client
from acp_agent.schema.acp import TerminalExitStatus

log = logging.getLogger(__name__)

METHOD_NOT_FOUND = -32601
NO_BUFFER = (METHOD_NOT_FOUND, -32602, -32002)
"""Answers that mean that the client has no text of its own of that file: no reading, not that path, no such file."""
DISK_USED = "It is in {}, which the editor does not show: the file on the disk is used."
UNKNOWN = "\ufffd"
"""What decoders put in the place of bytes they cannot decode."""
MOVED = (
    "{} was not read: folders on the way to it changed while the editor read it, and the editor's text is not that on "
    "the disk. Try again when no command runs, or ask the user to save it"
)
ELSEWHERE = (
    "A folder on the way to {} changed while the editor wrote it: the editor may have written the text to another "
    "place. Tell the user."
)
TRIES, SETTLES = 8, 0.01
"""How often, and after how many seconds, the editor is asked again if the folders on the way changed meanwhile."""
POLL_SECONDS = 0.1
"""Pause between polls of a terminal whose client has no working `wait_for_exit`."""
BEGINNING_LOST = "[... the beginning was left out by the editor's terminal ...]"
"""First line of what such a terminal kept; no filter removes it."""


class EditorTerminals:
    """Commands in the editor's terminals.

    `scripts`: an existing private folder for the script files, its path free of characters a shell would split.
    `confine`: how commands are confined; `None`: not.
    """

    def __init__(
        self,
        client: Client,
        scripts: Path,
        *,
        kill_timeout: float = 2.0,
        output_limit: int = 1_048_576,
        confine: Confine | None = None,
        scrub: Callable[[Iterable[str]], str] = lambda kept: "",
    ) -> None:
        """`scrub`: what a command that is not confined begins with, given the names of its own variables."""
        self._scrub = scrub
        self._confine = confine
        self._output_limit = output_limit
        self._client = client
        self._scripts = scripts
        self._kill_timeout = kill_timeout
        self._numbers = itertools.count(1)

    async def run(
        self, command: Command, environ: Mapping[str, str], state_file: Path | None, bash: str
    ) -> EditorProcess:
        """`environ`: the complete environment of a confined command. Raises NotStarted if the editor refused before
        anything ran."""
        script = self._scripts / f"command-{next(self._numbers)}.sh"
        line = with_state(command.script, state_file, keep=command.keeps_state, without=of_its_own(command))
        mark = str(uuid.uuid4())
        env = {**{k: v for k, v in QUIET.items() if k != "TERM"}, **command.env, MARK: mark}
        text = f"exec </dev/null; {line}\n"
        confined: Confined | None = None
        if self._confine is not None and command.confined:
            argv = (bash, *shell_options(command), "-c", text.rstrip("\n"))
            confined = self._confine(Invocation(argv, command.cwd, {**environ, MARK: mark}, by_script=True), command)
            text = confined_script(confined)
        else:
            text = self._scrub(env) + text
        try:
            script.write_text(text, encoding="utf-8")
            terminal_id = await self._client.create_terminal(
                bash,
                [*(shell_options(command) if confined is None else ()), str(script)],
                cwd=command.cwd,
                env=env,
                output_byte_limit=min(command.output_limit, self._output_limit),
                late=Thread(target=anyio.run, args=(kill_marked, mark)).start,
            )
        except TimeoutError as error:
            # It may have started: running it again elsewhere could do its work twice. What protects while it runs must
            # stay, too.
            raise ExecutorError(f"{error}; it is unknown whether the command is running") from error
        except ConnectionClosed:
            _forget(script, confined)
            raise
        except AgentError as error:
            _forget(script, confined)
            raise NotStarted(f"the editor could not start a terminal: {error}") from error
        except BaseException:
            if confined is not None:
                _forget(script, confined)
            raise
        return EditorProcess(self._client, terminal_id, script, mark, self._kill_timeout, confined)


class EditorExecutor(LocalExecutor):
    """This machine, with commands in the editor's terminals and text in its buffers as far as `offer` says.

    The disk answers what the protocol does not cover (stat, list, bytes): the editor runs on this machine. A command
    runs locally only if the editor's terminal failed before it started.
    """

    def __init__(
        self,
        client: Client,
        terminals: EditorTerminals,
        offer: Offer,
        *,
        environ: Mapping[str, str] = os.environ,
        terminate_grace: float = TERMINATE_GRACE,
        confine: Confine | None = None,
        hides: Hides | None = None,
        user: Callable[[], User | None] = lambda: None,
        folders: Sequence[Path] = (),
        entered: Entered = nullcontext,
    ) -> None:
        """`folders`: resolved. The others are those of `LocalExecutor`."""
        rest: dict[str, Any] = {"hides": hides, "user": user, "folders": folders, "entered": entered}
        super().__init__(environ=environ, terminate_grace=terminate_grace, confine=confine, **rest)
        self.offer = offer
        self._tops = list(folders)
        self._client = client
        self._terminals = terminals
        self._unread: dict[Path, Exception] = {}
        """Files whose text the client did not return when it was last asked."""

    def _with_own_path(self, command: Command) -> Command:
        """With our PATH in the place of the editor's, if ours had relative entries: the editor's has them, too."""
        path = self._environ.get("PATH", "")
        if path == self._inherited.get("PATH", ""):
            return command
        return replace(command, env={"PATH": path, **command.env})

    async def run(self, command: Command) -> Process:
        if route("run", self.offer) == "editor" and command.terminal is None:
            with self._entered(command.cwd):
                pass  # The editor starts it where that name leads to.
            try:
                command = self._with_own_path(command)
                environ, state = self.environment(command), self.state_file(command)
                return await self._terminals.run(command, environ, state, self._bash)
            except NotStarted:
                pass
        return await super().run(command)

    async def read_text(self, path: Path) -> str:
        if route("read_text", self.offer) == "local":
            return await super().read_text(path)
        for _ in range(TRIES):
            await self.need_plain(path)
            before = await self._way(path)
            try:
                text = await self._client.read_text_file(path)
            except (AgentError, TimeoutError) as error:
                # Clients report a missing file in many ways, and some cannot read outside their workspace: the disk
                # decides.
                self._unread[path] = error
                if not isinstance(error, TimeoutError) and await self.stat(path) is None:
                    del self._unread[path]
                return await super().read_text(path)
            self._unread.pop(path, None)
            if not text and await self.stat(path) is None:
                raise FileNotFoundError(2, "No such file or directory", str(path))
            text, on_disk = await self._with_what_was_lost(path, text)
            # Another text is that of unsaved changes, unless the editor was led to another file.
            if on_disk or before.stands(await self._way(path)):
                return text
            await anyio.sleep(SETTLES)
        raise ExecutorError(MOVED.format(path))

    async def _way(self, path: Path, tries: int = 1) -> Way:
        """`tries`: how often it may be looked at until it is settled."""
        way = await anyio.to_thread.run_sync(way_to, path, self._tops)
        if not way.settled and tries > 1:
            await anyio.sleep(SETTLES)
            return await self._way(path, tries - 1)
        return way

    async def _with_what_was_lost(self, path: Path, text: str) -> tuple[str, bool]:
        """The client's text, with the disk's line endings if the client normalised them to line feeds (Toad 0.6), and
        whether it is that on the disk.

        The disk's, if the client lost what is not UTF-8. Raises UnicodeDecodeError if it did so with a binary file.
        """
        text = text.removeprefix(BYTE_ORDER)
        try:
            disk = await self.decoded(path)
        except UnicodeDecodeError:
            if lossy(text, await super().read_bytes(path, -1), None):
                raise
            return text, False
        except (OSError, ExecutorError):
            return text, False
        if disk.encoding.codec != UTF8.codec and await self._is_lossy(path, text, disk):
            self.note(path, DISK_USED.format(disk.encoding.name))
            return disk.text, True
        return (disk.text, True) if text in (disk.text, line_feeds(disk.text)) else (text, False)

    async def _is_lossy(self, path: Path, shown: str, disk: Decoded) -> bool:
        """Whether the client shows the file, which is not UTF-8, in the wrong encoding. Raises ExecutorError where
        unsaved changes come on top."""
        if lossy(shown, await super().read_bytes(path, -1), disk.text):
            return True
        if UNKNOWN in shown and UNKNOWN not in disk.text:
            raise ExecutorError(
                f"{path} is in {disk.encoding.name}. The editor does not show it right and has unsaved changes of it: "
                "ask the user to close it there"
            )
        return False

    async def write_text(self, path: Path, text: str) -> str:
        if route("write_text", self.offer) == "local":
            return await super().write_text(path, text)
        await self.need_plain(path)
        old = await self._on_disk(path)
        if old is not None and old.encoding.codec != UTF8.codec and await self._shown_wrong(path, old):
            now = await super().write_text(path, text)
            self.note(path, f"{DISK_USED.format(old.encoding.name)} {self.remark(path)}".rstrip())
            return now
        if (unread := self._unread.get(path)) is not None:
            return await self._written_unread(path, text, unread)
        if old is not None and await anyio.to_thread.run_sync(files.has_other_names, path):
            return await super().write_text(path, text)  # Most editors would write in place.
        before = None if old is None else old.text
        made = 0
        if before is None:
            made = await self.make_directory(path.parent)  # some clients fail where the parent is missing
        way = await self._way(path, TRIES)
        try:
            written = await self._written_by_editor(path, text)
        except PeerError as error:
            if error.code == METHOD_NOT_FOUND:
                return await super().write_text(path, text)
            await anyio.to_thread.run_sync(unmake, path.parent, made)
            raise ExecutorError(f"the editor refused to write {path}: {error.message}") from error
        except TimeoutError as error:
            raise ExecutorError(f"{error}; it is unknown whether {path} was written") from error
        except OSError as error:
            raise ExecutorError(f"{path}: {error.strerror or error}") from error
        if not await self._is_unmoved(path, way, text, before, written):
            return await self._written_again(path, text)
        new = await self._on_disk(path)
        if old is not None and new is not None and UTF8 == new.encoding != old.encoding:
            return await self.write_as(path, new.text, old.encoding)  # The client wrote UTF-8.
        if new is not None and (new.text == text or new.text != before):
            return new.text
        # The disk is unchanged. Either the buffer has the change unsaved, or nothing happened at all.
        shown = await self._shown(path)
        if shown is not None and shown == text and shown != (before or ""):
            return shown
        return await super().write_text(path, text)

    async def _written_by_editor(self, path: Path, text: str) -> str | None:
        """Returns what is then in the file of the folder that was at the path before."""
        with folder(path.parent) as parent:
            await self._client.write_text_file(path, text)
            return await anyio.to_thread.run_sync(_text_in, parent, path)

    async def _is_unmoved(self, path: Path, way: Way, text: str, before: str | None, written: str | None) -> bool:
        """Whether the editor cannot have written elsewhere. `written`: what is in the folder that was at the path."""
        if written == text:
            return True
        try:
            after = await self._way(path)
        except ExecutorError:
            return False
        # Editors that save by renaming change the file's own folder, and some format what they save.
        return way.stands(after) or (written not in (None, before) and way.stands_above(after))

    async def _written_again(self, path: Path, text: str) -> str:
        log.warning("%s", ELSEWHERE.format(path))
        try:
            now = await super().write_text(path, text)
        except (ExecutorError, OSError) as error:
            raise ExecutorError(f"{ELSEWHERE.format(path)} It could not be written directly either: {error}") from error
        self.note(path, f"{ELSEWHERE.format(path)} It was then written directly. {self.remark(path)}".rstrip())
        return now

    async def _written_unread(self, path: Path, text: str, error: Exception) -> str:
        """Never over a buffer whose text the client did not return: it may have unsaved changes."""
        if isinstance(error, PeerError) and error.code in NO_BUFFER:
            return await super().write_text(path, text)
        raise ExecutorError(
            f"the editor did not return its text of {path} ({error}), which may have unsaved changes, so nothing was "
            "written. Try again, or ask the user to save and close the file"
        ) from error

    async def _shown_wrong(self, path: Path, disk: Decoded) -> bool:
        """Whether the client would write UTF-8 into a file that it cannot read."""
        shown = await self._shown(path)
        return shown is None or await self._is_lossy(path, shown.removeprefix(BYTE_ORDER), disk)

    async def _shown(self, path: Path) -> str | None:
        try:
            return await self._client.read_text_file(path) if self._client.plan.reads_files else None
        except (AgentError, TimeoutError):
            return None

    async def _on_disk(self, path: Path) -> Decoded | None:
        try:
            return await self.decoded(path)
        except (FileNotFoundError, UnicodeDecodeError, ExecutorError):
            return None


def _text_in(parent: int, path: Path) -> str | None:
    """The text of the file in an open folder."""
    try:
        with regular(parent, path) as descriptor, open(descriptor, "rb", closefd=False) as file:
            return decoded(file.read()).text
    except (OSError, ExecutorError, UnicodeDecodeError):
        return None


def _forget(script: Path, confined: Confined | None) -> None:
    script.unlink(missing_ok=True)
    if confined is not None:
        confined.close()


class NotStarted(ExecutorError):
    """The editor refused before the command started: it may be run elsewhere."""


class EditorProcess:
    """A command in an editor terminal. Terminals merge the streams: all output counts as stdout."""

    terminal: Terminal | None = None

    def __init__(
        self,
        client: Client,
        terminal_id: str,
        script: Path,
        mark: str,
        kill_timeout: float,
        confined: Confined | None = None,
    ) -> None:
        self.view: TerminalView | None = TerminalView(terminal_id)
        self._client = client
        self._id = terminal_id
        self._script = script
        self._mark = mark
        self._confined = confined
        self._kill_timeout = kill_timeout
        self._status: ExitStatus | None = None
        self.stdout = self.stderr = self.remark = ""
        self.truncated = False
        self._killed = False
        self._released = False

    async def output(self) -> AsyncIterator[OutputChunk]:
        await self.wait()
        if self.stdout:
            yield OutputChunk("stdout", self.stdout)

    async def wait(self) -> ExitStatus:
        if self._status is None:
            try:
                answer = await self._client.wait_for_terminal_exit(self._id)
                status = ExitStatus(answer.exit_code, answer.signal)
            except PeerError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise ExecutorError(f"the editor lost the terminal: {error.message}") from error
                status = await self._poll()
            self._status = await self._collect() or status
            if self._status == ExitStatus():
                self._status = status
            self._close_confined()
        return self._status

    def _close_confined(self) -> None:
        if self._confined is not None:
            self.remark = self._confined.close() or self.remark

    async def _poll(self) -> ExitStatus:
        while True:
            status = await self._collect()
            if status is not None:
                return status
            await anyio.sleep(POLL_SECONDS)

    async def _collect(self) -> ExitStatus | None:
        """Takes the terminal's output; returns the exit status if there is one."""
        try:
            answer = await self._client.terminal_output(self._id)
        except (AgentError, TimeoutError) as error:
            if isinstance(error, ConnectionClosed):
                raise
            self.stdout += f"\n[the editor did not return the terminal's output: {error}]"
            return ExitStatus()
        output = answer.output.replace("\r\n", "\n")
        self.stdout = f"{BEGINNING_LOST}\n{without_first_part(output)}" if answer.truncated else output
        self.truncated = answer.truncated
        return _status(answer.exit_status)

    async def look(self) -> None:
        if self._status is None and not self._released:
            await self._collect()

    async def kill(self) -> None:
        self._killed = True
        try:
            with anyio.move_on_after(self._kill_timeout):
                await self._client.kill_terminal(self._id)
        except (AgentError, TimeoutError):
            pass  # It may have ended by itself meanwhile.
        await kill_marked(self._mark)
        try:
            with anyio.move_on_after(self._kill_timeout):
                status = await self._collect()
                if self._status is None:
                    self._status = status or ExitStatus(None, "SIGKILL")
        except ConnectionClosed:
            pass

    async def close(self) -> None:
        if self._released:
            return
        self._released = True
        with anyio.CancelScope(shield=True):
            if self._status is None and not self._killed:
                await self.kill()
            try:
                with anyio.move_on_after(self._kill_timeout):  # A bound of its own: a kill may have gone unanswered.
                    await self._client.release_terminal(self._id)
            except (AgentError, TimeoutError):
                pass  # The client is gone or has forgotten the terminal: there is nothing left to release.
        self._script.unlink(missing_ok=True)
        self._close_confined()

    @property
    def combined(self) -> str:
        return self.stdout

    @property
    def lost(self) -> str:
        return "the beginning, since the editor's terminal keeps only the end" if self.truncated else ""


def _status(status: TerminalExitStatus | None) -> ExitStatus | None:
    return None if status is None else ExitStatus(status.exit_code, status.signal)
