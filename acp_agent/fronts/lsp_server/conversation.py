"""One ACP session: runs prompts in order, one at a time, and other session requests.

The session belongs to the folders that the editor had open when it started. The next prompt restarts an agent that has
died; the agent continues the session if it can, otherwise it starts a new one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.abc
from msgspec import Struct, field

from acp_agent.errors import AgentError, PeerError
from acp_agent.fronts.lsp_server.agent_host import AgentHost, RunningAgent
from acp_agent.fronts.lsp_server.prompt_content import Prompt
from acp_agent.schema import acp

if TYPE_CHECKING:
    from acp_agent.fronts.lsp_server.front import Front

log = logging.getLogger(__name__)

STOP_SECONDS = 10.0
"""Seconds an agent may take to end its turn when asked; then it is killed."""


class Folders(Struct, frozen=True):
    cwd: Path
    more: Sequence[Path] = ()


class Choice(Struct, frozen=True):
    """An option that can be picked."""

    id: str
    name: str
    current: bool = False


class Session(Struct):
    id: str
    folders: Folders
    agent: RunningAgent
    modes: acp.SessionModeState | None = None
    mode_id: str = ""
    options: Sequence[acp.SessionConfigOption] = ()


class Turn(Struct):
    prompt: Prompt
    done: anyio.Event = field(default_factory=anyio.Event)
    stop_reason: str = ""
    """Empty if it failed."""
    failure: str = ""
    """The error message."""
    stopped: bool = False


class PromptQueue:
    def __init__(
        self, host: AgentHost, folders: Callable[[], Folders], watcher: Front, tasks: anyio.abc.TaskGroup
    ) -> None:
        """`watcher` is notified of everything, in order."""
        self._host = host
        self._folders = folders
        self._watcher = watcher
        self._tasks = tasks
        self._session: Session | None = None
        self._replaying = False
        self._opening = anyio.Lock()
        self._queue: deque[Turn] = deque()
        self._queued = anyio.Event()
        self._running: Turn | None = None
        self._scope: anyio.CancelScope | None = None
        self.turns = 0
        """So many have ended."""

    # --- turns ------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._running is not None or bool(self._queue)

    def submit(self, prompt: Prompt) -> Turn:
        """Runs the prompt when earlier ones have ended."""
        turn = Turn(prompt)
        self._queue.append(turn)
        self._queued.set()
        return turn

    async def run(self) -> None:
        """Runs the turns until cancelled."""
        while True:
            while not self._queue:
                self._queued = anyio.Event()
                await self._queued.wait()
            self._running = self._queue.popleft()
            try:
                await self._turn(self._running)
            finally:
                turn, self._running = self._running, None
                self.turns += 1
                turn.done.set()

    @property
    def waiting(self) -> Sequence[Turn]:
        """The prompts queued behind the running turn."""
        return tuple(self._queue)

    def stop(self) -> bool:
        """Ends the running turn and drops queued ones; returns whether there was anything to stop."""
        found = self.busy
        while self._queue:
            self.drop(self._queue[0])
        if self._running is not None:
            self._stop_running(self._running)
        return found

    def drop(self, turn: Turn) -> None:
        """Ends one turn, running or queued."""
        if turn is self._running:
            self._stop_running(turn)
        elif turn in self._queue:
            self._queue.remove(turn)
            turn.stop_reason = "cancelled"
            turn.done.set()

    def _stop_running(self, turn: Turn) -> None:
        if turn.stopped:
            return
        turn.stopped = True
        if self._scope is not None:  # It has not reached the agent yet.
            self._scope.cancel()
        elif self._session is not None:
            self._session.agent.client.cancel(self._session.id)
            self._tasks.start_soon(self._insist, turn)

    async def _insist(self, turn: Turn) -> None:
        with anyio.move_on_after(STOP_SECONDS):
            await turn.done.wait()
            return
        turn.failure = f"the agent did not stop within {STOP_SECONDS:g} s and was killed; the next command restarts it"
        self._host.end()

    async def _turn(self, turn: Turn) -> None:
        self._watcher.turn_began(turn)
        try:
            session: Session | None = None
            with anyio.CancelScope() as self._scope:
                session = await self.open()
            self._scope = None
            if session is None or turn.stopped:
                turn.stop_reason = "cancelled"
                return
            embedded = session.agent.capabilities.prompt_capabilities.embedded_context
            self._watcher.prompted(turn)
            answer = await session.agent.client.prompt(session.id, turn.prompt.blocks(embedded=embedded))
            turn.stop_reason = answer.stop_reason
        except AgentError as error:
            turn.failure = turn.failure or await self._host.words(error)
        finally:
            self._scope = None
            self._watcher.turn_ended(turn)

    # --- sessions ---------------------------------------------------------------------------------------------

    @property
    def current(self) -> Session | None:
        """The session, also of an agent that has ended; `open` brings it back."""
        return self._session

    async def open(self) -> Session:
        """Returns the session, starting one if there is none. Raises AgentError."""
        async with self._opening:
            before = self._session
            if before is not None and before.agent is self._host.running:
                return before
            self._session = None
            folders = self._folders()
            agent = await self._host.start(folders.cwd)
            if before is not None:
                resumed = await self._resume(before, agent)
                if resumed is not None:
                    return resumed
            answer = await agent.client.new_session(folders.cwd, additional_directories=_more(agent, folders))
            session = Session(answer.session_id, folders, agent)
            return self._begin(session, answer.modes, answer.config_options, loaded=False)

    def forget(self) -> None:
        """Makes the next prompt start a new session. Stops the running turn."""
        self.stop()
        self._session = None

    async def sessions(self) -> list[acp.SessionInfo]:
        """The sessions of this folder, as reported by the agent. Raises AgentError."""
        folders = self._folders()
        agent = await self._host.start(folders.cwd)
        listed = agent.capabilities.session_capabilities
        if listed.list is None or not agent.capabilities.load_session:
            raise AgentError(f"{agent.name} cannot list or load sessions")
        return list((await agent.client.list_sessions(cwd=folders.cwd)).sessions)

    async def load(self, info: acp.SessionInfo) -> Session:
        """Continues a session, replaying its conversation. Raises AgentError."""
        self.stop()
        if self._running is not None:
            await self._running.done.wait()
        async with self._opening:
            folders = self._folders()
            agent = await self._host.start(folders.cwd)
            session = Session(info.session_id, folders, agent)
            self._session = session
            self._watcher.session_began(session, loaded=True)
            self._replaying = True
            try:
                answer = await agent.client.load_session(
                    session.id, folders.cwd, additional_directories=_more(agent, folders)
                )
            except AgentError:
                self._session = None
                raise
            finally:
                self._replaying = False
            _take(session, answer.modes, answer.config_options)
            return session

    def take_update(self, session_id: str, update: acp.SessionUpdate) -> None:
        session = self._session
        if session is not None and session_id == session.id:
            if isinstance(update, acp.CurrentModeUpdate):
                session.mode_id = update.current_mode_id
            elif isinstance(update, acp.ConfigOptionUpdate):
                session.options = update.config_options
        if session is None or session_id == session.id:
            self._watcher.updated(session_id, update, replayed=self._replaying)

    async def _resume(self, before: Session, agent: RunningAgent) -> Session | None:
        capabilities = agent.capabilities.session_capabilities
        if capabilities.resume is None:
            return None
        try:
            answer = await agent.client.resume_session(
                before.id, before.folders.cwd, additional_directories=_more(agent, before.folders)
            )
        except PeerError as error:
            log.info("session %s is gone: %s", before.id, error)
            return None
        session = Session(before.id, before.folders, agent)
        _take(session, answer.modes, answer.config_options)
        self._session = session
        return session

    def _begin(
        self,
        session: Session,
        modes: acp.SessionModeState | None,
        options: Sequence[acp.SessionConfigOption] | None,
        *,
        loaded: bool,
    ) -> Session:
        _take(session, modes, options)
        self._session = session
        self._watcher.session_began(session, loaded=loaded)
        return session

    # --- modes and models -------------------------------------------------------------------------------------

    async def modes(self) -> list[Choice]:
        session = await self.open()
        if session.modes is not None:
            return [Choice(mode.id, mode.name, mode.id == session.mode_id) for mode in session.modes.available_modes]
        return _choices(_option(session, "mode"))

    async def set_mode(self, mode_id: str) -> None:
        """Raises AgentError, including for an unknown mode."""
        session = await self.open()
        if session.modes is None:
            await self._set(session, "mode", mode_id)
            return
        _need(mode_id, await self.modes(), "mode")
        await session.agent.client.set_session_mode(session.id, mode_id)
        session.mode_id = mode_id

    async def models(self) -> list[Choice]:
        return _choices(_option(await self.open(), "model"))

    async def set_model(self, model_id: str) -> None:
        """Raises AgentError, including for an unknown model."""
        await self._set(await self.open(), "model", model_id)

    async def _set(self, session: Session, name: str, value: str) -> None:
        option = _option(session, name)
        _need(value, _choices(option), name)
        if option is not None:
            answer = await session.agent.client.set_config_option(session.id, option.id, value)
            session.options = answer.config_options


def _take(
    session: Session, modes: acp.SessionModeState | None, options: Sequence[acp.SessionConfigOption] | None
) -> None:
    session.modes = modes
    session.mode_id = modes.current_mode_id if modes is not None else ""
    session.options = options or ()


def _more(agent: RunningAgent, folders: Folders) -> Sequence[Path]:
    takes = agent.capabilities.session_capabilities.additional_directories is not None
    return folders.more if takes else ()


def _option(session: Session, name: str) -> acp.SessionConfigSelect | None:
    for option in session.options:
        if isinstance(option, acp.SessionConfigSelect) and name in (option.id, option.category):
            return option
    return None


def _choices(option: acp.SessionConfigSelect | None) -> list[Choice]:
    if option is None:
        return []
    flat: list[acp.SessionConfigSelectOption] = []
    for item in option.options:
        flat.extend(item.options if isinstance(item, acp.SessionConfigSelectGroup) else [item])
    return [Choice(item.value, item.name, item.value == option.current_value) for item in flat]


def _need(value: str, choices: Sequence[Choice], name: str) -> None:
    if not choices:
        raise AgentError(f"this agent does not let you choose its {name}")
    if all(choice.id != value for choice in choices):
        raise AgentError(f"there is no {name} {value!r}; there are: {', '.join(choice.id for choice in choices)}")
