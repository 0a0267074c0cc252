"""Updates for the client and the log. `emit(update)` stores, then sends: what the client has seen is on disk.

The first update after a pause is sent immediately; those that follow closely are batched, once per event loop
iteration, so that a burst of small chunks costs one transaction and (joined) one message.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from functools import cached_property
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

MAX_UNSAVED = 10_000
"""Entries that wait for a locked store."""
BUSY_PAUSE = 5.0
"""Seconds between two attempts to store them."""
PAUSE_SECONDS = 0.003
"""Seconds without an update after which the next one is sent immediately."""


class Outbox:
    """Of one session. `soon` calls back in the next round of the event loop."""

    def __init__(
        self, session_id: str, client: Client, store: SessionStore, soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self.session_id = session_id
        self.client = client
        client.before_asking = self.flush
        self.redaction: Redaction | None = None
        """Redacts what is sent and stored; set before the first prompt."""
        self.held = True
        """Whether updates are stored, but not sent: the client does not know the session's id yet, or any more."""
        self._store = store
        self._soon = soon
        self._waiting: list[tuple[EntryKind | None, Any, int]] = []
        """What was emitted, and its place in the log if it has one already; below 0: it could not be stored."""
        self._flush_planned = False
        self._flushed_at = 0.0
        self._failure: StoreError | None = None
        self._unsaved: list[LogEntry] = []
        """What could not be stored because the store was locked."""
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
                self._waiting[-1] = (kind, merged.update, 0)
                return
        self.put(kind, update)
        if time.monotonic() - self._flushed_at > PAUSE_SECONDS:
            self.flush()

    def _note(self, update: Any) -> acp.SessionNotification:
        return acp.SessionNotification(session_id=self.session_id, update=update)

    def put(self, kind: EntryKind | None, payload: Any) -> None:
        """Adds an entry to the log for the next flush; `update`s are sent, too."""
        self._waiting.append((kind, payload, 0))
        if not self._flush_planned:
            self._flush_planned = True
            self._soon(self.flush)

    def flush(self) -> None:
        """Stores and sends what was emitted. A store failure is reported at the end of the turn."""
        self._flush_planned = False
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._flushed_at = time.monotonic()
        entries = [
            LogEntry(kind, payload if isinstance(payload, bytes) else encode(payload))
            for kind, payload, _ in waiting
            if kind is not None
        ]
        places = iter(self._save(entries))
        placed = [(kind, payload, seq if kind is None else next(places, -1)) for kind, payload, seq in waiting]
        shown = [(payload, seq) for kind, payload, seq in placed if kind in (None, "update")]
        if self.held:
            self._waiting = [(None, payload, seq) for payload, seq in shown]
            return
        for payload, seq in shown:
            self.client.update(payload, seq)
        self.client.push()

    def _save(self, entries: list[LogEntry], *, now: bool = False) -> Sequence[int]:
        """Stores these after those that could not be stored before. While another program keeps the store locked, each
        attempt waits for it, so they are few; `now`: one more. Returns their places in the log, or none."""
        waiting = [*self._unsaved, *entries]
        self._unsaved = waiting[-MAX_UNSAVED:]
        if not waiting or (time.monotonic() < self._not_before and not now):
            return ()
        places: Sequence[int] = ()
        try:
            places = self._store.append(self.session_id, waiting)
        except StoreBusy as error:
            log.error("%s", error)
            self._failure, self._not_before = error, time.monotonic() + BUSY_PAUSE
            return ()
        except StoreError as error:
            log.error("%s", error)
            self._failure = error
        else:
            if len(waiting) <= MAX_UNSAVED and isinstance(self._failure, StoreBusy):
                self._failure = None  # Nothing was lost.
        self._unsaved, self._not_before = [], 0.0
        return places[len(places) - len(entries) :] if places else ()

    def stored(self) -> list[LogEntry]:
        """The whole log. Raises StoreError if what was emitted cannot be stored."""
        self.flush()
        self._save([], now=True)
        if self._unsaved:
            raise self._failure or StoreError("what was said cannot be stored")
        return self._store.entries(self.session_id)

    def store_now(self, entry: LogEntry) -> None:
        """Stores an entry that nobody is sent, after all others. Raises StoreError."""
        self._store.append(self.session_id, [entry])

    def release(self) -> None:
        """The client knows the session's id now: updates may be sent."""
        self.held = False
        self._released.set()
        self.flush()

    async def released(self) -> None:
        """Returns once updates may be sent."""
        if self.held:
            await self._released.wait()

    def taken_failure(self) -> StoreError | None:
        """The failure of the store since the last call, if there was one that could not be made good."""
        self._save([], now=True)
        failure, self._failure = self._failure, None
        return failure

    async def drain(self) -> None:
        """Waits while the client reads too slowly."""
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
