"""The sessions of one owner, which outlive the connections to them, and the agent that a connection talks to.

A turn belongs to its session: if the connection that asked for it is lost, it goes on (`server.alone`), and the next
one that loads or resumes the session sees it. Who watches is in the session's `Audience`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from acp_agent.agent import REPLAY, UNDO_METHODS, Agent, told_of
from acp_agent.config.model import Settings
from acp_agent.errors import InternalError, InvalidParams, MethodNotFound, NotAllowed, ResourceNotFound
from acp_agent.fronts.server.audience import SPEAKER, Audience, Watcher
from acp_agent.fronts.server.identities import Identity
from acp_agent.fronts.server.metrics import Metrics
from acp_agent.lazy import load
from acp_agent.loop.opened import Opened
from acp_agent.loop.session import Session
from acp_agent.open_sessions import OpenSessions
from acp_agent.opening import Opening
from acp_agent.protocol.client import Wire
from acp_agent.protocol.connection import Reply
from acp_agent.protocol.profiles import RenderingPlan
from acp_agent.schema import acp
from acp_agent.store.base import SessionRecord

if TYPE_CHECKING:
    from acp_agent.config.load import Config

log = logging.getLogger(__name__)

LOOKING = frozenset(
    ("initialize", "session/list", "session/load", "session/resume", "session/close", *UNDO_METHODS[:2])
)
"""Methods for which a token that may only watch is enough."""
MINUTE = 60.0


class House:
    """`opening`: the owner's store and configuration."""

    def __init__(self, opening: Opening, settings: Settings, metrics: Metrics) -> None:
        self.opening = opening
        self.sessions = OpenSessions(opening)
        self.config = settings.server
        self.metrics = metrics
        self.turns: set[asyncio.Task[Any]] = set()
        """Those that run."""
        self._audiences: dict[str, Audience] = {}
        self._idle: dict[str, asyncio.TimerHandle] = {}
        self._seen: dict[tuple[str, str], int] = {}
        """By session and token: the place of the last update that it was sent before its link was lost."""

    def agent(self, identity: Identity) -> RemoteAgent:
        """For a connection of theirs."""
        return RemoteAgent(self, identity, self.opening.below(identity.folders))

    async def expected(self, session_id: str) -> Audience:
        """That of a session which may have said something before."""
        place = 0
        if session_id not in self._audiences:
            _, store = await asyncio.to_thread(self.opening.own)
            place = await store.do(store.last, session_id)
        return self.audience(session_id, place)

    async def _page(self, session_id: str, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        _, store = await asyncio.to_thread(self.opening.own)
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

    def left(self, session_id: str, identity: Identity, watcher: Watcher, *, drove: bool) -> None:
        """The link of one of them was lost."""
        self._seen[session_id, identity.name] = watcher.place
        plan = watcher.plan
        if drove and (plan.reads_files or plan.writes_files or plan.terminals):
            self.close_soon(session_id)  # Its files and terminals have gone.

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
            self.close_soon(session_id)
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
            self.close_soon(session_id)

    def close_soon(self, session_id: str) -> None:
        self.sessions.spawn(self._close(session_id, self.sessions.get(session_id)))

    async def _close(self, session_id: str, session: Session | None) -> None:
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
        """Ends every turn, and waits until each prompt has its answer."""
        await self.sessions.cancel_all()
        if self.turns:
            await asyncio.wait(tuple(self.turns))
        await asyncio.sleep(0)  # The answers are queued.

    async def end(self) -> None:
        for timer in self._idle.values():
            timer.cancel()
        await self.sessions.end()
        await self.opening.end()


class RemoteAgent(Agent):
    """A connection's. It says no to what its token may not do."""

    def __init__(self, house: House, identity: Identity, opening: Opening) -> None:
        super().__init__(opening, sessions=house.sessions)
        self._house = house
        self._identity = identity
        self._turns: set[asyncio.Task[Any]] = set()
        """Those that this connection asked for."""
        self._watching: set[str] = set()

    # --- what the token may do --------------------------------------------------------------------------------

    async def handle_request(self, method: str, params: Any) -> Any:
        if method == "logout":
            raise MethodNotFound("Method not found: logout (the server's keys are not the clients')")
        if self._identity.scope != "prompt" and method in self._methods and method not in LOOKING:
            raise NotAllowed(f"This token may not do that (its scope is `{self._identity.scope}`)")
        SPEAKER.set(self.connection)
        answered = await super().handle_request(method, params)
        if method == "initialize":
            answered["agentCapabilities"].pop("auth", None)
            answered["_meta"] = {**answered.get("_meta", {}), "scope": self._identity.scope}
        return answered

    async def handle_notification(self, method: str, params: Any) -> None:
        session_id = params.get("sessionId") if isinstance(params, dict) else None
        if self._identity.scope == "watch" or session_id not in self._watching:
            log.info("%s of %s is not its own to send", method, self._identity.name)
            return
        await super().handle_notification(method, params)

    def cancel_request(self, method: str, params: Any) -> bool:
        session_id = params.get("sessionId") if isinstance(params, dict) else None
        return session_id in self._watching and super().cancel_request(method, params)

    async def _session(self, session_id: str) -> Session:
        session = await super()._session(session_id)
        if session_id not in self._watching:
            raise ResourceNotFound(f"Session {session_id!r} is not open; load or resume it first")
        return session

    # --- sessions ---------------------------------------------------------------------------------------------

    async def new_session(self, request: acp.NewSessionRequest) -> Reply:
        self._house.room_for_one()
        return await super().new_session(request)

    def _wire(self, session_id: str) -> Wire:
        return self._house.audience(session_id)

    def _plan(self, settings: Settings) -> RenderingPlan:
        plan = super()._plan(settings)
        # Others may come who draw no terminals, so output is sent as text from the beginning.
        return replace(plan, terminal_output=plan.terminal_output and not plan.far)

    async def _expect(self, session_id: str) -> None:
        await self._house.expected(session_id)

    def _add(self, opened: Opened) -> Session:
        audience = self._house.audience(opened.record.id)
        session = super()._add(opened)
        audience.client = session.client
        audience.driver = self._enter(audience, session.client.plan)
        audience.driver.place = audience.place
        audience.plan_for_all()
        return session

    def _enter(self, audience: Audience, plan: RenderingPlan) -> Watcher:
        self._watching.add(audience.session_id)
        self._house.back(audience.session_id)
        return audience.enter(self.connection, plan, answers=self._identity.scope != "watch")

    def _start(self, session: Session) -> None:
        if session.id in self._watching:
            audience = self._house.audience(session.id)
            audience.follow(audience.watcher(self.connection))
        super()._start(session)

    async def fork_session(self, request: acp.ResumeSessionRequest) -> Reply:
        self._house.room_for_one()
        return await super().fork_session(request)

    async def load_session(self, request: acp.LoadSessionRequest) -> Reply:
        session, watcher, audience = await self._joined(request)
        running = session is not None and session.queue.busy
        if session is not None:
            await session.outbox.flushed()
        _, store = await asyncio.to_thread(self._opening.own)
        entries, place = await store.do(store.so_far, request.session_id)
        running = running or (session is not None and session.queue.busy)
        for update in load(REPLAY)(entries, running=running):
            audience.send(watcher, update)
            await self.connection.drain()
        watcher.place, audience.place = place, max(place, audience.place)
        loaded = acp.LoadSessionResponse(**_told_of(session, place))
        return self._begun(loaded, session, watcher, audience)

    async def resume_session(self, request: acp.ResumeSessionRequest) -> Reply:
        after = (request.meta or {}).get("after", self._house.seen(request.session_id, self._identity))
        if after is not None and (type(after) is not int or after < 0):
            raise InvalidParams("Invalid params: $._meta.after: the `seq` of the last update is expected")
        session, watcher, audience = await self._joined(request)
        watcher.place = audience.place if after is None else after
        resumed = acp.ResumeSessionResponse(**_told_of(session, watcher.place))
        return self._begun(resumed, session, watcher, audience)

    def _stored(
        self, request: acp.LoadSessionRequest | acp.ResumeSessionRequest
    ) -> tuple[SessionRecord, tuple[str, tuple[str, ...]], Config]:
        found = super()._stored(request)
        if not self._opening.may_open(found[0].cwd):
            raise ResourceNotFound(f"Session {request.session_id!r} does not exist")
        return found

    async def _joined(
        self, request: acp.LoadSessionRequest | acp.ResumeSessionRequest
    ) -> tuple[Session | None, Watcher, Audience]:
        """Who may prompt opens the session, unless it is open as it is asked for; the others only look on."""
        with self._arrives(request.session_id):
            return await self._join(request)

    async def _join(
        self, request: acp.LoadSessionRequest | acp.ResumeSessionRequest
    ) -> tuple[Session | None, Watcher, Audience]:
        record, (cwd, more), config = await asyncio.to_thread(self._stored, request)
        async with self.sessions.reopening:
            await self.sessions.closed(record.id)
            audience = await self._house.expected(record.id)
            session = self.sessions.get(record.id)
        if session is not None:
            here, others = str(session.roots.clients[0]), len(audience) - audience.has(self.connection)
            if here != cwd and (session.queue.busy or others):
                raise InvalidParams(f"Session {record.id!r} is in use in {here}")
            same_folders = (here, record.additional_directories) == (cwd, more)
            as_asked = same_folders and session.mcp_servers == tuple(request.mcp_servers or ())
            if self._identity.scope == "prompt" and not (as_asked or session.queue.busy or others):
                session = None
        if session is not None or self._identity.scope != "prompt":
            return session, self._enter(audience, self._plan(config.settings)), audience
        self._house.room_for_one()
        session, _ = await self._reopen(request)
        audience = self._house.audience(record.id)
        return session, audience.watcher(self.connection), audience

    def _begun(self, response: object, session: Session | None, watcher: Watcher, audience: Audience) -> Reply:
        if session is not None and session.outbox.held:
            return Reply(response, lambda: self._start(session))
        return Reply(response, lambda: audience.follow(watcher))

    async def list_sessions(self, request: acp.ListSessionsRequest) -> acp.ListSessionsResponse:
        found = await super().list_sessions(request)
        while self._identity.folders:
            shown = [each for each in found.sessions if self._opening.may_open(each.cwd)]
            if shown or found.next_cursor is None:
                return acp.ListSessionsResponse(sessions=shown, next_cursor=found.next_cursor)
            found = await super().list_sessions(acp.ListSessionsRequest(cwd=request.cwd, cursor=found.next_cursor))
        return found

    async def close_session(self, request: acp.CloseSessionRequest) -> acp.CloseSessionResponse:
        others = request.session_id in self._watching and len(self._house.audience(request.session_id)) > 1
        if others or self._identity.scope != "prompt":  # Others go on with it.
            self._leave(request.session_id)
            return acp.CloseSessionResponse()
        closed = await super().close_session(request)
        if not self.sessions.has(request.session_id):  # It may be open again.
            self._leave(request.session_id)
        return closed

    async def delete_session(self, request: acp.DeleteSessionRequest) -> acp.DeleteSessionResponse:
        _, store = await asyncio.to_thread(self._opening.own)
        record = await store.do(store.get, request.session_id)
        if record is not None and not self._opening.may_open(record.cwd):
            return acp.DeleteSessionResponse()  # As for one that does not exist.
        deleted = await super().delete_session(request)
        self._leave(request.session_id)
        return deleted

    # --- turns ------------------------------------------------------------------------------------------------

    async def prompt(self, request: acp.PromptRequest) -> acp.PromptResponse:
        session = await self._session(request.session_id)
        turn = asyncio.create_task(self._turn(session, request))
        for turns in (self._turns, self._house.turns):
            turns.add(turn)
            turn.add_done_callback(turns.discard)
        turn.add_done_callback(self._ended)
        try:
            return await asyncio.shield(turn)
        except asyncio.CancelledError:
            if not self.connection.closed:  # `$/cancel_request`, not a lost link.
                turn.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.wait((turn,))
            raise

    async def _turn(self, session: Session, request: acp.PromptRequest) -> acp.PromptResponse:
        audience = self._house.audience(session.id)
        audience.tell_others({"turn": {"state": "running"}})
        metrics, reason, usage = self._house.metrics, "failed", None
        begun = metrics.turn_begins(session.id)
        try:
            answered = await super().prompt(request)
            reason, usage = answered.stop_reason, getattr(answered, "usage", None)
            return answered
        finally:
            metrics.turn_ends(session.id, begun, reason, usage)
            audience.tell_others({"turn": {"state": "idle", "stopReason": reason}})

    def _ended(self, turn: asyncio.Task[Any]) -> None:
        if not turn.cancelled() and (error := turn.exception()) is not None and self.connection.closed:
            log.warning("a turn that nobody waited for any more failed: %s", error)

    async def set_config_option(self, request: acp.SetSessionConfigOptionRequest) -> Any:
        answered = await super().set_config_option(request)
        session = await self._session(request.session_id)
        alone = len(self._house.audience(session.id)) == 1
        return answered if alone else Reply(answered, session.choices.show)

    # --- the end ----------------------------------------------------------------------------------------------

    def cancel_turns(self) -> None:
        """What this connection asked for is not wanted any more."""
        for turn in self._turns:
            turn.cancel()

    def _leave(self, session_id: str) -> None:
        self._watching.discard(session_id)
        if (audience := self._house.watched(session_id)) is not None:
            drove = audience.driver is not None and audience.driver.connection is self.connection
            if (watcher := audience.leave(self.connection)) is not None:
                self._house.left(session_id, self._identity, watcher, drove=drove)

    async def close(self) -> None:
        """The sessions stay."""
        for session_id in tuple(self._watching):
            self._leave(session_id)


def _told_of(session: Session | None, place: int) -> dict[str, Any]:
    """As `told_of`, and how far the client is. `session`: if it is open."""
    told = {} if session is None else told_of(session)
    running = session is not None and session.queue.busy
    more = {"seq": place, "turn": {"state": "running" if running else "idle"}}
    return {**told, "meta": {**(told.get("meta") or {}), **more}}
