"""Updates for the client and the log. `emit(update)` stores, then sends: what the client has seen is on disk.

Updates are batched, once per event loop iteration, so that a burst of small chunks costs one transaction and (joined)
one message. The store works in a thread of its own; what is emitted meanwhile waits and is the next batch.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import anyio

from acp_agent.errors import StoreBusy, StoreError
from acp_agent.protocol.client import Client
from acp_agent.protocol.codec import coalesce_updates, encode
from acp_agent.schema import acp
from acp_agent.store.base import EntryKind, LogEntry
from acp_agent.store.session_store import SessionStore

if TYPE_CHECKING:
    from acp_agent.loop.calls.redaction import Redaction

log = logging.getLogger(__name__)

_Waiting = Sequence[tuple[EntryKind | None, Any]]

MAX_UNSAVED = 10_000
"""Entries that wait for a locked store."""
MAX_WAITING = 1_000
"""Updates that wait for the store before whoever emits more waits, too."""
BUSY_PAUSE = 5.0
"""Seconds between two attempts to store them."""


class Outbox:
    """Of one session. `soon` calls back in the next round of the event loop."""

    def __init__(
        self,
        session_id: str,
        client: Client,
        store: SessionStore,
        soon: Callable[[Callable[[], None]], None],
        redaction: Redaction | None = None,
    ) -> None:
        self.session_id = session_id
        self.client = client
        self.redaction = redaction
        """Redacts what is sent and stored; set before the first prompt."""
        self.held = True
        """Whether updates are stored, but not sent: the client does not know the session's id yet, or any more."""
        self._store = store
        self._soon = soon
        self._waiting: list[tuple[EntryKind | None, Any]] = []
        self._flush_planned = False
        self._storing = False
        """Whether a batch is on its way to the disk; what comes meanwhile is the next one."""
        self._failure: StoreError | None = None
        self._unsaved: list[LogEntry] = []
        """What is to be stored, or could not be because the store was locked."""
        self._lost = False
        """Whether that was too much."""
        self._unsent: list[tuple[Any, int]] = []
        """Updates that are not sent yet, and their places in the log, as in `Client.update`."""
        self._again = False
        """Whether the last attempt may have stored some of it."""
        self._last: int | None = None
        """The place of the last entry of the log, in the store's thread."""
        self._not_before = 0.0
        self._text_is_last = False

    @cached_property
    def _released(self) -> anyio.Event:
        # Created late: it loads anyio's event loop backend, for which the session's response must not wait.
        return anyio.Event()

    def emit(self, update: acp.SessionUpdate, *, keep: bool = True, clean: bool = False) -> None:
        """Stores `update` (unless `keep` is false) and sends it, in the order of the calls. `clean`: it is already
        redacted, as streamed model text is."""
        words = isinstance(update, acp.AgentMessageChunk | acp.AgentThoughtChunk)
        if self.redaction is not None and not clean and not words:
            update = self.redaction.struct(update)
        if isinstance(update, acp.AgentMessageChunk | acp.ToolCall | acp.UserMessageChunk):
            self._text_is_last = isinstance(update, acp.AgentMessageChunk)
        kind: EntryKind | None = "update" if keep else None
        if self._waiting and self._waiting[-1][0] == kind:
            merged = coalesce_updates("session/update", self._note(self._waiting[-1][1]), self._note(update))
            if merged is not None:
                self._waiting[-1] = (kind, merged.update)
                return
        self.put(kind, update)

    def _note(self, update: Any) -> acp.SessionNotification:
        return acp.SessionNotification(session_id=self.session_id, update=update)

    def put(self, kind: EntryKind | None, payload: Any) -> None:
        """Adds an entry to the log for the next flush; `update`s are sent, too."""
        self._waiting.append((kind, payload))
        if not self._flush_planned:
            self._flush_planned = True
            self._soon(self.flush)

    def flush(self) -> None:
        """Stores and sends what was emitted, while others go on: one batch after the other. A store failure is reported
        at the end of the turn."""
        self._flush_planned = False
        if self._waiting and not self._storing:
            self._begin()

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        stored = [(kind, payload) for kind, payload in waiting if kind is not None]
        for kind, payload in stored:
            self._unsaved.append(LogEntry(kind, payload if isinstance(payload, bytes) else encode(payload)))
        self._save(waiting)

    def _save(self, waiting: _Waiting = (), *, now: bool = False) -> None:
        """Stores what is not stored yet, `waiting` last, which is then sent. While another program keeps the store
        locked, each attempt waits for it, so they are few; `now`: one more."""
        if len(self._unsaved) > MAX_UNSAVED:
            del self._unsaved[:-MAX_UNSAVED]
            self._lost = True
        if not self._unsaved or (time.monotonic() < self._not_before and not now):
            self._send(waiting, ())
            return
        entries, self._unsaved = self._unsaved, []
        self._storing = True
        done = partial(self._stored, entries, waiting)
        if self._last is None or self._again:
            self._store.call(partial(self._append, entries, again=self._again), done)
        else:
            self._store.append_soon(self.session_id, entries, done)

    def _append(self, entries: list[LogEntry], *, again: bool) -> Sequence[int]:
        """In the store's thread. `again`: a failure may have stored some of them."""
        if self._last is None:
            self._last = self._store.last(self.session_id)
        return self._store.append(self.session_id, entries, after=self._last if again else None)

    def _stored(
        self, entries: list[LogEntry], waiting: _Waiting, places: Sequence[int] | None, error: BaseException | None
    ) -> None:
        self._storing = False
        self._last = max(places or (), default=self._last)
        if isinstance(error, StoreError):
            log.error("%s", error)
            self._failure = error
        elif error is not None:
            raise error
        self._again = isinstance(error, StoreBusy)
        if self._again:
            self._unsaved, self._not_before = entries, time.monotonic() + BUSY_PAUSE
        else:
            if error is None and not self._lost and isinstance(self._failure, StoreBusy):
                self._failure = None  # Nothing was lost.
            self._not_before, self._lost = 0.0, False
        self._send(waiting, places or ())
        if self._waiting:
            self._begin()

    def _send(self, waiting: _Waiting, places: Sequence[int]) -> None:
        """`places`: of what was stored, in the log; that of `waiting` is at their end."""
        kept = sum(kind is not None for kind, _ in waiting)
        ends = iter([*[-1] * (kept - len(places)), *places[max(0, len(places) - kept) :]])
        for kind, payload in waiting:
            place = 0 if kind is None else next(ends)
            if kind in (None, "update"):
                self._unsent.append((payload, place))
        self._send_unsent()

    def _send_unsent(self) -> None:
        if self.held or not self._unsent:
            return
        unsent, self._unsent = self._unsent, []
        for update, place in unsent:
            self.client.update(update, place)
        self.client.push()

    async def flushed(self, *, now: bool = False) -> None:
        """Returns once what was emitted is stored, or cannot be, and sent. `now`: what could not be stored because the
        store was locked is tried once more."""
        self.flush()
        while self._storing:
            await self._store.do(_nothing)
        if now and self._unsaved:
            self._save(now=True)
            await self.flushed()

    async def settled(self) -> None:
        """As `flushed`, and what was to be done later in the store is done."""
        self.flush()
        await self._store.do(_nothing)
        await self.flushed()

    async def stored(self) -> list[LogEntry]:
        """The whole log. Raises StoreError if what was emitted cannot be stored."""
        await self.flushed(now=True)
        if self._unsaved:
            raise self._failure or StoreError("what was said cannot be stored")
        return await self._store.do(self._store.entries, self.session_id)

    async def all_stored(self) -> bool:
        """Whether all that was emitted is in the log; what the store was locked for is tried once more."""
        await self.flushed(now=True)
        return not self._unsaved

    async def store_now(self, entry: LogEntry) -> None:
        """Stores an entry that nobody is sent, after all others. Raises StoreError."""
        await self.flushed()
        try:
            places = await self._store.do(self._append, [entry], again=False)
        except StoreBusy:
            places = await self._store.do(self._append, [entry], again=True)
        self._last = max(self._last or 0, *places)

    def release(self) -> None:
        """The client knows the session's id now: updates may be sent."""
        self.held = False
        self._released.set()
        if not self._storing:
            self._send_unsent()
        self.flush()

    async def released(self) -> None:
        """Returns once updates may be sent."""
        if self.held:
            await self._released.wait()

    async def taken_failure(self) -> StoreError | None:
        """The failure of the store since the last call, if there was one that could not be made good."""
        await self.flushed(now=True)
        failure, self._failure = self._failure, None
        return failure

    async def drain(self) -> None:
        """Waits while the store or the client is too slow."""
        if len(self._waiting) > MAX_WAITING:
            await self.flushed()
        await self.client.drain()

    def say(self, text: str) -> None:
        """Sends a message from the agent itself, as a new paragraph even in clients that join messages."""
        text = self.clean(text)
        if self._text_is_last:
            text = f"\n\n{text}"
        self.emit(acp.AgentMessageChunk(content=acp.TextContent(text=text), message_id=str(uuid.uuid4())))

    def tell(self, words: str) -> None:
        """Tells the user something: a notice if the client shows them, else a message; also in the log."""
        words = self.clean(words)
        log.warning("%s", words)
        if self.client.plan.notices:
            self.emit(acp.Notice(severity="warning", title=words), keep=False)
        else:
            self.say(f"{words}\n\n")

    def clean(self, text: str) -> str:
        """Returns the text without credentials."""
        return text if self.redaction is None else self.redaction.text(text)


class ChildOutbox(Outbox):
    """Of a sub-agent: its log is stored as a child of the session's. It is sent, too, if it is `shown`: to clients that
    show sub-agents as sessions."""

    def __init__(self, session_id: str, above: Outbox) -> None:
        """`above`: that of the session or sub-agent for which it works."""
        self.shown = above.client.shows_children
        super().__init__(session_id, above.client, above._store, above._soon, above.redaction)
        self._above = above

    def _send(self, waiting: _Waiting, places: Sequence[int]) -> None:
        """Under its own id, if anybody is shown it."""
        for kind, update in waiting if self.shown else ():
            if kind in (None, "update"):
                self.client.update_below(self.session_id, update, self._above.session_id)

    def tell(self, words: str) -> None:
        self._above.tell(words)


def _nothing() -> None:
    """Done in the store's thread, it comes after all that was to be done there."""
