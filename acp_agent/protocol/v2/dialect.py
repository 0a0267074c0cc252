"""A connection that speaks v2: what the client asks is asked of the agent in v1, what that says is rendered.

A prompt is answered once its message is in the conversation; its turn goes on behind the answer, and the states of it
are updates. The messages of the client come back, with the id that the answer has.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from acp_agent.errors import InvalidParams, MethodNotFound, RequestCancelled, ResourceNotFound, RpcError
from acp_agent.protocol.connection import Connection, Handler, Reply
from acp_agent.protocol.v2 import from_v1, to_v1
from acp_agent.schema.acp import SessionNotification

log = logging.getLogger(__name__)

VERSION = 2
SUPPORTED = (1, VERSION)
CANCELS = {"tool_call/cancel": "toolCallId", "terminal/cancel": "terminalId"}
"""Of single items -> what names one. A terminal has the id of its call."""
CANCEL_CALL = "_session/cancel_call"
QUESTIONS = ("session/request_permission", "elicitation/create")
LAST_SECONDS = 0.5
"""For the last state of a turn that a close has ended."""
ACTIONS = ("accept", "decline", "cancel")


class UnsupportedVersion(RpcError):
    code = -32022


class TooLate(RpcError):
    code = -32600


class V2:
    """`handler`: the agent, of v1. The `Dialect` of its connection once the client has asked for v2. `commands`: those
    of every session."""

    def __init__(self, handler: Handler, connection: Connection, commands: Sequence[Any] = ()) -> None:
        self._handler = handler
        self._connection = connection
        self._commands = [from_v1.command(from_v1.plain(each)) for each in commands]
        self._agreed = False
        self._begun = False
        """Whether anything but `initialize` was asked."""
        self._agent_methods: frozenset[str] = frozenset()
        """Ids of ways to log in that the agent runs itself."""
        self._logs_in = False
        self._updates = from_v1.Updates()
        self._waiting: dict[str, asyncio.Future[str]] = {}
        """Prompts that are not in their conversation yet, by the mark that they carry; the result is the message's
        id."""
        self._turns: dict[asyncio.Task[Any], tuple[str, asyncio.Future[str]]] = {}
        """The turns that were asked for: the session, and the result as in `_waiting`."""
        self._asking: Counter[str] = Counter()
        """Open questions, by session."""
        self._working: set[str] = set()
        """Sessions in which a turn runs."""
        self._replayed: list[str] = []
        """Sub-agents that were announced since a session was opened."""
        self._closing: set[str] = set()
        self._closed: set[str] = set()
        """Sessions of which nothing more is said."""

    # --- what the client asks -------------------------------------------------------------------------------------

    async def handle_request(self, method: str, params: Any) -> Any:
        if method == "initialize":
            return await self._initialize(params)
        self._begun = True
        if method in CANCELS:
            return await self._cancel(CANCELS[method], to_v1.table(params, "$"))
        if method.startswith("_"):
            return await self._handler.handle_request(method, params)
        if method not in to_v1.METHODS or (method.startswith("auth/") and not self._logs_in):
            raise MethodNotFound(f"Method not found: {method}")
        given = to_v1.table({} if params is None else params, "$")
        match method:
            case "session/prompt":
                return await self._prompt(given)
            case "session/new" | "session/resume" | "session/fork":
                return await self._open(method, given)
            case "session/close":
                return await self._close(given)
            case "session/set_config_option":
                given = to_v1.option(given)
            case "auth/login" if given.get("methodId") not in self._agent_methods:
                raise InvalidParams("Invalid params: $.methodId: not one of the agent's methods")
        return self._shown(await self._ask(to_v1.METHODS[method], given))

    async def _initialize(self, params: Any) -> dict[str, Any]:
        try:
            version = to_v1.version(params)
            if self._begun or (self._agreed and version < VERSION):
                raise TooLate("Invalid request: the version of this connection is agreed upon")
            if version < 1:
                data = {"requested": version, "supported": list(SUPPORTED)}
                raise UnsupportedVersion(f"Protocol version {version} is not supported", data)
            answer = await self._handler.handle_request("initialize", to_v1.initialize(params, VERSION))
        except BaseException:
            if not self._agreed:
                self._connection.dialect = None
            raise
        self._agreed = True
        methods = from_v1.logins(answer)
        self._logs_in = bool(methods)
        self._agent_methods = frozenset(each["id"] for each in methods if each.get("type", "agent") == "agent")
        return from_v1.welcome(answer, VERSION)

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        try:
            return await self._handler.handle_request(method, params)
        except ResourceNotFound as error:
            if error.data is None and isinstance(params.get("sessionId"), str):
                raise ResourceNotFound(error.message, {"sessionId": params["sessionId"]}) from error
            raise

    async def _cancel(self, name: str, params: dict[str, Any]) -> Any:
        """A call that runs, or the terminal of one that has ended."""
        session_id, id_ = params.get("sessionId"), params.get(name)
        if not isinstance(id_, str) or (self._updates.runs_on(str(session_id), id_)) is (name == "toolCallId"):
            raise InvalidParams(f"Invalid params: $.{name}: {id_!r} cannot be cancelled")
        return await self._ask(CANCEL_CALL, {"sessionId": session_id, "toolCallId": id_})

    def _shown(self, answered: Any) -> Any:
        if isinstance(answered, Reply):
            return Reply(from_v1.result(answered.result), answered.then)
        return from_v1.result(answered)

    async def _open(self, method: str, params: dict[str, Any]) -> Any:
        replay, given = to_v1.opening(params)
        resumes, session_id = method == "session/resume", str(given.get("sessionId"))
        replay = replay if resumes else ""
        if resumes:
            self._closed.discard(session_id)
        self._replayed.clear()
        answered = self._shown(await self._ask("session/load" if replay else method, given))
        shown: Any = answered.result if isinstance(answered, Reply) else answered
        shown["availableCommands"] = self._commands
        for each in (*self._replayed, session_id) if replay else ():
            self._update(each, {"sessionUpdate": "replay_complete"})
        if resumes:
            meta = shown.get("_meta") or {}
            turn, running = meta.pop("turn", None), meta.pop("background", ())
            for new in self._updates.runs_in_background(session_id, running):
                self._update(session_id, new)
            self._state(session_id, from_v1.state(turn or {"state": "idle"}))
        return answered

    async def _close(self, params: dict[str, Any]) -> Any:
        """Of a session that is not open, too."""
        session_id = str(params.get("sessionId"))
        self._closing.add(session_id)
        try:
            answered = await self._ask("session/close", params)
            turns = [(turn, inserted) for turn, (of, inserted) in self._turns.items() if of == session_id]
            for turn, inserted in turns:  # On a server the session goes on for others.
                if not inserted.done():
                    turn.cancel()
            if turns:
                await asyncio.wait([turn for turn, _ in turns], timeout=LAST_SECONDS)
        except ResourceNotFound:
            answered = {}
        finally:
            self._closing.discard(session_id)
        self._closed.add(session_id)
        self._working.discard(session_id)
        return self._shown(answered)

    async def _prompt(self, params: dict[str, Any]) -> dict[str, str]:
        """Answers once the message is in the conversation."""
        mark = uuid.uuid4().hex
        marked = to_v1.prompt(params, mark)
        inserted = self._waiting[mark] = asyncio.get_running_loop().create_future()
        turn = self._connection.spawn(self._ask("session/prompt", marked))
        session_id = str(params.get("sessionId"))
        self._turns[turn] = session_id, inserted
        turn.add_done_callback(self._ended)
        try:
            await asyncio.wait((turn, inserted), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # `$/cancel_request`.
            if not inserted.done():
                turn.cancel()
                await asyncio.wait((turn,))
            if not inserted.done():  # What is in the conversation is never answered by an error.
                raise
        finally:
            del self._waiting[mark]
        closing = session_id in self._closing
        if inserted.done():
            return {"messageId": inserted.result()}
        if turn.cancelled():
            raise RequestCancelled("the prompt was cancelled")
        error = turn.exception()
        if closing or (error is None and from_v1.plain(turn.result()).get("stopReason") == "cancelled"):
            raise RequestCancelled("the prompt was cancelled before it began")
        if error is not None:
            raise error
        if known := (from_v1.plain(turn.result()).get("_meta") or {}).get("messageId"):
            return {"messageId": known}  # It is the same prompt as one before.
        return self._ended_at_once(session_id, params["prompt"])

    def _ended(self, turn: asyncio.Task[Any]) -> None:
        del self._turns[turn]
        if not turn.cancelled() and (error := turn.exception()) is not None:
            log.info("a turn failed: %s", error)  # Its last state says so.

    def _ended_at_once(self, session_id: str, blocks: Any) -> dict[str, str]:
        """Of a prompt that says nothing: no model was asked."""
        message = {"messageId": str(uuid.uuid4())}
        self._update(session_id, {"sessionUpdate": "user_message", **message, "content": blocks})
        self._state(session_id, from_v1.state({"state": "running"}))
        self._state(session_id, from_v1.state({"state": "idle", "stopReason": "end_turn"}))
        return message

    async def handle_notification(self, method: str, params: Any) -> None:
        if method == "session/cancel":
            await asyncio.sleep(0)  # The task of a prompt that came just before has begun.
        await self._handler.handle_notification(method, params)

    def cancel_request(self, method: str, params: Any) -> bool:
        return False

    # --- what the agent says --------------------------------------------------------------------------------------

    def rendered(self, method: str, params: Any) -> Iterator[tuple[str, Any]]:
        """A notification of v1 as those of v2 that say the same."""
        if method != "session/update":
            yield method, params
            return
        if isinstance(params, SessionNotification):
            session_id, update, meta = params.session_id, params.update, params.meta
        else:
            session_id, update, meta = params["sessionId"], params["update"], params.get("_meta")
        if session_id in self._closed:
            return
        mark = None if meta is None else meta.get("prompt")
        if meta is not None and mark is not None:
            meta = from_v1.filled({**meta, "prompt": None}) or None
        for each in self._updates.render(session_id, update):
            if each is update and mark is None:
                yield method, params
                continue
            if isinstance(each, dict) and each["sessionUpdate"] == "state_update":
                self._note_state(session_id, each)
                each["background"] = self._updates.background(session_id)
            shown = _note(session_id, each, meta)
            if mark is not None:
                self._insert(mark, shown["update"])
            yield method, shown
            if isinstance(each, dict) and each["sessionUpdate"] == "subagent_update":
                child, background = each["sessionId"], self._updates.background(each["sessionId"])
                state = {"sessionUpdate": "state_update", "state": each["state"]["state"], "background": background}
                self._replayed.append(child)
                yield method, _note(child, state, None)
        if self._updates.background_changed(session_id):
            yield method, _note(session_id, self._snapshot(session_id), None)

    def _snapshot(self, session_id: str) -> dict[str, Any]:
        """The state as it is."""
        working = "requires_action" if self._asking[session_id] else "running"
        state = working if session_id in self._working else "idle"
        background = self._updates.background(session_id)
        return {"sessionUpdate": "state_update", "state": state, "background": background}

    def _insert(self, mark: str, message: Any) -> None:
        inserted = self._waiting.get(mark)
        if inserted is not None and not inserted.done():
            inserted.set_result(message["messageId"] if isinstance(message, dict) else message.message_id)

    def _note_state(self, session_id: str, state: dict[str, Any]) -> None:
        if state["state"] == "idle":
            self._working.discard(session_id)
        else:
            self._working.add(session_id)

    def _update(self, session_id: str, update: dict[str, Any]) -> None:
        if session_id not in self._closed:
            self._connection.notify_as_is("session/update", _note(session_id, update, None))

    def _state(self, session_id: str, state: dict[str, Any]) -> None:
        self._note_state(session_id, state)
        self._update(session_id, {**state, "background": self._updates.background(session_id)})

    @contextmanager
    def asking(self, method: str, params: Any) -> Iterator[Any]:
        """Around a request to the client: yields the params in v2. A turn waits for the user meanwhile."""
        if method not in QUESTIONS:
            yield params
            return
        shown = from_v1.permission(params) if method == QUESTIONS[0] else from_v1.filled(from_v1.plain(params))
        session_id = str(shown.get("sessionId"))
        self._asking[session_id] += 1
        if session_id in self._working and self._asking[session_id] == 1:
            self._state(session_id, {"sessionUpdate": "state_update", "state": "requires_action"})
        try:
            yield shown
        finally:
            self._asking[session_id] -= 1
            if not self._asking[session_id]:
                del self._asking[session_id]
                if session_id in self._working and not self._connection.closed:
                    self._state(session_id, {"sessionUpdate": "state_update", "state": "running"})

    def answer(self, method: str, answered: Any) -> Any:
        """The client's result in v1: an action that is not known is `cancel`."""
        if method == QUESTIONS[1] and isinstance(answered, dict) and answered.get("action") not in ACTIONS:
            return {"action": "cancel"}
        return answered


def _note(session_id: str, update: Any, meta: dict[str, Any] | None) -> dict[str, Any]:
    return from_v1.filled({"sessionId": session_id, "update": update, "_meta": meta})
