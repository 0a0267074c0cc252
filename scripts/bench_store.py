"""What the store costs, in a file and on a PostgreSQL of Debian, which the tests' server is (without fsync)."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from acp_agent.store.base import LogEntry, SessionRecord
from acp_agent.store.session_store import SessionStore
from acp_agent.store.stores import postgres_store, sqlite_store
from tests.postgres_server import MISSING, PostgresServer

Figure = tuple[str, str, list[float], str]
SESSIONS, FOLDERS = 100_000, 200
TURNS, PAGE = 2_000, 200
DELTA = json.dumps(
    {
        "sessionUpdate": "agent_message_chunk",
        "messageId": str(uuid.uuid4()),
        "content": {"type": "text", "text": "word "},
    }
).encode()


def measure(home: Path) -> Iterator[Figure]:
    with closing(sqlite_store(home / "many.db")) as store:
        yield from _figures("SQLite", store)
    with server() as found, closing(postgres_store(found.url(), "bench")) as store:
        yield from _figures("PostgreSQL", store)


@contextmanager
def server() -> Iterator[PostgresServer]:
    if MISSING:
        raise SystemExit(MISSING)
    made = PostgresServer()
    try:
        yield made
    finally:
        made.remove()


def _figures(where: str, store: SessionStore) -> Iterator[Figure]:
    last = filled(store)

    def listed(**about: object) -> int:
        return len(store.sessions(**{"cwd": None, "before": None, "limit": 51, **about}))  # type: ignore[arg-type]

    yield f"{where}: a page of a list of 100,000 sessions", "20 ms", timed(listed), "ms"
    middle = store.sessions(cwd=None, before=None, limit=SESSIONS // 2)[-1]
    before = (middle.updated_at, middle.id)
    yield f"{where}: one from the middle of it", "20 ms", timed(lambda: listed(before=before)), "ms"
    yield f"{where}: one of a folder's sessions", "20 ms", timed(lambda: listed(cwd="/project/7")), "ms"
    yield f"{where}: a page of 200 messages of 2,000", "20 ms", timed(lambda: store.page(last, 0, PAGE)), "ms"
    yield f"{where}: a delta stored", "1 ms", timed(lambda: store.append(last, [LogEntry("update", DELTA)])), "ms"
    yield f"{where}: a turn of 100 updates indexed", "20 ms", _indexed(store, last), "ms"
    yield f"{where}: a search over 2,000 messages", "20 ms", timed(lambda: store.history.search("common number")), "ms"


def filled(store: SessionStore) -> str:
    """The id of a session with many messages."""
    columns = "id, cwd, additional_directories, created_at, updated_at, mode, model, thought_level, turns"
    rows = []
    for number in range(SESSIONS):
        at = f"2026-01-01T00:{number // 60_000:02}:{number // 1000 % 60:02}.{number % 1000:06}Z"
        folder = f"/project/{number % FOLDERS}"
        rows.append((str(uuid.uuid4()), folder, "[]", at, at, "code", "provider/model", "default", 1))
    with store._db.write() as db:
        db.many(f"INSERT INTO sessions ({columns}) VALUES (?,?,?,?,?,?,?,?,?)", rows)
    session = str(uuid.uuid4())
    store.create(SessionRecord(session, "/project/7"))
    store.change(session, new_turn=True)
    store.append(session, [_message(number) for number in range(TURNS)])
    store.history.index(session)
    return session


def _message(number: int) -> LogEntry:
    content = {"type": "text", "text": f"A common sentence with its number {number}, " + "and more words " * 20}
    update = {"sessionUpdate": "agent_message_chunk", "messageId": f"m{number}", "content": content}
    return LogEntry("update", json.dumps(update).encode())


def timed(work: Callable[[], object], times: int = 50) -> list[float]:
    work()
    samples = []
    for _ in range(times):
        started = time.monotonic()
        work()
        samples.append((time.monotonic() - started) * 1000)
    return samples


def _indexed(store: SessionStore, session: str) -> list[float]:
    samples = []
    for _ in range(10):
        store.append(session, [LogEntry("update", DELTA)] * 100)
        started = time.monotonic()
        store.history.index(session)
        samples.append((time.monotonic() - started) * 1000)
    return samples
