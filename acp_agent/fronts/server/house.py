"""The sessions of one owner, which outlive the connections to them.

A turn belongs to its session: if the connection that asked for it is lost, it goes on (`server.alone`), and the next
one that loads or resumes the session sees it. Who watches is in the session's `Audience`. Which process runs a session
is in the store: several may serve the same owner.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from acp_agent.config.model import Settings
from acp_agent.errors import AgentError, ConnectionClosed, InternalError, PeerError
from acp_agent.fronts.server.audience import Audience, Watcher
from acp_agent.fronts.server.identities import Identity
from acp_agent.fronts.server.metrics import Metrics
from acp_agent.fronts.server.process_links import Links
from acp_agent.fronts.server.relay import GIVE_UP, ask_once
from acp_agent.loop.session import Session
from acp_agent.open_sessions import OpenSessions
from acp_agent.opening import Opening
from acp_agent.store.session_store import SessionStore

log = logging.getLogger(__name__)

MINUTE = 60.0
OVERDUE = 5 / 6
"""Of a lease that was not renewed, after which turns are cancelled: another process may soon run them."""


class House:
    """`opening`: the owner's store and configuration. `process`: the name of this one. `links`: to the others, if there
    can be any."""

    def __init__(
        self, owner: str, opening: Opening, settings: Settings, metrics: Metrics, process: str, links: Links | None
    ) -> None:
        self.owner = owner
        self.opening = opening
        self.process = process
        self.links = links
        self.sessions = OpenSessions(opening, held=links is not None)
        self.sessions.let_go = self._let_go
        self.config = settings.server
        self.metrics = metrics
        self.turns: set[asyncio.Task[Any]] = set()
        """Those that run."""
        self.onlookers: dict[str, set[Callable[[str], None]]] = {}
        """By session: told when another process has begun to run it."""
        self.stopping = False
        """Whether nothing more is begun."""
        self._opened_store: SessionStore | None = None
        self._renewed = time.monotonic()
        self._overdue: asyncio.TimerHandle | None = None
        self._audiences: dict[str, Audience] = {}
        self._idle: dict[str, asyncio.TimerHandle] = {}
        self._seen: dict[tuple[str, str], int] = {}
        """By session and token: the place of the last update that it was sent before its link was lost."""

    async def _store(self) -> SessionStore:
        if self._opened_store is None:
            self._opened_store = (await asyncio.to_thread(self.opening.own))[1]
        return self._opened_store

    # --- which process runs a session -------------------------------------------------------------------------

    async def take(self, session_id: str) -> str:
        """Makes this process the one that runs it; returns the name of the other one that does. Empty also where there
        is no such session. Of a store in a file each turn takes it for itself, here as in a terminal."""
        if self.links is None:
            return await self.runs_at(session_id)
        store = await self._store()
        while not await store.do(store.leases.claim, session_id, self.process, self.config.lease):
            holder = await self.runs_at(session_id)
            if holder or await store.do(store.get, session_id) is None:
                return holder
        return ""  # Not before it has been let go, if it was in between.

    async def runs_at(self, session_id: str) -> str:
        """The other process that runs it; empty: none does."""
        store = await self._store()
        holder = await store.do(store.leases.holder, session_id)
        return "" if holder == self.process else holder

    async def renew(self) -> None:
        """To be called several times in `server.lease` seconds. Sessions that another process has taken are closed."""
        if self.links is None:
            return
        begun, sessions = time.monotonic(), {each: self.sessions.get(each) for each in self.sessions.held}
        if self._overdue is None:
            self._hold_from(begun)
        try:
            store = await self._store()
            held = await store.do(store.leases.renew, tuple(sessions), self.process, self.config.lease)
        except AgentError as error:
            log.error("sessions cannot be held: %s", error)
            return
        self._hold_from(begun)
        for session_id, session in sessions.items():
            if session_id not in held and self.sessions.get(session_id) is session and session is not None:
                log.warning("session %s is run by another process now", session_id)
                session.queue.cancel()
                self.sessions.spawn(self._lost(session_id, session))
        await asyncio.sleep(0)  # They are not open any more.

    def _hold_from(self, begun: float) -> None:
        """The leases have been renewed then. The database may not answer the next time, not even with an error."""
        self._renewed = begun
        if self._overdue is not None:
            self._overdue.cancel()
        wait = self.config.lease * OVERDUE - (time.monotonic() - begun)
        self._overdue = asyncio.get_running_loop().call_later(wait, self._too_late)

    def _too_late(self) -> None:
        log.error("sessions of %s could not be held: their turns are cancelled", self.owner)
        self.sessions.cancel_turns()

    @property
    def doubtful(self) -> bool:
        """Whether another process may have taken sessions that are open here."""
        return self.links is not None and time.monotonic() - self._renewed > self.config.lease

    async def _lost(self, session_id: str, session: Session) -> None:
        await self._close(session_id, session)
        self.runs_elsewhere(session_id)

    async def caught_up(self, session_id: str, joining: Callable[[str], None] | None = None) -> None:
        """Closes the session if somebody has gone on with it in a terminal or an editor; who watches it gets what was
        said there, but for who is `joining`, who asks for it."""
        session = self.sessions.get(session_id)
        if session is not None and await session.left_behind():
            await self._close(session_id, session)
            self.runs_elsewhere(session_id, joining)

    async def _let_go(self, session_id: str) -> None:
        if self.links is None:
            return
        try:
            store = await self._store()
            await store.do(store.leases.let_go, session_id, self.process)
        except AgentError as error:
            log.warning("session %s is held for %g s more: %s", session_id, self.config.lease, error)

    async def not_opened(self, session_id: str) -> None:
        """Somebody has tried to open it: it may be opened by another process."""
        async with self.sessions.reopening:
            if not self.sessions.has(session_id):
                await self._let_go(session_id)
                if not self._audiences.get(session_id):
                    self._forget(session_id)

    def runs_here(self, session_id: str) -> None:
        """Tells those that watch it in other processes."""
        if self.links is not None:
            self.links.tell_all(f"{self.owner} {session_id} {self.process}")

    def runs_elsewhere(self, session_id: str, but: Callable[[str], None] | None = None) -> None:
        """Another process has said that it runs it."""
        if not self.sessions.has(session_id):
            for moved in tuple(self.onlookers.get(session_id, ())):
                if moved != but:
                    moved(session_id)

    # --- who watches ------------------------------------------------------------------------------------------

    async def expected(self, session_id: str) -> Audience:
        """That of a session which may have said something before."""
        place = 0
        if session_id not in self._audiences:
            store = await self._store()
            place = await store.do(store.last, session_id)
        return self.audience(session_id, place)

    async def _page(self, session_id: str, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        store = await self._store()
        return await store.do(store.page, session_id, after, limit)

    def audience(self, session_id: str, place: int = 0) -> Audience:
        """`place`: of the last entry of its log, if the audience is not there yet."""
        if (found := self._audiences.get(session_id)) is None:
            found = self._audiences[session_id] = Audience(
                session_id,
                self._page,
                place=place,
                patience=self.config.question_minutes * MINUTE,
                stop=lambda: self._stop(session_id),
                alone=lambda: self._left_alone(session_id),
                shown=self.metrics.shown,
            )
        return found

    def watched(self, session_id: str) -> Audience | None:
        return self._audiences.get(session_id)

    async def given_up_anywhere(self, session_id: str, identity: Identity) -> bool:
        """As `given_up`, also if another process runs it."""
        if not await self.given_up(session_id):
            return False
        if not (holder := await self.runs_at(session_id)):
            return True
        with suppress(ConnectionClosed, PeerError):
            if self.links is not None:
                answered = await ask_once(await self.links.open(holder), identity, GIVE_UP, {"sessionId": session_id})
                return bool(answered["closed"])
        return False

    async def given_up(self, session_id: str) -> bool:
        """Closes the session if nobody uses it; whether it is closed then."""
        session, audience = self.sessions.get(session_id), self._audiences.get(session_id)
        if session is not None and not session.queue.busy and not audience:
            await self._close(session_id, session)
        await self.sessions.closed(session_id)
        return not self.sessions.has(session_id)

    def room_for_one(self) -> None:
        """Raises InternalError if no more sessions may be open."""
        if len(self.sessions.ids) >= self.config.max_sessions:
            raise InternalError(f"{self.config.max_sessions} sessions are open already; close one first")
        self.sessions.room_for_one()

    def left(self, session_id: str, identity: Identity, watcher: Watcher, *, drove: bool) -> None:
        """The link of one of them was lost."""
        if session_id in self._audiences:
            self._seen[session_id, identity.name] = watcher.place
        plan = watcher.plan
        if drove and (plan.reads_files or plan.writes_files or plan.terminals):
            self._close_soon(session_id, watched=True)  # Its files and terminals have gone.

    def seen(self, session_id: str, identity: Identity) -> int | None:
        return self._seen.get((session_id, identity.name))

    def back(self, session_id: str) -> None:
        """Somebody watches it again."""
        if (timer := self._idle.pop(session_id, None)) is not None:
            timer.cancel()

    def _stop(self, session_id: str) -> None:
        if (session := self.sessions.get(session_id)) is not None:
            session.queue.cancel()

    def _left_alone(self, session_id: str) -> None:
        if not self.sessions.has(session_id):
            self._forget(session_id)
        elif not self.config.alone:
            self._close_soon(session_id)
        else:
            self._close_later(session_id)

    def _close_later(self, session_id: str) -> None:
        wait = self.config.idle_minutes * MINUTE
        self.back(session_id)
        self._idle[session_id] = asyncio.get_running_loop().call_later(wait, self._close_if_idle, session_id)

    def _close_if_idle(self, session_id: str) -> None:
        session = self.sessions.get(session_id)
        if session is not None and session.queue.busy:
            self._close_later(session_id)
        else:
            self._close_soon(session_id)

    def _close_soon(self, session_id: str, *, watched: bool = False) -> None:
        self.sessions.spawn(self._close(session_id, self.sessions.get(session_id), watched=watched))

    async def _close(self, session_id: str, session: Session | None, *, watched: bool = True) -> None:
        """`watched`: also if somebody watches it."""
        if self._audiences.get(session_id) and not watched:  # Somebody has just come.
            return
        if session is not None and self.sessions.get(session_id) is session:  # Not one that was opened since.
            await self.sessions.close(session)
        audience = self._audiences.get(session_id)
        if audience is not None and not len(audience):
            self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        self._audiences.pop(session_id, None)
        self.back(session_id)
        for key in [key for key in self._seen if key[0] == session_id]:
            del self._seen[key]

    async def cancel_all(self) -> None:
        """Ends every turn, and waits until each prompt has its answer. Nothing is begun after that."""
        self.stopping = True
        await self.sessions.cancel_all()
        if self.turns:
            await asyncio.wait(tuple(self.turns))
        await asyncio.sleep(0)  # The answers are queued.

    async def end(self) -> None:
        for timer in (*self._idle.values(), self._overdue):
            if timer is not None:
                timer.cancel()
        await self.sessions.end()
        await self.opening.end()
