"""The stored sessions of an owner over HTTP: list, messages, export, delete. Their store is asked in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode
from uuid import UUID

import anyio.to_thread
import msgspec

from acp_agent.agent import cursor_of, read_cursor
from acp_agent.errors import InvalidParams, StoreError
from acp_agent.fronts.server.operations import NotSo, Operation
from acp_agent.loop.memory.transcripts import as_json_lines, as_markdown
from acp_agent.opening import normal
from acp_agent.store.base import ListedSession, SessionRecord, read_stored
from acp_agent.store.session_store import SessionStore

T = TypeVar("T")

FORMATS = {"markdown": ("text/markdown", as_markdown), "jsonl": ("application/x-ndjson", as_json_lines)}
NO_SUCH = 404, "there is no such session"
IN_USE = 409, "the session is in use; close it first"


def _about(words: str, **more: Any) -> msgspec.Meta:
    return msgspec.Meta(description=words, **more)


def _limit(most: int) -> msgspec.Meta:
    return _about("On a page, at most.", ge=1, le=most)


Seq = Annotated[int, _about("`seq` of the last one seen; 0: none.", ge=0, le=2**62)]
Id = Annotated[str, msgspec.Meta(extra_json_schema={"format": "uuid"})]
Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]


class SessionsAsked(msgspec.Struct, frozen=True, omit_defaults=True):
    cwd: Annotated[str, _about("Only those of this folder; empty: of all.")] = ""
    limit: Annotated[int, _limit(1000)] = 50
    cursor: Annotated[str, _about("Where the page begins, as a `Link` has it.")] = ""


class SearchAsked(msgspec.Struct, frozen=True, omit_defaults=True):
    q: Annotated[str, _about("the words to search for; in the first 200,000 characters of each message", pattern=r"\S")]
    session: Annotated[UUID | msgspec.UnsetType, _about("Only in this one.")] = msgspec.UNSET
    limit: Annotated[int, _limit(500)] = 50
    before: Seq = 0


class SessionAsked(msgspec.Struct, frozen=True):
    id: UUID


class MessagesAsked(SessionAsked, frozen=True):
    limit: Annotated[int, _limit(1000)] = 200
    after: Seq = 0


class ExportAsked(SessionAsked, frozen=True):
    format: Literal["markdown", "jsonl"] = "markdown"


class Stored(msgspec.Struct, frozen=True):
    """A session."""

    id: Id
    title: str | None
    cwd: str
    created_at: Time
    updated_at: Time
    turns: Annotated[int, _about("Prompts so far.")]
    message_count: Annotated[int, _about("How many `messages` has.")]


class Message(msgspec.Struct, frozen=True):
    """What was shown of a session."""

    seq: Annotated[int, _about("Its place in the log.")]
    event_type: str | None
    payload: Annotated[dict[str, Any], _about("A `SessionUpdate` of the Agent Client Protocol.")]


class Found(msgspec.Struct, frozen=True):
    """Where all the words are."""

    session: Id
    title: str | None
    cwd: str
    seq: int
    snippet: str


class Answer(msgspec.Struct, frozen=True):
    """Of HTTP."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    following: str = ""
    """The address of the next page."""


class History:
    """Of one owner. `look` opens their store. `may_see`: whether one is shown. All raise NotSo."""

    def __init__(self, look: Callable[[], SessionStore | None], may_see: Callable[[ListedSession], bool]) -> None:
        self._look = look
        self._may_see = may_see

    async def sessions(self, asked: SessionsAsked) -> Answer:
        """The sessions of the token's owner, newest first."""
        try:
            before = read_cursor(asked.cursor or None)
        except InvalidParams as error:
            raise NotSo(400, "`cursor` is none of this server's") from error

        def find(store: SessionStore) -> Answer:
            found = store.sessions(cwd=normal(asked.cwd) if asked.cwd else None, before=before, limit=asked.limit + 1)
            shown, more = found[: asked.limit], ""
            if len(found) > asked.limit:
                more = _following("/sessions", asked, cursor=cursor_of(shown[-1]))
            return _json(_stored(store, [record for record in shown if self._may_see(record)]), more)

        return await self._ask(find, _json([]))

    async def search(self, asked: SearchAsked) -> Answer:
        """What was said, run or printed in them, with all the words of `q`, newest first. Beginnings of words count."""
        within = None if asked.session is msgspec.UNSET else str(asked.session)

        def find(store: SessionStore) -> Answer:
            known: dict[str, ListedSession | None] = {}
            found = []
            before = asked.before or None
            hits = store.history.search(asked.q, session_id=within, limit=asked.limit + 1, before=before)
            for hit in hits[: asked.limit]:
                if hit.session_id not in known:
                    known[hit.session_id] = store.get(hit.session_id)
                record = known[hit.session_id]
                if record is not None and self._may_see(record):
                    found.append(Found(record.id, record.title, record.cwd, hit.seq, hit.snippet))
            more = len(hits) > asked.limit
            return _json(found, _following("/search", asked, before=hits[asked.limit - 1].seq) if more else "")

        return await self._ask(find, _json([]))

    async def session(self, asked: SessionAsked) -> Answer:
        """One of them."""
        return await self._of(asked.id, lambda store, record: _json(_stored(store, [record])[0]))

    async def messages(self, asked: MessagesAsked) -> Answer:
        """What was shown of a session, oldest first."""

        def find(store: SessionStore, record: SessionRecord) -> Answer:
            rows = store.page(record.id, asked.after, asked.limit + 1)
            shown, more = rows[: asked.limit], ""
            if len(rows) > asked.limit:
                query = urlencode({"limit": asked.limit, "after": shown[-1][0]})
                more = f"/sessions/{record.id}/messages?{query}"
            updates = ((seq, read_stored(payload)) for seq, payload in shown)
            return _json([Message(seq, update.get("sessionUpdate"), update) for seq, update in updates], more)

        return await self._of(asked.id, find)

    async def export(self, asked: ExportAsked) -> Answer:
        """A session as text. `markdown`: what was said and done; `jsonl`: the session and all of its log."""
        kind, lines = FORMATS[asked.format]

        def find(store: SessionStore, record: SessionRecord) -> Answer:
            text = "".join(f"{line}\n" for line in lines(record, store.entries(record.id)))
            return Answer(200, text.encode("utf-8", "replace"), f"{kind}; charset=utf-8")

        return await self._of(asked.id, find)

    async def delete(self, asked: SessionAsked) -> Answer:
        """Deletes a session with all that was stored of it. There is no way back."""

        def remove(store: SessionStore, record: SessionRecord) -> Answer:
            store.delete(record.id)
            return Answer(204)

        return await self._of(asked.id, remove)

    async def _of(self, session_id: UUID, work: Callable[[SessionStore, SessionRecord], Answer]) -> Answer:
        def find(store: SessionStore) -> Answer | None:
            record = store.get(str(session_id))
            return None if record is None or not self._may_see(record) else work(store, record)

        found = await self._ask(find, None)
        if found is None:
            raise NotSo(*NO_SUCH)
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


OPERATIONS = (
    Operation("/sessions", History.sessions, asked=SessionsAsked, answer=list[Stored], paged=True),
    Operation("/sessions/{id}", History.session, asked=SessionAsked, answer=Stored, others=(NO_SUCH,)),
    Operation(
        "/sessions/{id}",
        History.delete,
        method="DELETE",
        asked=SessionAsked,
        status=204,
        others=(NO_SUCH, IN_USE),
        scope="prompt",
    ),
    Operation(
        "/sessions/{id}/messages",
        History.messages,
        asked=MessagesAsked,
        answer=list[Message],
        others=(NO_SUCH,),
        paged=True,
    ),
    Operation(
        "/sessions/{id}/export",
        History.export,
        asked=ExportAsked,
        kinds=tuple(kind for kind, _ in FORMATS.values()),
        others=(NO_SUCH,),
    ),
    Operation("/search", History.search, asked=SearchAsked, answer=list[Found], paged=True),
)
"""`ask` is a method of a History."""


def _stored(store: SessionStore, records: Sequence[ListedSession]) -> list[Stored]:
    counts = store.shown([record.id for record in records])
    return [
        Stored(
            record.id,
            record.title,
            record.cwd,
            record.created_at,
            record.updated_at,
            record.turns,
            counts.get(record.id, 0),
        )
        for record in records
    ]


def _following(path: str, asked: msgspec.Struct, **more: Any) -> str:
    """The address of the next page."""
    return f"{path}?{urlencode(msgspec.to_builtins(msgspec.structs.replace(asked, **more)))}"


def _json(value: Any, following: str = "") -> Answer:
    return Answer(200, msgspec.json.encode(value), following=following)
