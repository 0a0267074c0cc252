"""What only PostgreSQL has: a server that goes away, schemas, notifications, bounds."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path
from threading import Thread

import anyio
import psycopg
import pytest
from pytest import MonkeyPatch

from acp_agent.errors import StoreBusy, StoreError
from acp_agent.store import postgres as postgres_module
from acp_agent.store.base import LogEntry, SessionRecord
from acp_agent.store.database import FORMAT
from acp_agent.store.session_store import SessionStore
from acp_agent.store.stores import postgres_store, schema_of
from tests.postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parents[3]
BOUND = 60.0

TELL = """
import sys
from acp_agent.store.stores import postgres_store
postgres_store(sys.argv[1], sys.argv[2]).notify([("news", sys.argv[3])])
"""


@pytest.fixture
def schema() -> str:
    return f"t_{uuid.uuid4().hex}"


@pytest.fixture
def store(postgres: PostgresServer, schema: str) -> Iterator[SessionStore]:
    with closing(postgres_store(postgres.url(), schema)) as made:
        made.create(SessionRecord("s", "/project"))
        yield made


@pytest.fixture
def ours() -> Iterator[PostgresServer]:
    """A server that is stopped and started."""
    server = PostgresServer()
    yield server
    server.remove()


def texts(store: SessionStore) -> list[bytes]:
    return [entry.payload for entry in store.entries("s")]


def entry(text: str) -> LogEntry:
    return LogEntry("update", text.encode())


def end_connections(server: PostgresServer) -> None:
    """Of everybody else."""
    with psycopg.connect(server.url(), autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def test_connections_that_were_ended_while_idle_are_made_anew_unnoticed(postgres: PostgresServer, store: SessionStore):
    store.append("s", [entry("1")])
    end_connections(postgres)
    store.append("s", [entry("2")])
    end_connections(postgres)
    assert texts(store) == [b"1", b"2"]


def test_a_server_that_is_away_is_used_once_it_is_back(postgres: PostgresServer, schema: str, ours: PostgresServer):
    with closing(postgres_store(ours.url(), schema, timeout=5, away=0.1)) as store:
        store.create(SessionRecord("s", "/project"))
        store.append("s", [entry("1")])
        ours.stop()
        with pytest.raises(StoreBusy, match=r"cannot be reached; try again") as error:
            store.append("s", [entry("2")])
        assert str(ours.folder) not in str(error.value), "a client reads it"
        with pytest.raises(StoreBusy, match="cannot be reached"):
            postgres_store(ours.url(), "other", timeout=5)
        ours.start()
        store.append("s", [entry("2")])
        assert texts(store) == [b"1", b"2"]


def test_a_server_that_is_away_for_a_moment_is_waited_for(schema: str, ours: PostgresServer) -> None:
    with closing(postgres_store(ours.url(), schema, timeout=5, away=20)) as store:
        store.create(SessionRecord("s", "/project"))
        ours.stop()
        waits = Thread(target=store.append, args=("s", [entry("1")]), daemon=True)
        waits.start()
        waits.join(0.5)
        assert waits.is_alive()
        ours.start()
        waits.join(BOUND)
        assert texts(store) == [b"1"]


def test_a_connection_that_is_lost_within_a_transaction_loses_all_of_it(postgres: PostgresServer, store: SessionStore):
    with pytest.raises(StoreBusy, match="cannot be reached"), store._db.write() as db:
        db.change("UPDATE sessions SET title = 'half' WHERE id = ?", "s")
        end_connections(postgres)
        db.change("UPDATE sessions SET mode = 'half' WHERE id = ?", "s")
    found = store.get("s")
    assert found is not None and found.title is None


@pytest.mark.parametrize("moment", ["BEGIN", "statement", "statement done", "COMMIT", "COMMIT done"])
@pytest.mark.parametrize("whole", [True, False], ids=["one statement", "several"])
def test_a_change_whose_connection_is_lost_is_made_once_or_told_truly(
    store: SessionStore, monkeypatch: MonkeyPatch, moment: str, whole: bool
) -> None:
    execute, lost = psycopg.Connection.execute, list[str]()

    def losing(db: psycopg.Connection, query: object, *values: object, **more: object) -> object:
        kind = next((word for word in ("BEGIN", "COMMIT") if str(query).startswith(word)), "statement")
        cut = not lost and "turns + 1" in str(query) if kind == "statement" else not lost
        if cut and moment in (kind, f"{kind} done"):
            lost.append(kind)
            if moment.endswith("done"):
                execute(db, query, *values, **more)  # type: ignore[call-overload]
            db.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return execute(db, query, *values, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(psycopg.Connection, "execute", losing)
    told = ""
    if whole:
        store.change("s", new_turn=True)
    else:
        try:
            with store._db.write() as db:
                db.change("UPDATE sessions SET turns = turns + 1 WHERE id = ?", "s")
        except StoreBusy as error:
            told = str(error)
    assert lost, "the connection was lost"
    found = store.get("s")
    assert found is not None and found.turns == (0 if told else 1)
    untold = whole or moment in ("BEGIN", "COMMIT done")
    assert ("Nothing of the last change was stored" in told) is not untold


def test_a_change_that_was_perhaps_made_is_told_so(schema: str, ours: PostgresServer, monkeypatch: MonkeyPatch):
    with closing(postgres_store(ours.url(), schema, timeout=5, away=0.1)) as store:
        store.create(SessionRecord("s", "/project"))
        unknown = pytest.raises(StoreBusy, match="whether the last change was stored is not known; try again")
        with unknown as error, store._db.write() as db:
            db.change("UPDATE sessions SET turns = 1 WHERE id = ?", "s")
            ours.stop()
        assert str(ours.folder) not in str(error.value)
        ours.start()


def test_a_lost_query_is_asked_again(postgres: PostgresServer, store: SessionStore, monkeypatch: MonkeyPatch) -> None:
    rows, asked = postgres_module._Transaction.rows, list[str]()

    def losing(db: postgres_module._Transaction, query: str, *values: object) -> list[object]:
        asked.append(query)
        if len(asked) < 4:
            end_connections(postgres)
        return rows(db, query, *values)

    monkeypatch.setattr(postgres_module._Transaction, "rows", losing)
    assert store.count() == 0 and len(asked) == 4


def test_what_may_have_been_stored_is_stored_once(store: SessionStore) -> None:
    (before,) = store.append("s", [entry("0")])
    places = store.append("s", [entry("1"), entry("2")])
    again = store.append("s", [entry("1"), entry("2"), entry("3")], after=before)
    assert list(again[:2]) == list(places), "an attempt whose answer was lost had stored them"
    assert store.append("s", [entry("4")], after=again[-1]) != again[-1:], "this one had stored nothing"
    assert texts(store) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.fixture
def own_url(postgres: PostgresServer) -> str:
    """Of connections that nobody else in this process uses, with whatever bounds they were made."""
    return postgres.url(application_name=uuid.uuid4().hex)


def test_a_statement_that_takes_too_long_and_who_gets_no_connection_are_told(own_url: str, schema: str) -> None:
    with closing(postgres_store(own_url, schema, timeout=0.2)) as store:
        with pytest.raises(StoreBusy, match=r"did not answer within 0\.2 s"):
            store._db.rows("SELECT pg_sleep(60)")
        assert store.count() == 0, "the connection is used again"
    with closing(postgres_store(own_url, schema, connections=1, timeout=0.2)) as store:
        with store._db.write(), pytest.raises(StoreBusy, match=r"all 1 connections are in use \(store.connections\)"):
            store.count()
        assert store.count() == 0


def test_a_row_that_another_process_is_changing_is_waited_for_in_bounds(own_url: str, schema: str, store: SessionStore):
    with (
        closing(postgres_store(own_url, schema, busy_timeout=0.1)) as other, store._db.write() as db,
        pytest.raises(StoreBusy, match="another agent keeps the session database busy"),
    ):  # fmt: skip
        db.change("UPDATE sessions SET title = 'mine' WHERE id = ?", "s")
        other.change("s", title="theirs")


def test_owners_do_not_see_each_other_and_names_are_never_sql(postgres: PostgresServer, schema: str) -> None:
    names = [schema_of(schema, owner) for owner in ('"; DROP SCHEMA public; --', "ü" * 100, "me", "Me")]
    assert len({name.encode()[:63] for name in names}) == 4
    stores = [postgres_store(postgres.url(), name) for name in names]
    for number, store in enumerate(stores):
        store.create(SessionRecord("same", f"/{number}"))
    for number, store in enumerate(stores):
        found = store.get("same")
        assert found is not None and found.cwd == f"/{number}"
        store.close()


def test_databases_of_a_process_share_their_connections(own_url: str, schema: str) -> None:
    stores = [postgres_store(own_url, f"{schema}_{number}") for number in range(4)]
    pool, users = postgres_module.POOLS[own_url, 8]
    assert users == 4 and len(pool._idle) == 1
    for store in stores:
        store.close()
        store.close()


def test_texts_of_a_database_without_an_encoding_are_texts(postgres: PostgresServer, schema: str) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f"CREATE DATABASE {schema} ENCODING SQL_ASCII LOCALE 'C' TEMPLATE template0")
    try:
        with closing(postgres_store(postgres.url().replace("/postgres?", f"/{schema}?"), schema)) as store:
            store.audit_heads.write("täglich", 1, "abc", 1)
            assert store.audit_heads.read("täglich") == (1, "abc", 1)
    finally:
        with psycopg.connect(postgres.url(), autocommit=True) as db:
            db.execute(f"DROP DATABASE {schema} WITH (FORCE)")


def test_a_newer_schema_is_left_as_it_is(postgres: PostgresServer, schema: str) -> None:
    postgres_store(postgres.url(), schema).close()
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f'UPDATE "{schema}".format SET number = {FORMAT + 1}')
    with pytest.raises(StoreError, match=r"newer acp-coder .* Nothing was changed"):
        postgres_store(postgres.url(), schema)


def test_sessions_of_the_format_before_archives_are_kept_and_none_is_archived(
    postgres: PostgresServer, schema: str
) -> None:
    with closing(postgres_store(postgres.url(), schema)) as store:
        store.create(SessionRecord("s", "/x", title="T", turns=1))
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f'ALTER TABLE "{schema}".sessions DROP COLUMN archived')
        db.execute(f'UPDATE "{schema}".format SET number = 12')
    with closing(postgres_store(postgres.url(), schema)) as store:
        (found,) = store.sessions(cwd=None, before=None, limit=9, archived=False)
        assert (found.id, found.title, found.archived) == ("s", "T", False)


def test_a_schema_of_another_program_is_left_as_it_is(postgres: PostgresServer, schema: str) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f'CREATE SCHEMA "{schema}"')
        db.execute(f'CREATE TABLE "{schema}".theirs (x INTEGER)')
    with pytest.raises(StoreError, match=r"another program's; choose another schema with store\.schema"):
        postgres_store(postgres.url(), schema)


def test_no_password_is_shown(postgres: PostgresServer, schema: str) -> None:
    with closing(postgres_store(postgres.url().replace("acp@", "acp:hunter2@"), schema)) as store:
        assert "hunter2" not in store.where and schema in store.where
        with pytest.raises(StoreError) as error:
            store._db.rows("SELECT 'hunter2' FROM nowhere")
        assert "hunter2" not in str(error.value)
    for wrong in ("postgresql://me:hunter2@[", "postgresql://me:hunter2@/x?nonsense=1", "hunter2"):
        with pytest.raises(StoreError) as error:
            postgres_store(wrong, schema)
        assert "hunter2" not in str(error.value)


def test_what_is_too_long_for_an_index_is_kept(store: SessionStore) -> None:
    long = " ".join(map(str, range(200_000)))  # Of these words PostgreSQL could not make an index.
    for _ in range(2):
        store.remember("/p", "bash", f"bash = {long[:20_000]}", "allow")
        store.memories.store("/p", long[:20_000], long, "core")
        assert [memory.content for memory in store.memories.recall(("/p",), "4242", 5)] == [long]
        store.questions.answered("/p", "bash", [long[:20_000]], allowed=True)
    assert len(store.permissions("/p")) == 1 and [asked.allowed for asked in store.questions.counts("/p", 5)] == [2]


async def test_what_another_process_tells_is_heard(postgres: PostgresServer, schema: str, store: SessionStore) -> None:
    with closing(postgres_store(postgres.url(), f"{schema}_x")) as stranger, anyio.fail_after(BOUND):
        async with aclosing(store.listen("news")) as heard:
            assert await anext(heard) == "", "it listens"
            stranger.notify([("news", "of another owner")])
            store.notify([("other", "on another channel")])
            command = [sys.executable, "-c", TELL, postgres.url(), schema, "söme 'words'"]
            await anyio.to_thread.run_sync(lambda: subprocess.run(command, check=True, cwd=ROOT, timeout=BOUND))
            assert await anext(heard) == "söme 'words'"


async def test_a_channel_has_a_name_nobody_can_guess(postgres: PostgresServer, schema: str, store: SessionStore):
    with anyio.fail_after(BOUND), closing(psycopg.connect(postgres.url(), autocommit=True)) as stranger:
        async with aclosing(store.listen("news")) as heard:
            assert await anext(heard) == ""
            for name in ("news", f"{schema}.news", f"{schema}_news"):
                stranger.execute("SELECT pg_notify(%s, 'forged')", (name,))
            store.notify([("news", "true")])
            assert await anext(heard) == "true"


async def test_who_listens_goes_on_after_a_loss(
    postgres: PostgresServer, store: SessionStore, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "LISTEN_AGAIN", 0.01)
    with anyio.fail_after(BOUND):
        async with aclosing(store.listen("news")) as heard:
            assert await anext(heard) == ""
            end_connections(postgres)
            assert await anext(heard) == "", "something may have been missed"
            store.notify([("news", "again")])
            assert await anext(heard) == "again"


def test_a_message_that_is_too_long_to_be_told_is_refused(store: SessionStore) -> None:
    store.notify([("news", "x" * 7_999)])
    with pytest.raises(StoreError, match="more than 7999 bytes"):
        store.notify([("news", "x" * 8_000)])
