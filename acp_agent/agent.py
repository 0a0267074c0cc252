"""ACP's agent methods.

Each finds the session, calls it, answers. Requests are decoded here and results are ACP's own Structs. What must follow
a response (a session's first updates) is passed to the connection as `Reply.then`: no update precedes the response that
tells the client the session's id.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from acp_agent import tracing
from acp_agent.config.sources import merge
from acp_agent.config.xdg import state_dir
from acp_agent.disk import Folder
from acp_agent.errors import (
    ConfigError,
    InternalError,
    InvalidParams,
    MethodNotFound,
    ResourceNotFound,
    RpcError,
    StoreError,
    WorktreeError,
)
from acp_agent.handshake import LSP_NOTIFICATIONS, answer_initialize, asks_v2
from acp_agent.lazy import load
from acp_agent.limits.decoding import read_loose_json
from acp_agent.loop.opened import Opened
from acp_agent.loop.session import Session, says_something
from acp_agent.loop.session_state import one_title
from acp_agent.open_sessions import OpenSessions
from acp_agent.opening import Opening, chosen, normal, rules
from acp_agent.protocol.client import MARK, Client, Wire
from acp_agent.protocol.connection import Connection, Dialect, Reply
from acp_agent.protocol.profiles import RenderingPlan, rendering_plan, takes_booleans, watches_turns
from acp_agent.safety.folders.paths import real_path
from acp_agent.schema import acp
from acp_agent.schema.decode import decode_params
from acp_agent.store.base import ClientPrompt, ListedSession, LogEntry, SessionRecord

if TYPE_CHECKING:
    from acp_agent.config.load import Config
    from acp_agent.config.model import Settings
    from acp_agent.loop.shell.worktrees import Hold
    from acp_agent.store.session_store import SessionStore

log = logging.getLogger(__name__)

STEERING = "_session/steering"
FORK = "session/fork"
CONTENTS = "acp_agent.undo.contents:Contents"
PUT_AS_BEFORE = "acp_agent.undo.elsewhere:put_as_before"
FORK_WISHED = "acp_agent.loop.memory.forking:fork_wished"
MAKE_WORKTREE = "acp_agent.loop.shell.worktrees:make"
SHAPES = {STEERING: "session/prompt"}
"""Methods outside the schema -> the one whose params they have."""
UNDO_METHODS = ("_session/checkpoints", "_session/changes", "_session/undo", "_session/redo")
UNDO_REQUEST = "acp_agent.schema.undo_methods:read_request"
UNDO_ANSWER = "acp_agent.loop.undo.undo_commands:answer"
SET_MODEL = "session/set_model"
"""Of old schemas: answered, not advertised."""
AUTH_STATUS = "auth/status"
PROVIDERS = ("providers/list", "providers/set", "providers/disable")
TITLE, STATUS, ARCHIVE, UNARCHIVE = "session/set_title", "session/status", "session/archive", "session/unarchive"
OPTIONS = "session/options"
UNSTABLE = (AUTH_STATUS, *PROVIDERS, TITLE, STATUS, ARCHIVE, UNARCHIVE, OPTIONS)
"""Behind `protocol.unstable`."""
UNSTABLE_FIELDS = {
    "session/list": frozenset(("archived",)),
    **dict.fromkeys(("session/new", "session/load", "session/resume"), frozenset(("configOptions",))),
    FORK: frozenset(("configOptions", "cursorId")),
}
"""What drafts add to other requests: ignored while it is off."""
ARCHIVED = {"exclude": False, "include": None, "only": True}
"""Which sessions `session/list` has."""
V2 = "acp_agent.protocol.v2.dialect:V2"
WITH_CHILDREN = "acp_agent.loop.calls.sub_agents:with_children"
COMMANDS = "acp_agent.loop.prompts.menu:own_commands"
CANCEL_CALL = "_session/cancel_call"
RAW = (*UNDO_METHODS, SET_MODEL, CANCEL_CALL)
"""Methods whose params are read by who serves them."""
LSP_NOTE = "acp_agent.schema.lsp_types:decode_notification"


class PromptResponse(acp.PromptResponse, kw_only=True, frozen=True):
    """With the field `usage` of ACP's draft, which benchmark runners read."""

    usage: dict[str, int] | None = None


class Agent:
    """One connection's agent: the `Handler` of its `Connection`, which `attach` sets.

    `initialize_params` are those of a request that was answered before this object existed. `sessions`: those that are
    open, if they are not this connection's alone.
    """

    def __init__(
        self, opening: Opening | None = None, *, initialize_params: object = None, sessions: OpenSessions | None = None
    ) -> None:
        self._opening = opening or Opening()
        self.sessions = sessions or OpenSessions(self._opening)
        self._in_order = asyncio.Lock()
        """New sessions are made, and lists of them, in the order in which they are asked for."""
        self._arriving: list[tuple[str, asyncio.Event]] = []
        """Sessions that are being opened again; what a client asks of them meanwhile waits."""
        self._connection: Connection | None = None
        self._capabilities = acp.ClientCapabilities()
        self._asked_for = False
        """Whether anything but `initialize` was asked."""
        self._told_state = ""
        """By `auth/status`."""
        self._client_info: acp.Implementation | None = None
        self._methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "authenticate": self.authenticate,
            "logout": self.logout,
            AUTH_STATUS: self.auth_status,
            **dict(zip(PROVIDERS, (self.list_providers, self.set_provider, self.disable_provider), strict=True)),
            "session/new": self.new_session,
            "session/load": self.load_session,
            "session/resume": self.resume_session,
            FORK: self.fork_session,
            "session/list": self.list_sessions,
            "session/close": self.close_session,
            "session/delete": self.delete_session,
            TITLE: self.set_title,
            STATUS: self.session_status,
            ARCHIVE: self.archive_session,
            UNARCHIVE: self.unarchive_session,
            OPTIONS: self.session_options,
            "session/prompt": self.prompt,
            STEERING: self.steer,
            **{method: partial(self.undo, method) for method in UNDO_METHODS},
            "session/set_mode": self.set_mode,
            SET_MODEL: self.set_model,
            CANCEL_CALL: self.cancel_call,
            "session/set_config_option": self.set_config_option,
        }
        if initialize_params is not None:
            self._take_client(initialize_params)

    def attach(self, connection: Connection) -> None:
        self._connection = connection
        connection.choose_dialect = self._dialect

    def _dialect(self, params: Any) -> Dialect | None:
        """What stands between a client of v2 and this."""
        try:
            another = not self._asked_for and asks_v2(params) and self._opening.config().settings.protocol.v2
        except ConfigError:  # Said in the answer.
            return None
        return load(V2)(self, self.connection, load(COMMANDS)()) if another else None

    @property
    def connection(self) -> Connection:
        assert self._connection is not None, "attach() comes before the first request"
        return self._connection

    # --- the connection's handler -----------------------------------------------------------------------------

    async def handle_request(self, method: str, params: Any) -> Any:
        if method == "initialize":
            welcome = answer_initialize(params, merge(list(self._opening.config().layers)))
            self._take_client(params)
            return welcome
        self._asked_for = True
        serve = self._methods.get(method)
        if serve is None:
            raise MethodNotFound(f"Method not found: {method}")
        try:
            if method in UNSTABLE and not self._opening.config().settings.protocol.unstable:
                raise MethodNotFound(f"Method not found: {method} (protocol.unstable is off)")
            params = without_drafts(method, params, self._opening)
            if method in RAW:
                return await serve(params)
            return await serve(decode_params(SHAPES.get(method, method), params, "agent"))
        except RpcError:
            raise
        except (ConfigError, StoreError) as error:
            raise InternalError(str(error)) from error

    async def handle_notification(self, method: str, params: Any) -> None:
        if method in LSP_NOTIFICATIONS:
            self._note_diagnostics(method, params)
        if method != "session/cancel":
            return
        try:
            cancel: acp.CancelNotification = decode_params(method, params, "agent")
        except InvalidParams as error:
            log.warning("session/cancel: %s", error)
            return
        if (session := self.sessions.get(cancel.session_id)) is not None:
            session.queue.cancel()
        elif (above := self.sessions.above(cancel.session_id)) is not None and above[0].client.shows_children:
            above[0].queue.cancel_call(above[1])

    def _note_diagnostics(self, method: str, params: Any) -> None:
        try:
            note = load(LSP_NOTE)(method, params)
        except InvalidParams as error:
            log.warning("%s: %s", method, error)
            return
        if (session := self.sessions.get(note.session_id)) is not None:
            session.published.take(note)

    def cancel_request(self, method: str, params: Any) -> bool:
        if method != "session/prompt" or not isinstance(params, dict):
            return False
        session = self.sessions.get(str(params.get("sessionId")))
        if session is None or len(session.queue) != 1:
            return False  # Of several queued prompts, only the named one is cancelled.
        session.queue.cancel()
        return True

    def cancel_turns(self) -> None:
        """The client is gone: every turn ends as with `session/cancel`."""
        self.sessions.cancel_turns()

    def _take_client(self, params: object) -> None:
        request: acp.InitializeRequest = decode_params("initialize", params, "agent")
        self._capabilities = request.client_capabilities
        self._client_info = request.client_info

    # --- authentication ---------------------------------------------------------------------------------------

    async def authenticate(self, request: acp.AuthenticateRequest) -> acp.AuthenticateResponse:
        self._opening.login.authenticate(request.method_id, self._opening.config, request.meta)
        self._tell_state(self._opening.config())
        return acp.AuthenticateResponse()

    async def logout(self, request: acp.LogoutRequest) -> acp.LogoutResponse:
        self._opening.login.logout(self._opening.config())
        self._tell_state(self._opening.config())
        return acp.LogoutResponse()

    async def auth_status(self, request: acp.AuthStatusRequest) -> acp.AuthStatusResponse:
        """Of ACP's draft. Who has asked is told of changes."""
        self._told_state = self._opening.login.state(self._opening.config())
        return acp.AuthStatusResponse(state=self._told_state)

    async def list_providers(self, request: acp.ListProvidersRequest) -> acp.ListProvidersResponse:
        """`providers/*` of ACP's draft: sessions that are open keep what they have."""
        return self._opening.login.client().listed(self._opening.config())

    async def set_provider(self, request: acp.SetProviderRequest) -> acp.SetProviderResponse:
        self._opening.login.client().set(request)
        self._tell_state(self._opening.config())
        return acp.SetProviderResponse()

    async def disable_provider(self, request: acp.DisableProviderRequest) -> acp.DisableProviderResponse:
        self._opening.login.client().disable(request.provider_id)
        self._tell_state(self._opening.config())
        return acp.DisableProviderResponse()

    def _tell_state(self, config: Config) -> None:
        if self._told_state and (state := self._opening.login.state(config)) != self._told_state:
            self._told_state = state
            self.connection.notify("auth/status_update", acp.AuthStatusUpdateNotification(state=state))

    # --- sessions ---------------------------------------------------------------------------------------------

    async def new_session(self, request: acp.NewSessionRequest) -> Reply:
        self.sessions.room_for_one()
        async with self._in_order:
            cwd, _ = self._opening.folders(request.cwd, request.additional_directories)
            config = await asyncio.to_thread(self._opening.config, cwd)
            if not self._opening.isolates(request.meta, config):
                return await self._made(request)
        hold = await self._isolated(request, config)  # That takes a while: others do not wait for it.
        with _session_in(hold):
            return await self._made(replace(request, cwd=hold.worktree.path))

    async def _made(self, request: acp.NewSessionRequest) -> Reply:
        new = await asyncio.to_thread(self._opening.new, request)
        await self._expect(new.record.id)
        session = self._add(new)
        await session.choose(request.config_options or ())
        return Reply(made_of(session), lambda: self._start(session))

    async def _isolated(self, request: acp.NewSessionRequest | acp.ForkSessionRequest, config: Config) -> Hold:
        """Makes a worktree for a session. Raises InvalidParams."""
        if request.additional_directories:
            raise InvalidParams("Invalid params: $.additionalDirectories: not with a worktree, which has one folder")
        state, include = Path(state_dir(self._opening.environ)), config.settings.worktree.include
        folder = Folder(real_path(Path(request.cwd)))
        try:
            made: Hold = await asyncio.to_thread(load(MAKE_WORKTREE), folder, state, include)
        except (WorktreeError, OSError) as error:
            raise InvalidParams(f"No worktree was made: {error}") from error
        return made

    async def load_session(self, request: acp.LoadSessionRequest) -> Reply:
        session, entries = await self._reopen(request, reads=True)
        async for session_id, above, update in _replayed(session, entries):
            if session.queue.closed:
                raise InvalidParams(f"Session {session.id!r} was closed or reloaded in the meantime")
            if session_id == session.id:
                session.client.update(update)
            else:
                session.client.update_below(session_id, update, above)
            await session.outbox.drain()
        return Reply(acp.LoadSessionResponse(**told_of(session)), lambda: self._start(session))

    async def resume_session(self, request: acp.ResumeSessionRequest) -> Reply:
        session, _ = await self._reopen(request)
        return Reply(acp.ResumeSessionResponse(**told_of(session)), lambda: self._start(session))

    async def fork_session(self, request: acp.ForkSessionRequest) -> Reply:
        """ACP's draft: its answer is that of `session/new`."""
        self.sessions.room_for_one()
        source, (cwd, more), config, told = await asyncio.to_thread(self._stored, request)
        store = self._opening.store(config)
        hold = await self._isolated(request, config) if self._opening.isolates(request.meta, config) else None
        with nullcontext() if hold is None else _session_in(hold):
            forked = await load(FORK_WISHED)(store, _told(source, told), request, self.sessions.get(source.id))
            if hold is not None:
                prompt = forked.turns + 1 if forked.turns < source.turns else 0
                top, folder = hold.worktree.top, hold.worktree.path
                contents = load(CONTENTS)(Path(state_dir(self._opening.environ)) / "undo" / "contents")
                for words in await load(PUT_AS_BEFORE)(store.operations, source.id, prompt, top, folder, contents):
                    log.warning("fork: %s", words)
            record = await self._moved(forked, cwd if hold is None else hold.worktree.path, more)
            config = chosen(config, record, self._opening.environ)
            await self._expect(record.id)
            session = self._add(self._opening.opened(record, config, request.mcp_servers))
            await session.choose(request.config_options or ())
        return Reply(made_of(session), lambda: self._start(session))

    def _stored(
        self, request: acp.LoadSessionRequest | acp.ResumeSessionRequest | acp.ForkSessionRequest
    ) -> tuple[SessionRecord, tuple[str, tuple[str, ...]], Config, ClientPrompt | None]:
        """The session that a request names, and the folders, the configuration and the client's system prompt to open
        it with; none: its own one."""
        cwd, more = self._opening.folders(request.cwd, request.additional_directories)
        config = self._opening.config(cwd)
        record = self._opening.stored(config, request.session_id)
        if (request.meta or {}).get("login") != "later":
            self._opening.login.need(config)
        return record, (cwd, more), config, self._opening.client_prompt(request, config)

    async def _reopen(
        self, request: acp.LoadSessionRequest | acp.ResumeSessionRequest, *, reads: bool = False
    ) -> tuple[Session, list[LogEntry]]:
        """The session and, if it `reads`, its log, as long as nobody else has opened it."""
        with self._arrives(request.session_id):
            record, (cwd, more), config, told = await asyncio.to_thread(self._stored, request)
            async with self.sessions.reopening:
                session, log_ = await self._opened_again(
                    record, cwd, more, config, request.mcp_servers, told, reads=reads
                )
                await session.choose(request.config_options or ())
                return session, log_

    @contextmanager
    def _arrives(self, session_id: str) -> Iterator[None]:
        """It is being opened again."""
        arriving = (session_id, asyncio.Event())
        self._arriving.append(arriving)
        try:
            yield
        finally:
            self._arriving.remove(arriving)
            arriving[1].set()

    async def _opened_again(
        self,
        record: SessionRecord,
        cwd: str,
        more: tuple[str, ...],
        config: Config,
        mcp_servers: Sequence[acp.McpServer] | None,
        told: ClientPrompt | None,
        *,
        reads: bool,
    ) -> tuple[Session, list[LogEntry]]:
        await self.sessions.closed(record.id)
        open_ = self.sessions.get(record.id)
        if open_ is not None and open_.queue.busy:
            raise InvalidParams(f"Session {record.id!r} is open and a turn is running; cancel it first")
        hold = self.sessions.hold(cwd)  # Until it is open again.
        try:
            if open_ is not None:
                await self.sessions.close(open_)
            self.sessions.room_for_one()
            record = await self._moved(record, cwd, more)
            config = chosen(config, record, self._opening.environ)
            store = self._opening.store(config)
            entries = await store.do(store.entries, record.id) if reads else []
            opened = self._opening.opened(_told(record, told), config, mcp_servers)
            if told is not None:
                await store.do(store.instruct, record.id, told)
            await self._expect(record.id)
            return self._add(opened), entries
        finally:
            if hold is not None:
                hold.release()

    async def _expect(self, session_id: str) -> None:
        """The session is about to be added."""

    async def _moved(self, record: SessionRecord, cwd: str, more: tuple[str, ...]) -> SessionRecord:
        """Returns the session with the folders it is opened with now: each load and resume states them again."""
        if (cwd, more) != (record.cwd, record.additional_directories):
            real = record.real if cwd == record.cwd else str(real_path(Path(cwd)))
            _, store = await asyncio.to_thread(self._opening.own)
            await store.do(store.change, record.id, cwd=cwd, additional_directories=more, real=real)
            record = replace(record, real=real)
        return replace(record, cwd=cwd, additional_directories=more)

    def adopt(self, opened: Opened) -> None:
        """Goes on with a session whose `session/new` was answered before this object existed."""
        self._asked_for = True
        self._start(self._add(opened))

    def _add(self, opened: Opened) -> Session:
        settings = opened.config.settings
        client = Client(
            self._wire(opened.record.id),
            opened.record.id,
            self._capabilities,
            timeout=settings.limits.client_timeout,
            lsp_timeout=settings.lsp.request_timeout if settings.lsp.enabled else None,
            plan=self._plan(settings),
            unstable=settings.protocol.unstable,
        )
        return self.sessions.add(opened, client)

    def _wire(self, session_id: str) -> Wire:
        """What leads to the clients of a session."""
        return self.connection

    def _plan(self, settings: Settings) -> RenderingPlan:
        return rendering_plan(self._capabilities, self._client_info, settings.clients, far=settings.agent.far)

    def _start(self, session: Session) -> None:
        """Does what follows the response that names the session."""
        self.sessions.start(session)

    async def list_sessions(self, request: acp.ListSessionsRequest) -> acp.ListSessionsResponse:
        if request.cwd is not None and not Path(request.cwd).is_absolute():
            raise InvalidParams("Invalid params: $.cwd: must be an absolute path")
        async with self._in_order:
            config, store = await asyncio.to_thread(self._opening.own)
        page, unstable = config.settings.limits.list_page, config.settings.protocol.unstable
        if (which := "exclude" if request.archived is None else request.archived) not in ARCHIVED:
            raise InvalidParams(f"Invalid params: $.archived: {which!r} is not known, only {', '.join(ARCHIVED)}")
        found = await store.do(
            store.sessions,
            cwd=None if request.cwd is None else normal(request.cwd),
            before=read_cursor(request.cursor),
            limit=page + 1,
            include=await self._open_ids(store),
            archived=ARCHIVED[which] if unstable else None,
        )
        shown = found[:page]
        visible = [record for record in shown if self._opening.may_see(record)]
        return acp.ListSessionsResponse(
            sessions=[
                acp.SessionInfo(
                    session_id=record.id,
                    cwd=record.cwd,
                    additional_directories=list(record.additional_directories),
                    title=record.title,
                    updated_at=record.updated_at,
                    archived=record.archived if unstable else None,
                )
                for record in visible
            ],
            next_cursor=cursor_of(shown[-1]) if len(found) > page else None,
        )

    async def _open_ids(self, store: SessionStore) -> Collection[str]:
        """Sessions that are listed though they have no turn."""
        return self.sessions.ids

    async def close_session(self, request: acp.CloseSessionRequest) -> acp.CloseSessionResponse:
        told = await self.sessions.close(await self._session(request.session_id))
        return acp.CloseSessionResponse(meta={"worktree": told} if told else None)

    async def delete_session(self, request: acp.DeleteSessionRequest) -> acp.DeleteSessionResponse:
        if (session := self.sessions.get(request.session_id)) is not None:
            await self.sessions.close(session)
        await self.sessions.closed(request.session_id)
        _, store = await asyncio.to_thread(self._opening.own)
        await store.do(store.delete, request.session_id)
        return acp.DeleteSessionResponse()

    async def set_title(self, request: acp.SetSessionTitleRequest) -> acp.SetSessionTitleResponse:
        """Of ACP's draft, as the next three."""
        if not (title := one_title(request.title)):
            raise InvalidParams("Invalid params: $.title: it has no text")
        store = await self._holding(request.session_id)
        if (session := self.sessions.get(request.session_id)) is None:
            await store.do(store.change, request.session_id, title=title)
        else:
            await session.set_title(title)
            title = session.title or title
        return acp.SetSessionTitleResponse(title=title)

    async def session_status(self, request: acp.SessionStatusRequest) -> acp.SessionStatusResponse:
        await self._holding(request.session_id)
        return acp.SessionStatusResponse(status="open" if await self._is_open(request.session_id) else "saved")

    async def _is_open(self, session_id: str) -> bool:
        return self.sessions.get(session_id) is not None or self.sessions.above(session_id) is not None

    async def archive_session(self, request: acp.ArchiveSessionRequest) -> acp.ArchiveSessionResponse:
        store = await self._holding(request.session_id)
        if (session := self.sessions.get(request.session_id)) is not None:
            await self.sessions.close(session)
        await self.sessions.closed(request.session_id)
        await store.do(store.archive, request.session_id, archived=True)
        return acp.ArchiveSessionResponse()

    async def unarchive_session(self, request: acp.UnarchiveSessionRequest) -> acp.UnarchiveSessionResponse:
        store = await self._holding(request.session_id)
        await store.do(store.archive, request.session_id, archived=False)
        return acp.UnarchiveSessionResponse()

    async def session_options(self, request: acp.SessionOptionsRequest) -> acp.SessionOptionsResponse:
        return await asyncio.to_thread(self._opening.options, request, booleans=takes_booleans(self._capabilities))

    async def _holding(self, session_id: str) -> SessionStore:
        """The store, which has that session. Raises ResourceNotFound."""
        await self._arrived(session_id)
        _, store = await asyncio.to_thread(self._opening.own)
        record = await store.do(store.get, session_id)
        if record is None or not self._opening.may_see(record):
            raise ResourceNotFound(f"Session {session_id!r} does not exist", {"sessionId": session_id})
        return store

    # --- turns and choices ------------------------------------------------------------------------------------

    async def prompt(self, request: acp.PromptRequest) -> acp.PromptResponse:
        session = await self._session(request.session_id)
        meta = request.meta or {}
        key = meta.get("idempotencyKey") if watches_turns(self._capabilities) else None
        if key is not None:
            with session.queue.cancellable() as scope:
                if known := await session.keys.message(key, request.prompt):
                    await session.outbox.flushed()
                    return PromptResponse(stop_reason="end_turn", meta={"messageId": known})
            if scope.cancel_called:
                session.keys.ended(key)
                return PromptResponse(stop_reason="cancelled")
        before = session.spent
        MARK.set(str(meta.get("prompt", "")))
        try:
            with tracing.continued(meta):
                reason = await session.prompt(request.prompt)
        finally:
            if key is not None:
                session.keys.ended(key)
        used = session.used_since(before)
        return PromptResponse(stop_reason=reason, usage=used.get("usage"), meta=used or None)

    async def steer(self, request: acp.PromptRequest) -> dict[str, str]:
        """`_session/steering`, a convention of adapters: what the user writes while a turn runs joins it. With
        `_meta.steering.untilJoined` the answer comes when it has joined, or was given back by a cancel (`returned`)."""
        session = await self._session(request.session_id)
        if not says_something(request.prompt):
            raise InvalidParams("Invalid params: $.prompt: nothing was said")
        given = (request.meta or {}).get("steering")
        wished = given if isinstance(given, dict) else {}
        if not (reason := await session.steer(request.prompt, until_joined=wished.get("untilJoined") is True)):
            return {"outcome": "injected"}
        if reason == "cancelled":
            return {"outcome": "returned", "reason": reason}
        ready = wished.get("idleBehavior") == "promptRequired"
        return {"outcome": "promptRequired" if ready else "failed", "reason": reason}

    async def undo(self, method: str, params: Any) -> Any:
        """The extension methods of docs/internals/undo.md: `params` are those of one of them."""
        request = load(UNDO_REQUEST)(method, params)
        session = await self._session(request.session_id)
        parts = await session.parts()
        changes = method in UNDO_METHODS[2:] and not request.dry_run
        async with session.between_turns() if changes else nullcontext():
            return await load(UNDO_ANSWER)(parts.commands.undoing, request)

    async def set_mode(self, request: acp.SetSessionModeRequest) -> Reply:
        session = await self._session(request.session_id)
        await session.choices.set_mode(request.mode_id, tell=False)
        return Reply(acp.SetSessionModeResponse(), session.choices.show)

    async def set_model(self, params: Any) -> Reply:
        """As the option `model`."""
        given = params if isinstance(params, dict) else {}
        session_id, model = given.get("sessionId"), given.get("modelId")
        if not isinstance(session_id, str) or not isinstance(model, str):
            raise InvalidParams("Invalid params: $: an object with the strings `sessionId` and `modelId` is expected")
        session = await self._session(session_id)
        await session.name_model(model)
        return Reply({}, session.choices.show)

    async def cancel_call(self, params: Any) -> dict[str, Any]:
        """`_session/cancel_call {sessionId, toolCallId}`: ends one call, or the command that it left running."""
        given = params if isinstance(params, dict) else {}
        session_id, call_id = given.get("sessionId"), given.get("toolCallId")
        if not isinstance(session_id, str) or not isinstance(call_id, str):
            raise InvalidParams(
                "Invalid params: $: an object with the strings `sessionId` and `toolCallId` is expected"
            )
        above = self.sessions.above(session_id)
        session = await self._session(session_id) if above is None else above[0]
        if not await session.cancel_call(call_id):
            raise InvalidParams(f"Invalid params: $.toolCallId: no call {call_id!r} runs")
        return {}

    async def set_config_option(self, request: acp.SetSessionConfigOptionRequest) -> acp.SetSessionConfigOptionResponse:
        session = await self._session(request.session_id)
        if request.config_id == "place":
            async with session.between_turns():
                await session.move(str(request.value))
            self.sessions.warm(session)
        elif request.config_id == "model":
            await session.name_model(request.value)
        else:
            await session.choices.set_option(request.config_id, request.value)
        return acp.SetSessionConfigOptionResponse(config_options=session.choices.options())

    async def _arrived(self, session_id: str) -> None:
        """Waits for a load of it that came before."""
        for arriving, arrived in tuple(self._arriving):
            if arriving == session_id:
                await arrived.wait()

    async def _session(self, session_id: str) -> Session:
        await self._arrived(session_id)
        session = self.sessions.get(session_id)
        if session is None:
            raise ResourceNotFound(f"Session {session_id!r} is not open; load or resume it first")
        return session

    # --- the end ----------------------------------------------------------------------------------------------

    async def cancel_all(self) -> None:
        """Ends every turn and waits until each prompt has its answer."""
        await self.sessions.cancel_all()

    async def close(self) -> None:
        """Frees everything; no process started here is left."""
        await self.sessions.end()
        await self._opening.end()


REPLAY = "acp_agent.loop.memory.replay:replayed_updates"


async def _replayed(session: Session, entries: Sequence[LogEntry]) -> AsyncIterator[tuple[str, str, Any]]:
    """The stored conversation, with its sub-agents' where the client shows them: as `with_children` has it."""
    cursors = session.client.shows_cursors
    if session.client.shows_children:
        async for shown in load(WITH_CHILDREN)(session.store, session.id, entries, cursors=cursors):
            yield shown
        return
    for update in load(REPLAY)(entries, cursors=cursors):
        yield session.id, session.id, update


@contextmanager
def _session_in(hold: Hold) -> Iterator[None]:
    """While a session is opened in a worktree that was made for it; if that fails, the worktree goes too."""
    try:
        yield
    except BaseException:
        hold.end()
        raise
    hold.release()


def _told(record: SessionRecord, told: ClientPrompt | None) -> SessionRecord:
    """The session with this system prompt of its client, if one is stated."""
    return record if told is None else replace(record, client_prompt=told)


def made_of(session: Session) -> acp.NewSessionResponse:
    return acp.NewSessionResponse(session_id=session.id, **told_of(session))


def told_of(session: Session) -> dict[str, Any]:
    """What every response that opens a session again says of it."""
    return {
        "modes": session.choices.mode_state(),
        "config_options": session.choices.options(),
        "meta": rules(session.config, session.roots),
    }


def without_drafts(method: str, params: Any, opening: Opening) -> Any:
    """The params without what a draft adds, if drafts are not offered."""
    added = UNSTABLE_FIELDS.get(method, frozenset())
    if not isinstance(params, dict) or not added & params.keys() or opening.config().settings.protocol.unstable:
        return params
    return {name: value for name, value in params.items() if name not in added}


def cursor_of(record: ListedSession) -> str:
    """Where a list goes on that ended with this one."""

    return base64.urlsafe_b64encode(json.dumps([record.updated_at, record.id]).encode()).decode()


def read_cursor(cursor: str | None) -> tuple[str, str] | None:
    if cursor is None:
        return None
    try:
        value = read_loose_json(base64.urlsafe_b64decode(cursor.encode("ascii")))
        updated_at, session_id = value
        session_id.encode()
    except (ValueError, TypeError, AttributeError, binascii.Error) as error:
        raise InvalidParams("Invalid params: $.cursor: not a cursor from this agent") from error
    if not isinstance(updated_at, str) or not isinstance(session_id, str):
        raise InvalidParams("Invalid params: $.cursor: not a cursor from this agent")
    return updated_at, session_id
