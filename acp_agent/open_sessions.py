"""The sessions that are open, and what they need: they are built, warmed up and closed here.

On stdio they are one connection's, on a server all of an owner's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp_agent.errors import AgentError, InternalError, InvalidParams
from acp_agent.lazy import load
from acp_agent.limits.shares import SESSIONS
from acp_agent.loop.opened import Opened
from acp_agent.loop.session import Session
from acp_agent.opening import Opening
from acp_agent.protocol.client import Client
from acp_agent.safety.folders.protect import WORKTREES

if TYPE_CHECKING:
    from acp_agent.build.builder import Builder
    from acp_agent.loop.shell.worktrees import Hold
    from acp_agent.loop.turns.parts import Parts

log = logging.getLogger(__name__)

WORKTREE_OF = "acp_agent.loop.shell.worktrees:of_folder"
HOLD = "acp_agent.loop.shell.worktrees:Hold"
BUILDER = "acp_agent.build.builder:Builder"


class OpenSessions:
    """`opening`: whose store they are in. `held`: this process has their leases as long as they are open; else, for
    the time of each turn."""

    def __init__(self, opening: Opening, *, held: bool = False) -> None:
        self._opening = opening
        self._leased = not held
        self.loaded: Callable[[], None] = lambda: None
        """Called once everything is loaded."""
        self.let_go: Callable[[str], Awaitable[None]] | None = None
        """Told of each session that has been closed."""
        self.reopening = asyncio.Lock()
        """Held while a session is looked for and opened again."""
        self._sessions: dict[str, Session] = {}
        self._closing: dict[str, asyncio.Future[str]] = {}
        self._held: dict[str, Hold] = {}
        """The worktrees that sessions work in."""
        self._builder: asyncio.Future[Builder] | None = None
        self._background: set[asyncio.Task[None]] = set()

    @property
    def ids(self) -> Collection[str]:
        return self._sessions.keys()

    @property
    def held(self) -> Collection[str]:
        """Those that are open, or being closed."""
        return self._sessions.keys() | self._closing.keys()

    def get(self, session_id: str) -> Session | None:
        return self._sessions.get(session_id)

    def above(self, session_id: str) -> tuple[Session, str] | None:
        """The session in which a sub-agent of that id works, and its call."""
        return next(
            ((each, each.children[session_id]) for each in self._sessions.values() if session_id in each.children), None
        )

    def has(self, session_id: str) -> bool:
        """Whether a session is open, or being closed."""
        return session_id in self._sessions or session_id in self._closing

    def room_for_one(self) -> None:
        """Raises InternalError if this process may have no more sessions."""
        if why := SESSIONS.full():
            raise InternalError(f"No session can be opened: {why}")

    def add(self, opened: Opened, client: Client) -> Session:
        SESSIONS.most = opened.config.settings.limits.max_sessions
        store = self._opening.store(opened.config)
        session = Session(opened, client, store, soon=_soon, build=self._build, leased=self._leased)
        if (hold := self.hold(opened.record.cwd)) is not None:
            self._held[session.id] = hold
        self._sessions[session.id] = session
        SESSIONS.taken += 1
        return session

    def start(self, session: Session) -> None:
        """The client knows the session's id now."""
        if session.queue.closed:
            return
        session.outbox.release()
        self.warm(session)

    def hold(self, cwd: str) -> Hold | None:
        """Keeps the worktree that a session works in, if it does."""
        if Path(cwd).parent.name != WORKTREES or (worktree := load(WORKTREE_OF)(Path(cwd))) is None:
            return None
        try:
            held: Hold = load(HOLD)(worktree)
        except OSError as error:
            raise InvalidParams(f"Invalid params: $.cwd: {cwd} is being removed") from error
        return held

    async def close(self, session: Session) -> str:
        """Closes it completely, even if the caller is cancelled. Returns what becomes of its worktree, in words."""
        del self._sessions[session.id]
        closing = self._closing[session.id] = asyncio.ensure_future(self._end(session))
        closing.add_done_callback(lambda _: self._closing.pop(session.id, None))
        return await asyncio.shield(closing)

    async def closed(self, session_id: str) -> None:
        """Waits for a close of the session that is in progress."""
        if (closing := self._closing.get(session_id)) is not None:
            await asyncio.shield(closing)

    async def _end(self, session: Session) -> str:
        try:
            await session.close()
        finally:
            SESSIONS.give()
        if self.let_go is not None:
            await self.let_go(session.id)
        if (hold := self._held.pop(session.id, None)) is None:
            return ""
        told = await asyncio.to_thread(hold.end)
        if told:
            log.warning("%s", told)
        return told

    # --- stage two --------------------------------------------------------------------------------------------

    async def _build(self, session: Session) -> Parts:
        builder = await asyncio.shield(self._stage_two())
        parts = await builder.parts(session, self._opening.store(session.config))
        self.spawn(self._introduce(builder, session))
        return parts

    async def _introduce(self, builder: Builder, session: Session) -> None:
        try:
            await builder.introduce(session)
        except AgentError as error:
            log.warning("the session could not be prepared: %s", error)

    def _stage_two(self) -> asyncio.Future[Builder]:
        """Returns the builder, loaded in a thread so that the loop can answer meanwhile."""
        if self._builder is None:
            self._builder = asyncio.ensure_future(asyncio.to_thread(self._make_builder))
        return self._builder

    def _make_builder(self) -> Builder:
        builder: Builder = load(BUILDER)(self._opening.environ, self.spawn, self.loaded)
        return builder

    def warm(self, session: Session) -> None:
        """Prepares the session before its next prompt."""
        self.spawn(self._warm(session))

    async def _warm(self, session: Session) -> None:
        try:
            await session.parts()
        except AgentError as error:
            log.warning("the session could not be prepared: %s", error)

    def spawn(self, work: Any) -> asyncio.Task[None]:
        """Runs it in the background until the end."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work in the background failed", exc_info=error)

    # --- the end ----------------------------------------------------------------------------------------------

    def cancel_turns(self) -> None:
        """Every turn ends as with `session/cancel`."""
        for session in self._sessions.values():
            session.queue.cancel()

    async def cancel_all(self) -> None:
        """Ends every turn and waits until each prompt has its answer."""
        self.cancel_turns()
        for session in tuple(self._sessions.values()):
            await session.settled()
        await asyncio.sleep(0)  # The prompts' tasks queue their answers.

    async def end(self) -> None:
        """Closes everything; no process started here is left."""
        for task in self._background:
            task.cancel()
        for session in tuple(self._sessions.values()):
            await self._end(session)
        self._sessions.clear()
        for closing in tuple(self._closing.values()):
            await closing
        if self._builder is not None and self._builder.done() and not self._builder.cancelled():
            await self._builder.result().close()


def _soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)
