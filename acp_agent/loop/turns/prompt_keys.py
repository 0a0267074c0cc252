"""Prompts that come again: each has a key of its client's, under which one message is inserted at most.

A key stands in the log in the mark of its turn, so that it is on disk if and only if the message is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextvars import ContextVar

import anyio
from msgspec import Struct

from acp_agent.errors import InvalidParams, RequestCancelled
from acp_agent.protocol.codec import encode
from acp_agent.schema.acp import ContentBlock
from acp_agent.store.base import read_stored
from acp_agent.store.session_store import SessionStore


class PromptKey(Struct, frozen=True):
    """`digest`: of the prompt."""

    key: str
    digest: str


class KeyedTurn(Struct, frozen=True):
    """What a turn's mark in the log has of it."""

    message_id: str
    key: PromptKey | None = None


class _First:
    """The prompt that came first with a key, while it runs or waits."""

    def __init__(self, key: PromptKey) -> None:
        self.key = key
        self.message_id = ""
        """Of its message, once that is inserted."""
        self.known = anyio.Event()

    def insert(self, message_id: str) -> None:
        self.message_id = message_id
        self.known.set()


CURRENT: ContextVar[_First | None] = ContextVar("current", default=None)


class PromptKeys:
    """Of one session."""

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self._id = session_id
        self._open: dict[str, _First] = {}
        self._stored: dict[str, KeyedTurn] = {}
        self._read_to = 0
        """Up to which the log was read."""

    async def message(self, key: str, blocks: Sequence[ContentBlock]) -> str:
        """The id of the message that this prompt has become before, also if that takes a while. Empty: it is new, and
        `ended` follows in any case. Raises InvalidParams if it was another prompt, RequestCancelled if the first was
        never inserted."""
        this = PromptKey(key, hashlib.sha256(encode(blocks)).hexdigest())
        if (first := self._open.get(key)) is not None:
            _same(first.key, this)
            await first.known.wait()
            if not first.message_id:
                raise RequestCancelled("the prompt was cancelled before it began")
            return first.message_id
        first = self._open[key] = _First(this)
        CURRENT.set(first)
        try:
            if (before := await self._before(key)) is not None:
                _same(before.key or this, this)
                first.insert(before.message_id)
        except BaseException:
            self.ended(key)
            raise
        if first.message_id:
            self.ended(key)
        return first.message_id

    def inserted(self, message_id: str) -> PromptKey | None:
        """The current prompt is inserted as this message; its key, for the log."""
        first = CURRENT.get()
        if first is None or first.message_id or self._open.get(first.key.key) is not first:
            return None
        first.insert(message_id)
        return first.key

    async def _before(self, key: str) -> KeyedTurn | None:
        """As the log has it."""
        for at, payload in await self._store.do(self._store.turns, self._id, self._read_to):
            self._read_to = at
            mark = read_stored(payload, type=KeyedTurn)
            if mark.key is not None:
                self._stored.setdefault(mark.key.key, mark)
        return self._stored.get(key)

    def ended(self, key: str) -> None:
        """The current prompt is over; nothing if it was only one that came again."""
        first = CURRENT.get()
        if first is not None and self._open.get(key) is first:
            del self._open[key]
            first.known.set()


def _same(before: PromptKey, this: PromptKey) -> None:
    if before.digest != this.digest:
        raise InvalidParams("Invalid params: $.idempotencyKey: another prompt was sent with it")
