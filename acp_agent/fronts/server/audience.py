"""Who sees a session: several clients, each at its own place in the session's log.

What is stored is sent to those that keep up. One that does not (it has just come, or reads slowly) is sent the log's
next pages instead until it has caught up, so nothing is held up by it, missed or said twice. A question goes to all who
may answer: the first answer counts, the others are told by `$/cancel_request`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from acp_agent.errors import ConnectionClosed, PeerError, RequestCancelled, StoreError
from acp_agent.protocol.client import PLANS, Client, shown_to
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.profiles import RenderingPlan
from acp_agent.schema import acp
from acp_agent.store.base import read_stored

log = logging.getLogger(__name__)

QUESTIONS = ("session/request_permission", "elicitation/create")
STATES = (
    acp.AvailableCommandsUpdate,
    acp.CurrentModeUpdate,
    acp.ConfigOptionUpdate,
    acp.UsageUpdate,
    acp.SessionInfoUpdate,
)
"""What says how things are now: who comes later is sent the last one of each."""
PAGE = 200
"""Updates that are read from the log at once."""
REMEMBERED = 100
"""Messages of which is known who said them."""

NOBODY: tuple[Watcher | None, str] = (None, "")

SPEAKER: ContextVar[Connection | None] = ContextVar("speaker", default=None)
"""Whose request is worked on."""

Page = Callable[[str, int, int], Awaitable[Sequence[tuple[int, bytes]]]]
"""Of a session: at most so many updates behind a place in its log, with their places."""


class Watcher:
    """A client at a session. `answers`: whether it is asked. `turns`: as `watches_turns` has it. `cursors`: whether it
    takes these."""

    def __init__(
        self, connection: Connection, plan: RenderingPlan, *, answers: bool, turns: bool, cursors: bool
    ) -> None:
        self.connection = connection
        self.plan = plan
        self.answers = answers
        self.turns = turns
        self.cursors = cursors
        self.cursor_ids: set[str] = set()
        """Those that it was told with their anchors."""
        self.later: list[acp.CursorUpdate] = []
        """What it is told once it is live, behind the messages."""
        self.place = 0
        """Of the last update that it was sent."""
        self.live = False
        """Whether it is sent what is said as it is said."""
        self.news: _News | None = None
        """The last that it got, or had no need of."""


_News = tuple[Connection | None, acp.SessionNotification]
"""What has no update of its own, and who knows it already."""


class _Question:
    def __init__(self, method: str, params: object, done: Callable[[], None]) -> None:
        self.method = method
        self.params = params
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked: dict[Watcher, asyncio.Task[None]] = {}
        self._done = done

    def put_to(self, watcher: Watcher) -> None:
        if watcher not in self.asked:
            self.asked[watcher] = asyncio.create_task(self._ask(watcher))

    async def _ask(self, watcher: Watcher) -> None:
        failure: PeerError | None = None
        try:
            result = await watcher.connection.request(self.method, self.params)
        except ConnectionClosed:
            return
        except PeerError as error:
            if error.code == RequestCancelled.code:  # It is about to go.
                self._done()
                return
            failure = error
        if self.answer.done():
            return
        if failure is None:
            self.answer.set_result(result)
        elif all(task.done() for other, task in self.asked.items() if other is not watcher):
            self.answer.set_exception(failure)  # Nobody else can answer either.

    @property
    def heard(self) -> bool:
        """Whether somebody may still answer."""
        return any(not task.done() and task is not asyncio.current_task() for task in self.asked.values())

    def withdraw(self, watcher: Watcher) -> None:
        if (task := self.asked.pop(watcher, None)) is not None:
            task.cancel()

    def close(self) -> None:
        for task in self.asked.values():
            task.cancel()
        self._done()


class Audience:
    """The `Wire` of a session's `Client` (`protocol/client.py`), which it is told by `client`.

    `stop`: ends the turn, once a question has waited `patience` seconds for somebody who may answer. `alone`: called
    when the last one has gone. `shown`: told of every update.
    """

    def __init__(
        self,
        session_id: str,
        page: Page,
        *,
        place: int,
        patience: float,
        stop: Callable[[], None],
        alone: Callable[[], None],
        shown: Callable[[str, Any], None],
    ) -> None:
        self.session_id = session_id
        self.client: Client | None = None
        self.driver: Watcher | None = None
        """Whose files and terminals are used, if any are."""
        self.place = place
        """Of the last update that was sent to anybody, or stored before."""
        self._page = page
        self._patience = patience
        self._stop = stop
        self._alone = alone
        self._shown = shown
        self._watchers: dict[Connection, Watcher] = {}
        self._questions: list[_Question] = []
        self._latest: dict[type, acp.SessionNotification] = {}
        self._news: _News | None = None
        self._said: OrderedDict[str, tuple[Watcher | None, str]] = OrderedDict()
        """Messages of users: who said them, and the mark of the prompt."""
        self._following: set[asyncio.Task[None]] = set()
        self._impatient: asyncio.TimerHandle | None = None

    # --- coming and going -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._watchers)

    def has(self, connection: Connection) -> bool:
        return connection in self._watchers

    def watcher(self, connection: Connection) -> Watcher:
        """Raises KeyError."""
        return self._watchers[connection]

    def enter(
        self,
        connection: Connection,
        plan: RenderingPlan,
        *,
        answers: bool,
        turns: bool = False,
        cursors: bool = False,
    ) -> Watcher:
        """Who is there already comes anew. Nothing is sent to it before `follow`."""
        watcher = Watcher(connection, plan, answers=answers, turns=turns, cursors=cursors)
        if (before := self._watchers.get(connection)) is not None:
            self._withdraw(before)
            self.driver = watcher if self.driver is before else self.driver
        self._watchers[connection] = watcher
        watcher.news = self._news
        self.plan_for_all()
        return watcher

    def leave(self, connection: Connection) -> Watcher | None:
        watcher = self._watchers.pop(connection, None)
        if watcher is None:
            return None
        watcher.live = False
        self._withdraw(watcher)
        self.driver = None if self.driver is watcher else self.driver
        self.plan_for_all()
        self._wait_for_answers()
        if not self._watchers:
            self._alone()
        return watcher

    def plan_for_all(self) -> None:
        """The session shows what all who watch can draw."""
        if self.client is None or not self._watchers:
            return
        plans = [watcher.plan for watcher in self._watchers.values()]
        base = self.driver.plan if self.driver is not None else self.client.plan
        names = ("terminal_output", "forms", "plans", "compaction", "notices")
        common: dict[str, Any] = {name: all(getattr(plan, name) for plan in plans) for name in names}
        self.client.plan = replace(base, **common)

    def follow(self, watcher: Watcher) -> None:
        """Sends it what is behind its place, then what is said."""
        task = asyncio.create_task(self._follow(watcher))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow(self, watcher: Watcher) -> None:
        while True:
            await watcher.connection.drain()
            until = self.place
            try:
                rows = await self._page(self.session_id, watcher.place, PAGE)
            except StoreError as error:
                log.error("%s", error)
                watcher.connection.close()  # It comes back, and is told what it missed.
                return
            if watcher.connection.closed or self._watchers.get(watcher.connection) is not watcher:
                return
            for place, payload in rows:
                watcher.place = place
                update = read_stored(payload)
                of_user = update.get("sessionUpdate") == "user_message_chunk"
                speaker, mark = self._said.get(str(update.get("messageId")), NOBODY) if of_user else NOBODY
                if speaker is not watcher:
                    self.send(watcher, update, place)
                elif watcher.turns:
                    self.send(watcher, update, place, mark=mark)
            if not rows and (watcher.place >= self.place or self.place == until):
                break
        watcher.live = True
        watcher.place = max(watcher.place, self.place)
        later, watcher.later = watcher.later, []
        for cursor in later:
            self._point(watcher, cursor)
        for note in self._latest.values():
            watcher.connection.notify("session/update", note)
        self._tell(watcher)
        if watcher.answers:
            for question in self._questions:
                question.put_to(watcher)
        self._wait_for_answers()

    def send(self, watcher: Watcher, stored: dict[str, Any], place: int = 0, *, mark: str | None = None) -> None:
        """Sends one of them what is in the log. `mark`: of its prompt, if it is its own."""
        if (update := shown_to(watcher.plan, stored)) is None:
            return
        meta: dict[str, Any] | None = {"seq": place} if place else None
        if mark is not None:
            meta = {"prompt": mark, **(meta or {})}
        note = acp.SessionNotification(session_id=self.session_id, update=update, meta=meta)
        watcher.connection.notify("session/update", note)

    # --- what the session says --------------------------------------------------------------------------------

    def said(self, message_id: str, mark: str) -> None:
        """Who is asking now has said this, and shows it itself."""
        connection = SPEAKER.get()
        self._said[message_id] = None if connection is None else self._watchers.get(connection), mark
        if len(self._said) > REMEMBERED:
            self._said.popitem(last=False)

    def show(self, note: acp.SessionNotification, place: int) -> None:
        """`place`: as `Client.update` has it."""
        update: Any = note.update
        self._shown(self.session_id, update)
        if isinstance(update, acp.CursorUpdate):
            for watcher in self._watchers.values():
                self._point(watcher, update)
            return
        if place == 0 and isinstance(update, STATES):
            self._latest[type(update)] = note
        speaker, mark = NOBODY
        if place and isinstance(update, acp.UserMessageChunk):
            speaker, mark = self._said.get(update.message_id or "", NOBODY)
        if place > 0:
            self.place = place
            note = replace(note, meta={"seq": place})
        for watcher in self._watchers.values():
            if not watcher.live or 0 < place <= watcher.place:
                continue
            if place > 0 and watcher.connection.crowded:
                watcher.live = False
                self.follow(watcher)
                continue
            if watcher is not speaker:
                own = note if not isinstance(update, PLANS) else replace(note, update=shown_to(watcher.plan, update))
                if own.update is not None:
                    watcher.connection.notify("session/update", own)
            elif watcher.turns:
                own = replace(note, meta={**(note.meta or {}), "prompt": mark})
                watcher.connection.notify("session/update", own)
            if place > 0:
                watcher.place = place

    def _point(self, watcher: Watcher, update: acp.CursorUpdate) -> None:
        """An anchor is told once."""
        if not watcher.cursors:
            return
        if not watcher.live:
            watcher.later.append(update)
            return
        if update.anchor is not UNSET:
            if update.cursor_id in watcher.cursor_ids:
                update = replace(update, anchor=UNSET)
            watcher.cursor_ids.add(update.cursor_id)
        note = acp.SessionNotification(session_id=self.session_id, update=update)
        watcher.connection.notify("session/update", note)

    def tell_others(self, meta: dict[str, Any]) -> None:
        """Tells all but the speaker (a client of v2 as well) something of the session that has no update of its own."""
        note = acp.SessionNotification(session_id=self.session_id, update=acp.SessionInfoUpdate(meta=meta))
        self._news = SPEAKER.get(), note
        for watcher in self._watchers.values():
            if watcher.live:
                self._tell(watcher)

    def _tell(self, watcher: Watcher) -> None:
        if self._news is None or watcher.news is self._news:
            return
        if self._news[0] is not watcher.connection or watcher.turns:
            watcher.connection.notify("session/update", self._news[1])
        watcher.news = self._news

    def notify(self, method: str, params: Any) -> None:
        for watcher in self._watchers.values():
            if watcher.live:
                watcher.connection.notify(method, params)

    def push(self) -> None:
        for watcher in self._watchers.values():
            watcher.connection.push()

    async def drain(self) -> None:
        """Nobody is waited for: who reads slowly is sent the log later."""

    # --- what the session asks --------------------------------------------------------------------------------

    async def request(self, method: str, params: object, *, late: Callable[[Any], None] | None = None) -> Any:
        """As `Connection.request`; a question waits until somebody answers."""
        if method not in QUESTIONS:
            if self.driver is None:
                raise ConnectionClosed("the client whose files and terminals were used has gone")
            return await self.driver.connection.request(method, params, late=late)
        question = _Question(method, params, self._wait_for_answers)
        self._questions.append(question)
        for watcher in self._watchers.values():
            if watcher.live and watcher.answers:
                question.put_to(watcher)
        self._wait_for_answers()
        try:
            return await question.answer
        finally:
            self._questions.remove(question)
            question.close()

    def tell(self, method: str, params: object) -> None:
        if self.driver is not None:
            self.driver.connection.tell(method, params)

    def _withdraw(self, watcher: Watcher) -> None:
        for question in self._questions:
            question.withdraw(watcher)

    def _wait_for_answers(self) -> None:
        """A question waits for ever while somebody is asked."""
        if not all(question.heard for question in self._questions):
            if self._impatient is None:
                self._impatient = asyncio.get_running_loop().call_later(self._patience, self._give_up)
        elif self._impatient is not None:
            self._impatient.cancel()
            self._impatient = None

    def _give_up(self) -> None:
        self._impatient = None
        log.warning("session %s: nobody came to answer a question; the turn is cancelled", self.session_id)
        self._stop()
