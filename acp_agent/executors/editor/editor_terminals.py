"""Commands in the editor's own terminals: ACP's `terminal/*`, through `Client`.

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
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from threading import Thread

import anyio
from msgspec.structs import replace

from acp_agent.errors import AgentError, ConnectionClosed, ExecutorError, MethodNotFound, PeerError
from acp_agent.executors.base import Command, ExitStatus, OutputChunk, Terminal, TerminalView, shell_options
from acp_agent.executors.buffer import without_first_part
from acp_agent.executors.local import QUIET, LocalCommands, kill_marked
from acp_agent.executors.marked import MARK
from acp_agent.executors.sandbox.base import Confined, Invocation
from acp_agent.executors.sandbox.script import confined_script
from acp_agent.executors.shell_state import with_state
from acp_agent.executors.start import Confine, of_its_own
from acp_agent.protocol.client import Client
from acp_agent.schema.acp import TerminalExitStatus

POLL_SECONDS = 0.1
"""Pause between polls of a terminal whose client has no working `wait_for_exit`."""
BEGINNING_LOST = "[... the beginning was left out by the editor's terminal ...]"
"""First line of what such a terminal kept; no filter removes it."""


class EditorTerminals:
    """`local`: the commands of this machine, which those in terminals have their environment and state from.

    `scripts`: an existing private folder for the script files, its path free of characters a shell would split.
    `confine`: how commands are confined; `None`: not.
    """

    def __init__(
        self,
        client: Client,
        local: LocalCommands,
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
        self._local = local
        self._scripts = scripts
        self._kill_timeout = kill_timeout
        self._numbers = itertools.count(1)

    async def run(self, command: Command) -> EditorProcess:
        """Raises NotStarted if the editor refused before anything ran."""
        local, bash = self._local, self._local.bash
        with local.entered(command.cwd):
            pass  # The editor starts it where that name leads to.
        if (path := local.own_path()) is not None:
            command = replace(command, env={"PATH": path, **command.env})
        environ, state_file = local.environment(command), local.state_file(command)
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
                if error.code != MethodNotFound.code:
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
        self.remark = await kill_marked(self._mark) or self.remark
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
