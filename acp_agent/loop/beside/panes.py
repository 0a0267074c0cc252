"""The terminals of a session in tmux: a window for each program in a terminal, and shells that commands share, by name.

A pane is a shell of ours in a window of its own: `session` and `pane` name it. The one named `shared`, of the session
that the configuration names, is made when it is first used, and nobody removes it; the others are made and removed by
the model. What the user makes in tmux is not among them.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from acp_agent.config.place_settings import TerminalConfig, TmuxConfig
from acp_agent.errors import ExecutorError, ToolError
from acp_agent.executors.base import Command, Process, Terminal, TerminalSize
from acp_agent.lazy import load
from acp_agent.safety.folders.paths import real_path

if TYPE_CHECKING:
    from acp_agent.executors.terminals.pseudo_terminal import Pty
    from acp_agent.executors.tmux.shared_shell import SharedRun, SharedShell
    from acp_agent.executors.tmux.tmux_server import Tmux

TMUX = "acp_agent.executors.tmux.tmux_server:Tmux"
SHELL = "acp_agent.executors.tmux.shared_shell:SharedShell"
NAME = "acp_agent.executors.tmux.tmux_server:NAME"
PREFIX = "acp-coder-"
"""Of the names of our sessions in tmux; a name may be given with it or without."""
SHARED = "shared"

Start = Callable[[Command, str, str], Awaitable[Process]]
"""Starts a command that its call does not end, in a window of that name, of a session."""
Key = tuple[str, str]
"""The names of session and pane."""


class Panes:
    """Of one session. `session`: the name of the first one in tmux; empty: there is no tmux. `folder`: private."""

    def __init__(
        self,
        session: str,
        config: TmuxConfig,
        terminal: TerminalConfig,
        folder: Callable[[], Path],
        environ: Mapping[str, str],
        outside: Sequence[Path],
        cwd: Path,
        place: str,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        tell: Callable[[str], None],
    ) -> None:
        """`environ` and `outside`: as of `Tmux`. `cwd`: where shells begin. `place`: the name of the
        session's."""
        self.on = bool(session)
        self._session = session
        self._config = config
        self.size = TerminalSize(terminal.columns, terminal.rows, terminal.history)
        self._folder = folder
        self._environ = environ
        self._outside = outside
        self._cwd = cwd
        self._place = place
        self._spawn = spawn
        self._tell = tell
        self._told = False
        self._shells: dict[Key, SharedShell] = {}
        self._sessions: dict[str, None] = {session: None}
        self._making = anyio.Lock()

    @cached_property
    def _tmux(self) -> Tmux:
        made: Tmux = load(TMUX)(self._folder(), self._session, self._environ, self._outside, self.size.history)
        return made

    async def open(self, window: str, session: str = "") -> Pty | None:
        """A terminal in a window of its own; `None` without tmux. Raises ExecutorError."""
        if not self.on:
            return None
        opened = await self._tmux.open(self.size, window, session)
        if not self._told:
            self._told = True
            self._tell(f"Terminals are shown in tmux: `{self._tmux.attach_words()}`.")
        return opened

    async def lines(self) -> list[str]:
        """How the user attaches, for the user."""
        if not self.on:
            return []
        try:
            await self._tmux.ready(self.size)
        except ExecutorError as error:
            return [f"Terminals are not shown in tmux: {error}."]
        names = [f"`{self._tmux.attach_words(name)}`" for name in self._sessions]
        panes = ", ".join(f"{session}:{pane}" for session, pane in self._shells) or "none yet"
        return [f"Terminals are shown in tmux: {', '.join(names)}. Shells that commands share: {panes}."]

    # --- by name ----------------------------------------------------------------------------------------------

    def key(self, session: str | None, pane: str | None) -> Key:
        """Raises ToolError for what cannot be a name."""
        if not self.on:
            raise ToolError("There is no tmux in this session (`tools.tmux.session`, `--tmux`).", "invalid_parameters")
        names = (session or self._session).removeprefix(PREFIX), (pane or SHARED).removeprefix(PREFIX)
        for name in names:
            if not load(NAME).fullmatch(name):
                words = "at most 40 letters, digits, `-` and `_`"
                raise ToolError(
                    f"{name[:50]!r} cannot be the name of a session or pane: {words}.", "invalid_parameters"
                )
        return names

    def find(self, key: Key) -> SharedShell | None:
        shell = self._shells.get(key)
        if shell is not None and shell.ended.is_set():
            del self._shells[key]
            return None
        return shell

    def needed(self, key: Key) -> SharedShell:
        """Raises ToolError if there is none."""
        if (shell := self.find(key)) is None:
            raise self._missing(key)
        return shell

    def _missing(self, key: Key) -> ToolError:
        known = ", ".join(f"{session}:{pane}" for session, pane in self._shells) or "none"
        return ToolError(
            f"There is no pane {key[0]}:{key[1]} of ours. Known are: {known}.",
            "invalid_parameters",
            suggestion="`tmux_create_pane` makes one; the pane `shared` of the first session is made when it is used.",
        )

    def terminal(self, key: Key, types_in: str = "") -> tuple[str, Command, Terminal]:
        """As `SessionRuns.terminal`, with an id that no other has."""
        shell = self.needed(key)
        if types_in and types_in != self._place:
            raise ToolError(
                f"The pane {key[0]}:{key[1]} is in the place `{self._place}`; nothing can be typed into it from "
                f"`{types_in}`, where other rules hold.",
                "policy_blocked",
            )
        return shell.nonce, shell.command, shell.terminal

    def shared(self) -> tuple[str, Command, Terminal] | None:
        """The terminal of the shared pane, if it is there."""
        shell = self.find((self._session, SHARED)) if self.on else None
        return None if shell is None else (shell.nonce, shell.command, shell.terminal)

    def may_make(self, key: Key) -> bool:
        """Whether it is the one that is made when it is used."""
        return key == (self._session, SHARED)

    async def make(self, key: Key, start: Start) -> bool:
        """Whether it is new: it may be there already. Raises ToolError, ExecutorError."""
        async with self._making:
            if self.find(key) is not None:
                return False
            for known in list(self._shells):
                self.find(known)
            if key[0] not in self._sessions:
                raise ToolError(
                    f"There is no session {key[0]} of ours. Known are: {', '.join(self._sessions)}.",
                    "invalid_parameters",
                    suggestion="`tmux_create_session` makes one.",
                )
            if len(self._shells) >= self._config.max_panes:
                names = ", ".join(f"{session}:{pane}" for session, pane in self._shells)
                raise ToolError(f"There are {len(self._shells)} panes already (`tools.tmux.max_panes`): {names}.")
            shell = load(SHELL)
            nonce = uuid.uuid4().hex[:12]
            command = Command(shell.script(nonce), self._cwd, keeps_state=False, terminal=self.size)
            process = await start(command, key[1], key[0])
            made: SharedShell = shell(process, command, nonce)
            self._spawn(made.live())
            try:
                await made.ready()
            except BaseException:
                await made.close()
                raise
            if not self.on:
                await made.close()
                raise ToolError("The session was closed.", "cancelled")
            self._shells[key] = made
            return True

    async def make_session(self, name: str, start: Start) -> bool:
        """The same for a session, with its shared pane."""
        session = self.key(name, None)[0]
        new = session not in self._sessions
        if new and len(self._sessions) >= self._config.max_sessions:
            names = ", ".join(self._sessions)
            raise ToolError(f"There are {len(self._sessions)} sessions already (`tools.tmux.max_sessions`): {names}.")
        self._sessions[session] = None
        try:
            return await self.make((session, SHARED), start) or new
        except BaseException:
            if new:
                del self._sessions[session]
            raise

    async def kill(self, key: Key) -> None:
        """Ends its shell and what runs in it; a shared one only if something hangs in it. Raises ToolError."""
        shell = self.needed(key)
        if key[1] == SHARED and not shell.busy:
            raise ToolError(f"The pane {key[0]}:{SHARED} is shared, and goes with its session.", "policy_blocked")
        await self._end(key, shell)

    async def kill_session(self, name: str) -> None:
        """Ends it with its panes. Raises ToolError."""
        session = self.key(name, None)[0]
        if session == self._session:
            raise ToolError(f"The session {session} is shared, and goes with this conversation.", "policy_blocked")
        if session not in self._sessions:
            known = ", ".join(self._sessions)
            raise ToolError(f"There is no session {session} of ours. Known are: {known}.", "invalid_parameters")
        for key, shell in list(self._shells.items()):
            if key[0] == session:
                await self._end(key, shell)
        self._sessions.pop(session, None)
        await anyio.to_thread.run_sync(self._tmux.end_session, session)

    async def _end(self, key: Key, shell: SharedShell) -> None:
        await shell.close()
        if self._shells.get(key) is shell:
            del self._shells[key]

    async def run(self, key: Key, command: Command, start: Start, begins: Callable[[Command], None]) -> SharedRun:
        """Types a command into a pane; `begins` is told in which shell. Raises ToolError, ExecutorError."""
        if self.may_make(key):
            await self.make(key, start)
        shell = self.needed(key)
        if real_path(shell.folder) != real_path(command.cwd):
            raise ToolError(f"Nothing was typed: the pane {key[0]}:{key[1]} is in another folder now. Decide again.")
        try:
            return await shell.run(command, lambda: begins(shell.command))
        except ExecutorError as error:
            raise ToolError(
                f"Nothing was typed into the pane {key[0]}:{key[1]}: {error}.",
                suggestion="Look with `capture_pane`; wait, interrupt it with `send_keys` (C-c), or use another pane.",
            ) from error

    async def close(self) -> None:
        self.on = False  # Nothing is made any more.
        for key, shell in list(self._shells.items()):
            await self._end(key, shell)
        if "_tmux" in vars(self):
            await self._tmux.end()
