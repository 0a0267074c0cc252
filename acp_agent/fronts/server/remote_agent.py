"""The agent that a connection of the server talks to: the sessions are its owner's, and may be other processes'."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import ExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from acp_agent.agent import (
    ARCHIVE,
    AUTH_STATUS,
    FORK,
    OPTIONS,
    PROVIDERS,
    REPLAY,
    STATUS,
    STEERING,
    UNDO_METHODS,
    Agent,
    told_of,
)
from acp_agent.config.model import Settings
from acp_agent.errors import (
    ConnectionClosed,
    InternalError,
    InvalidParams,
    MethodNotFound,
    NotAllowed,
    PeerError,
    ResourceNotFound,
    RpcError,
    StoreError,
)
from acp_agent.fronts.server.audience import SPEAKER, Audience, Watcher
from acp_agent.fronts.server.house import House
from acp_agent.fronts.server.identities import Identity
from acp_agent.fronts.server.relay import BETWEEN, GIVE_UP, LEFT, LOAD_AGAIN, MOVED, Gone, Moved, Relay
from acp_agent.handshake import GATEWAYS
from acp_agent.lazy import load
from acp_agent.loop.opened import Opened
from acp_agent.loop.session import Session
from acp_agent.opening import Opening
from acp_agent.protocol.client import Wire
from acp_agent.protocol.connection import Reply
from acp_agent.protocol.profiles import RenderingPlan, takes_cursors, watches_turns
from acp_agent.safety.deciding.audit import TOKEN
from acp_agent.schema import acp
from acp_agent.store.base import ClientPrompt, SessionRecord
from acp_agent.store.leases import TURN

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine

    from acp_agent.config.load import Config
    from acp_agent.store.session_store import SessionStore

log = logging.getLogger(__name__)

LOOKING = frozenset(
    (
        "initialize",
        "session/list",
        STATUS,
        OPTIONS,
        "session/load",
        "session/resume",
        "session/close",
        *UNDO_METHODS[:2],
    )
)
"""Methods for which a token that may only watch is enough."""
JOINING = ("session/load", "session/resume")
OPENING = (*JOINING, "session/new", FORK)
SESSION = ("sessionId", "cwd", "additionalDirectories", "mcpServers")
"""The params of these with which a session is asked for again."""
ONCE = ("session/prompt", STEERING, *UNDO_METHODS[2:])
"""What is not asked again if the process that was asked has gone: it may have begun."""
CONTINUED = "This session was continued in a terminal or an editor. What was said there is shown now: send it again."
MISSED = "acp_agent.loop.memory.replay:missed"
LEASES = 2
"""So many of them a process is waited for that runs a session and does not answer."""
TRY_AGAIN = 0.2
"""Seconds."""


class RemoteAgent(Agent):
    """A connection's. It says no to what its token may not do. `relayed`: the connection is another process's."""

    def __init__(self, house: House, identity: Identity, opening: Opening, *, relayed: bool = False) -> None:
        super().__init__(opening, sessions=house.sessions)
        self._house = house
        self._identity = identity
        self._relayed = relayed
        self._initialize: object = None
        """The params of that request."""
        self._asked: dict[str, dict[str, Any]] = {}
        """By session, what it was asked for with."""
        self._relays: dict[str, Relay] = {}
        """Those that other processes run."""
        self._reaching: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By session, held while it is looked for."""
        self._turns: set[asyncio.Task[Any]] = set()
        """Those that this connection asked for."""
        self._watching: set[str] = set()
        self._replays = asyncio.Lock()
        """One at a time: a log is in memory meanwhile."""

    # --- what the token may do --------------------------------------------------------------------------------

    async def handle_request(self, method: str, params: Any) -> Any:
        gateway = method == "authenticate" and isinstance(params, dict) and params.get("methodId") in GATEWAYS
        if method in ("logout", AUTH_STATUS, *PROVIDERS) or gateway:
            raise MethodNotFound(f"Method not found: {method} (the server's keys are not the clients')")
        if self._identity.scope != "prompt" and method in self._methods and method not in LOOKING:
            raise NotAllowed(f"This token may not do that (its scope is `{self._identity.scope}`)")
        if self._house.stopping and method != "initialize":
            raise Moved("the process is stopping") if self._relayed else InternalError("the server is stopping")
        if method in BETWEEN and not self._relayed:
            raise MethodNotFound(f"Method not found: {method}")
        if self._house.doubtful:
            await self._house.renew()
        if method == GIVE_UP:
            return {"closed": await self._house.given_up(params["sessionId"])}
        SPEAKER.set(self.connection)
        TOKEN.set(self._identity.name)
        session_id = params.get("sessionId") if isinstance(params, dict) else None
        if not isinstance(session_id, str):
            answered = await super().handle_request(method, params)
        else:
            with self._arrives(session_id) if method in JOINING else nullcontext():
                if (relay := await self._relay(method, session_id, params)) is not None:
                    return await self._far(relay, method, params)
                try:
                    answered = await self._near(method, session_id, params)
                except Moved:
                    if self._relayed or method not in JOINING:
                        raise
                    return await self.handle_request(method, params)
        if method == "initialize":
            self._initialize = params
            for name in ("auth", "providers"):
                answered["agentCapabilities"].pop(name, None)
            answered["authMethods"] = [each for each in answered["authMethods"] if each["id"] not in GATEWAYS]
            answered["_meta"] = {**answered.get("_meta", {}), "scope": self._identity.scope}
        elif method in OPENING:
            made = str(getattr(answered.result, "session_id", session_id))
            self._asked[made] = _asked({**params, "sessionId": made})
        return answered

    async def _near(self, method: str, session_id: str, params: dict[str, Any]) -> Any:
        """Asks this process, which has the session or takes it."""
        try:
            if method in JOINING:
                self._asked.setdefault(session_id, _asked(params))
            return await super().handle_request(method, params)
        except BaseException:
            if session_id not in self._watching:
                self._asked.pop(session_id, None)
            if method in JOINING:
                self.sessions.spawn(self._house.not_opened(session_id))
            raise

    async def handle_notification(self, method: str, params: Any) -> None:
        session_id = str(params.get("sessionId")) if isinstance(params, dict) else ""
        if method == "session/cancel":
            await self._arrived(session_id)
            await asyncio.sleep(0)  # The turn of a prompt that came just before has begun.
        relay = self._relays.get(session_id)
        if self._relayed and method == LEFT and session_id in self._watching:
            self._house.audience(session_id).watcher(self.connection).place = int(params["seq"])
        elif (
            method in BETWEEN or self._identity.scope == "watch" or (relay is None and session_id not in self._watching)
        ):
            log.info("%s of %s is not its own to send", method, self._identity.name)
        elif relay is not None:
            relay.tell(method, params)
        else:
            await super().handle_notification(method, params)

    def cancel_request(self, method: str, params: Any) -> bool:
        session_id = str(params.get("sessionId")) if isinstance(params, dict) else ""
        if method == "session/prompt" and session_id in self._relays:
            return self._relays[session_id].cancel_prompt()
        return session_id in self._watching and super().cancel_request(method, params)

    # --- sessions of other processes --------------------------------------------------------------------------

    async def _relay(self, method: str, session_id: str, params: dict[str, Any]) -> Relay | None:
        """To the process that runs the session, if it is another one. Raises InternalError."""
        if method == FORK:  # Of what is in the store.
            return None
        await self.sessions.closed(session_id)
        if method not in JOINING:
            await self._arrived(session_id)
        if method not in (*JOINING, ARCHIVE, "session/delete"):
            return self._relays.get(session_id)
        async with self._reaching.setdefault(session_id, asyncio.Lock()):
            relay = self._relays.get(session_id)
            if relay is None and not self.sessions.has(session_id) and await self._may_open(session_id):
                relay = await self._reached(session_id, _asked(params))
            return relay

    async def _may_open(self, session_id: str) -> bool:
        """Whether it is in a folder of the token, or there is none of that name. Raises InternalError."""
        if not self._identity.folders:
            return True
        try:
            _, store = await asyncio.to_thread(self._opening.own)
            record = await store.do(store.get, session_id)
        except StoreError as error:
            raise InternalError(str(error)) from error
        return record is None or self._opening.may_see(record)

    async def _reached(self, session_id: str, asked: dict[str, Any]) -> Relay | None:
        """A process that has died is waited for until its lease is over."""
        house = self._house
        deadline = time.monotonic() + LEASES * house.config.lease
        while True:
            runs_at = house.take if self._identity.scope == "prompt" else house.runs_at
            try:
                holder = await runs_at(session_id)
            except StoreError as error:
                raise InternalError(str(error)) from error
            if not holder:
                return None
            if holder.startswith(TURN):
                raise InternalError(
                    f"Session {session_id!r}: an acp-coder on stdio works in it; try again when it is done"
                )
            if self._relayed:
                raise Moved("another process runs the session")
            if time.monotonic() > deadline:
                raise InternalError(f"Session {session_id!r} is run by another process; try again")
            with suppress(ConnectionClosed, PeerError):
                if house.links is None:
                    raise ConnectionClosed("it cannot be reached")
                link = await house.links.open(holder)
                self._leave(session_id)
                relay = self._relays[session_id] = Relay(link, self.connection, session_id, asked, self._lost)
                try:
                    await relay.begin(self._identity, self._initialize)
                    return relay
                except BaseException:
                    self._give_up(relay)
                    raise
            await asyncio.sleep(TRY_AGAIN)

    async def _far(self, relay: Relay, method: str, params: dict[str, Any]) -> Any:
        """Asks the process that runs the session."""
        shown = relay.shown
        try:
            answered = await relay.ask(method, params)
        except (Moved, Gone) as error:
            self._lost(relay)
            if isinstance(error, Gone) and method in ONCE:
                raise
            if isinstance(error, Gone) and method == "session/load" and relay.shown > shown:
                raise Gone(LOAD_AGAIN) from error  # All of it would be shown once more.
            return await self.handle_request(method, params)
        except RpcError:
            if not relay.joined:
                self._give_up(relay)
            raise
        if method in ("session/close", "session/delete", ARCHIVE):
            self._give_up(relay)
        relay.joined = relay.joined or method in JOINING
        return answered

    def _give_up(self, relay: Relay) -> None:
        if self._relays.get(relay.session_id) is relay:
            del self._relays[relay.session_id]
        self.sessions.spawn(relay.close())

    def _lost(self, relay: Relay) -> None:
        """The process that ran the session has gone, or another one runs it."""
        if self._relays.get(relay.session_id) is not relay:
            return
        if relay.joined and not self.connection.closed:
            del self._relays[relay.session_id]
            self._go_on(relay.session_id, relay.asked, relay.close())
        else:
            self._give_up(relay)

    def _taken_over(self, session_id: str) -> None:
        """Another process runs a session that this connection watches."""
        audience = self._house.watched(session_id)
        if self._relayed:
            self.connection.notify(MOVED, {"sessionId": session_id})
        elif audience is not None and audience.has(self.connection) and not self.connection.closed:
            asked, place = self._asked[session_id], audience.watcher(self.connection).place
            self._leave(session_id)
            self._go_on(session_id, asked, asyncio.sleep(0, place))

    def _go_on(self, session_id: str, asked: dict[str, Any], after: Coroutine[Any, Any, int]) -> None:
        """With a session behind that place in its log, wherever it is run now. What is asked of it meanwhile waits."""
        arrives = ExitStack()
        arrives.enter_context(self._arrives(session_id))
        self.sessions.spawn(self._again(session_id, asked, after, arrives))

    async def _again(
        self, session_id: str, asked: dict[str, Any], after: Coroutine[Any, Any, int], arrives: ExitStack
    ) -> None:
        with arrives:
            params = {**asked, "_meta": {"after": await after}}
            try:
                answered = await self.handle_request("session/resume", params)
            except RpcError as error:
                log.warning("session %s: %s", session_id, error)
                self.connection.close()  # It comes back, and asks for it again.
                return
        if isinstance(answered, Reply):
            answered.then()

    async def _session(self, session_id: str) -> Session:
        try:
            session = await super()._session(session_id)
        except ResourceNotFound:
            if self._relayed and await self._house.runs_at(session_id):
                raise Moved("another process runs the session") from None
            raise
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
        if await self._house.take(session_id):  # It has been faster.
            raise Moved(f"Session {session_id!r} is run by another process; try again")

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
        self._house.onlookers.setdefault(audience.session_id, set()).add(self._taken_over)
        self._house.back(audience.session_id)
        answers, turns = self._identity.scope != "watch", watches_turns(self._capabilities)
        cursors = self._identity.scope == "prompt" and takes_cursors(self._capabilities)  # Others may not fork.
        cursors = cursors and self._opening.config().settings.protocol.unstable
        return audience.enter(self.connection, plan, answers=answers, turns=turns, cursors=cursors)

    def _start(self, session: Session) -> None:
        if session.id in self._watching:
            audience = self._house.audience(session.id)
            audience.follow(audience.watcher(self.connection))
        super()._start(session)

    async def session_options(self, request: acp.SessionOptionsRequest) -> acp.SessionOptionsResponse:
        return await asyncio.to_thread(self._opening.options, request, booleans=False)  # As `Client.takes_booleans`.

    async def fork_session(self, request: acp.ForkSessionRequest) -> Reply:
        self._house.room_for_one()
        return await super().fork_session(request)

    async def load_session(self, request: acp.LoadSessionRequest) -> Reply:
        session, watcher, audience = await self._joined(request)
        running = session is not None and session.queue.busy
        if session is not None:
            await session.outbox.flushed()
        _, store = await asyncio.to_thread(self._opening.own)
        async with self._replays:
            entries, place = await store.do(store.so_far, request.session_id)
            running = running or (session is not None and session.queue.busy)
            for update in load(REPLAY)(entries, running=running, cursors=watcher.cursors):
                if update["sessionUpdate"] == "cursor_update":
                    watcher.cursor_ids.add(update["cursorId"])
                audience.send(watcher, update)
                await self.connection.drain()
            del entries
        watcher.place, audience.place = place, max(place, audience.place)
        loaded = acp.LoadSessionResponse(**_told_of(session, place))
        return self._begun(loaded, session, watcher, audience)

    async def resume_session(self, request: acp.ResumeSessionRequest) -> Reply:
        after = (request.meta or {}).get("after", self._house.seen(request.session_id, self._identity))
        if after is not None and (type(after) is not int or after < 0):
            raise InvalidParams("Invalid params: $._meta.after: the `seq` of the last update is expected")
        session, watcher, audience = await self._joined(request)
        watcher.place = audience.place if after is None else after
        if after is not None and watcher.cursors:
            _, store = await asyncio.to_thread(self._opening.own)
            async with self._replays:
                marks = await store.do(store.turns, request.session_id, after)
                entries = await store.do(store.entries, request.session_id)
                watcher.later[:0] = load(MISSED)(entries, [mark for _, mark in marks])
        resumed = acp.ResumeSessionResponse(**_told_of(session, watcher.place))
        return self._begun(resumed, session, watcher, audience)

    def _stored(
        self, request: acp.LoadSessionRequest | acp.ResumeSessionRequest | acp.ForkSessionRequest
    ) -> tuple[SessionRecord, tuple[str, tuple[str, ...]], Config, ClientPrompt | None]:
        found = super()._stored(request)
        if (found[3] is not None or request.config_options) and self._identity.scope != "prompt":
            raise NotAllowed("This token may not give a session a system prompt, or options")
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
        record, (cwd, more), config, told = await asyncio.to_thread(self._stored, request)
        async with self.sessions.reopening:
            await self.sessions.closed(record.id)
            await self._house.caught_up(record.id, self._taken_over)
            audience = await self._house.expected(record.id)
            session = self.sessions.get(record.id)
        if session is not None:
            here, others = record.cwd, len(audience) - audience.has(self.connection)
            if here != cwd and (session.queue.busy or others):
                raise InvalidParams(f"Session {record.id!r} is in use in {here}")
            same_folders = (here, record.additional_directories) == (cwd, more)
            as_asked = same_folders and session.mcp_servers == tuple(request.mcp_servers or ())
            if self._identity.scope == "prompt" and not (as_asked or session.queue.busy or others):
                session = None
        if session is not None and told is not None:
            await session.instruct(told)
        if session is not None:
            await session.choose(request.config_options or (), others=True)
        if session is not None or self._identity.scope != "prompt":
            return session, self._enter(audience, self._plan(config.settings)), audience
        self._house.room_for_one()
        session, _ = await self._reopen(request)
        self._house.runs_here(record.id)
        audience = self._house.audience(record.id)
        return session, audience.watcher(self.connection), audience

    def _begun(self, response: object, session: Session | None, watcher: Watcher, audience: Audience) -> Reply:
        if session is not None and session.outbox.held:
            return Reply(response, lambda: self._start(session))
        return Reply(response, lambda: audience.follow(watcher))

    async def list_sessions(self, request: acp.ListSessionsRequest) -> acp.ListSessionsResponse:
        found = await super().list_sessions(request)
        while not found.sessions and found.next_cursor is not None:
            found = await super().list_sessions(replace(request, cursor=found.next_cursor))
        return found

    async def _open_ids(self, store: SessionStore) -> Collection[str]:
        return {*self.sessions.ids, *await store.do(store.leases.held)}

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
        if not await self._may_open(request.session_id):
            return acp.DeleteSessionResponse()  # As for one that does not exist.
        deleted = await super().delete_session(request)
        self._leave(request.session_id)
        return deleted

    async def _is_open(self, session_id: str) -> bool:
        return await super()._is_open(session_id) or bool(await self._house.runs_at(session_id))

    async def archive_session(self, request: acp.ArchiveSessionRequest) -> acp.ArchiveSessionResponse:
        try:
            return await super().archive_session(request)
        finally:
            if not self.sessions.has(request.session_id):
                self._leave(request.session_id)
                await self._house.not_opened(request.session_id)

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
        metrics, reason, usage = self._house.metrics, "failed", None
        begun = metrics.turn_begins(session.id)
        try:
            answered = await super().prompt(request)
            reason, usage = answered.stop_reason, getattr(answered, "usage", None)
            return answered
        except InternalError as error:
            if not (isinstance(error.data, dict) and error.data.get("continued")):
                raise
            await self._house.caught_up(session.id)
            raise InternalError(CONTINUED, error.data) from error
        finally:
            metrics.turn_ends(session.id, begun, reason, usage)

    def _ended(self, turn: asyncio.Task[Any]) -> None:
        if not turn.cancelled() and (error := turn.exception()) is not None and self.connection.closed:
            log.warning("a turn that nobody waited for any more failed: %s", error)

    async def set_config_option(self, request: acp.SetSessionConfigOptionRequest) -> Any:
        answered = await super().set_config_option(request)
        session = await self._session(request.session_id)
        alone = len(self._house.audience(session.id)) == 1
        return answered if alone else Reply(answered, session.choices.show)

    # --- the end ----------------------------------------------------------------------------------------------

    def hand_over(self) -> None:
        """The sessions have been closed; other processes may run them."""
        for session_id in tuple(self._watching):
            self._taken_over(session_id)

    def cancel_turns(self) -> None:
        """What this connection asked for is not wanted any more."""
        for relay in self._relays.values():
            relay.cancel()
        for turn in self._turns:
            turn.cancel()

    def _leave(self, session_id: str) -> None:
        self._watching.discard(session_id)
        self._asked.pop(session_id, None)
        onlookers = self._house.onlookers.get(session_id, set())
        onlookers.discard(self._taken_over)
        if not onlookers:
            self._house.onlookers.pop(session_id, None)
        if (audience := self._house.watched(session_id)) is not None:
            drove = audience.driver is not None and audience.driver.connection is self.connection
            if (watcher := audience.leave(self.connection)) is not None:
                self._house.left(session_id, self._identity, watcher, drove=drove)

    async def close(self) -> None:
        """The sessions stay."""
        for session_id in tuple(self._watching):
            self._leave(session_id)
        relays = tuple(self._relays.values())
        self._relays.clear()
        for relay in relays:
            await relay.close()


def _asked(params: dict[str, Any]) -> dict[str, Any]:
    return {name: params[name] for name in SESSION if name in params}


def _told_of(session: Session | None, place: int) -> dict[str, Any]:
    """As `told_of`, and how far the client is. `session`: if it is open."""
    told = {} if session is None else told_of(session)
    running = session is not None and session.queue.busy
    more: dict[str, Any] = {"seq": place, "turn": {"state": "running" if running else "idle"}}
    if session is not None and (commands := session.background()):
        more["background"] = commands
    return {**told, "meta": {**(told.get("meta") or {}), **more}}
