"""The stored sessions of an owner over HTTP: list, messages, export, delete. Their store is asked in threads."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import anyio.to_thread
import msgspec

from acp_agent.agent import cursor_of, read_cursor
from acp_agent.errors import InvalidParams, StoreError
from acp_agent.loop.memory.transcripts import as_json_lines, as_markdown
from acp_agent.opening import normal
from acp_agent.store.base import SessionRecord
from acp_agent.store.session_store import SessionStore

T = TypeVar("T")

SESSIONS, MOST_SESSIONS = 50, 1000
HITS, MOST_HITS = 50, 500
MESSAGES, MOST_MESSAGES = 200, 1000
"""On a page, if nothing else is asked for, and at most."""
FORMATS = {"markdown": ("text/markdown", as_markdown), "jsonl": ("application/x-ndjson", as_json_lines)}


class Answer(msgspec.Struct, frozen=True):
    """Of HTTP."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    following: str = ""
    """The address of the next page."""


class NotSo(Exception):
    """What is asked cannot be answered."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class History:
    """Of one owner. `look` opens their store. `may_open`: whether those of a folder are shown. All raise NotSo."""

    def __init__(self, look: Callable[[], SessionStore | None], may_open: Callable[[str], bool]) -> None:
        self._look = look
        self._may_open = may_open

    async def sessions(self, asked: dict[str, str]) -> Answer:
        """Newest first. `asked`: `cwd`, `limit`, `cursor`."""
        limit, cwd = _number(asked, "limit", SESSIONS, MOST_SESSIONS), asked.get("cwd")
        try:
            before = read_cursor(asked.get("cursor"))
        except InvalidParams as error:
            raise NotSo(400, "`cursor` is none of this server's") from error

        def find(store: SessionStore) -> Answer:
            where = None if cwd is None else normal(cwd)
            found = store.sessions(cwd=where, before=before, limit=limit + 1)
            shown, more = found[:limit], ""
            if len(found) > limit:
                given = {"cwd": cwd, "limit": str(limit), "cursor": cursor_of(shown[-1])}
                more = f"/sessions?{urlencode({name: value for name, value in given.items() if value is not None})}"
            return _json(_about(store, [record for record in shown if self._may_open(record.cwd)]), more)

        return await self._ask(find, _json([]))

    async def search(self, asked: dict[str, str]) -> Answer:
        """What has all the words of `q`, newest first. `asked`: `session`, `limit`, `before` (`seq` of the last one
        seen)."""
        words, session_id = asked.get("q", ""), asked.get("session")
        limit, before = _number(asked, "limit", HITS, MOST_HITS), _number(asked, "before", 0, 2**62, least=0)
        if not words.strip():
            raise NotSo(400, "`q` is missing: the words to search for")
        if session_id is not None:
            _checked(session_id)

        def find(store: SessionStore) -> Answer:
            known: dict[str, SessionRecord | None] = {}
            found: list[dict[str, Any]] = []
            hits = store.history.search(words, session_id=session_id, limit=limit + 1, before=before or None)
            for hit in hits[:limit]:
                if hit.session_id not in known:
                    known[hit.session_id] = store.get(hit.session_id)
                record = known[hit.session_id]
                if record is not None and self._may_open(record.cwd):
                    about = {"session": record.id, "title": record.title, "cwd": record.cwd}
                    found.append({**about, "seq": hit.seq, "snippet": hit.snippet})
            if len(hits) <= limit:
                return _json(found)
            given = {"q": words, "limit": str(limit), "before": str(hits[limit - 1].seq)}
            if session_id is not None:
                given["session"] = session_id
            return _json(found, f"/search?{urlencode(given)}")

        return await self._ask(find, _json([]))

    async def session(self, session_id: str) -> Answer:
        return await self._of(session_id, lambda store, record: _json(_about(store, [record])[0]))

    async def messages(self, session_id: str, asked: dict[str, str]) -> Answer:
        """What was shown of it, oldest first. `asked`: `limit`, `after` (`seq` of the last one seen)."""
        limit, after = _number(asked, "limit", MESSAGES, MOST_MESSAGES), _number(asked, "after", 0, 2**62, least=0)

        def find(store: SessionStore, record: SessionRecord) -> Answer:
            rows = store.page(record.id, after, limit + 1)
            shown, more = rows[:limit], ""
            if len(rows) > limit:
                more = f"/sessions/{record.id}/messages?{urlencode({'limit': limit, 'after': shown[-1][0]})}"
            found = []
            for seq, payload in shown:
                update = msgspec.json.decode(payload)
                found.append({"seq": seq, "event_type": update.get("sessionUpdate"), "payload": update})
            return _json(found, more)

        return await self._of(session_id, find)

    async def export(self, session_id: str, asked: dict[str, str]) -> Answer:
        """`asked`: `format`."""
        name = asked.get("format", "markdown")
        if name not in FORMATS:
            raise NotSo(400, f"`format` is one of {', '.join(FORMATS)}")
        kind, lines = FORMATS[name]

        def find(store: SessionStore, record: SessionRecord) -> Answer:
            text = "".join(f"{line}\n" for line in lines(record, store.entries(record.id)))
            return Answer(200, text.encode("utf-8", "replace"), f"{kind}; charset=utf-8")

        return await self._of(session_id, find)

    async def delete(self, session_id: str) -> Answer:
        def remove(store: SessionStore, record: SessionRecord) -> Answer:
            store.delete(record.id)
            return Answer(204)

        return await self._of(session_id, remove)

    async def _of(self, session_id: str, work: Callable[[SessionStore, SessionRecord], Answer]) -> Answer:
        _checked(session_id)

        def find(store: SessionStore) -> Answer | None:
            record = store.get(session_id)
            return None if record is None or not self._may_open(record.cwd) else work(store, record)

        found = await self._ask(find, None)
        if found is None:
            raise NotSo(404, "there is no such session")
        return found

    async def _ask(self, work: Callable[[SessionStore], T], nothing: T) -> T:
        """`nothing`: what is answered where nothing was ever stored."""

        def asked() -> T:
            if (store := self._look()) is None:
                return nothing
            try:
                return work(store)
            finally:
                store.close()

        try:
            return await anyio.to_thread.run_sync(asked)
        except StoreError as error:
            raise NotSo(503, "the sessions cannot be read now; see the server's log") from error


def _about(store: SessionStore, records: Sequence[SessionRecord]) -> list[dict[str, Any]]:
    counts = store.shown([record.id for record in records])
    return [
        {
            "id": record.id,
            "title": record.title,
            "cwd": record.cwd,
            "created_at": record.created_at,
            "updated_at": record.updated_at,
            "turns": record.turns,
            "message_count": counts.get(record.id, 0),
        }
        for record in records
    ]


def _checked(session_id: str) -> None:
    try:
        uuid.UUID(session_id)
    except ValueError as error:
        raise NotSo(400, "the id of a session is a UUID") from error


def _number(asked: dict[str, str], name: str, otherwise: int, most: int, least: int = 1) -> int:
    text = asked.get(name, str(otherwise))
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise NotSo(400, f"`{name}` is a number from {least} to {most}")
    return int(text)


def _json(value: Any, following: str = "") -> Answer:
    return Answer(200, msgspec.json.encode(value), following=following)
