"""The store on PostgreSQL: a schema for each owner, connections that all schemas of a process share.

An idle connection that was closed meanwhile is noticed before it is used. One that is lost in the middle of something
leaves open whether that was done. Queries are asked again, as long as the server may be away. A change has the number
of its transaction, by which the server says afterwards whether it was done; one that was not is made again, unless
others were made with it: then StoreBusy says that nothing was stored. Entries of the log and notices are one exchange
and have none: who stores entries looks what of them is there (`SessionStore.append`), a notice may be lost. Statements
are bounded in time, and so is the wait for a connection or a lock.

Nothing here shows a password: neither `where` nor an error.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import select
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, lru_cache
from threading import Condition, Lock
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import psycopg
from psycopg import conninfo, sql

from acp_agent.errors import StoreBusy, StoreConflict, StoreError
from acp_agent.store.database import FORMAT, Database, Words, statements_after
from acp_agent.store.lane import Lane, Threads
from acp_agent.store.stores import LONGEST_NAME

T = TypeVar("T")

log = logging.getLogger(__name__)

MIGRATIONS = "formats_postgres.sql"
LONGEST_PAYLOAD = 7_999
"""Bytes of a payload of NOTIFY."""
CONNECT_AGAIN = 0.1
"""Seconds between two attempts to connect."""
LISTEN_AGAIN = 1.0
"""Seconds between two attempts to listen."""
UNNUMBERED = ("INSERT INTO log ", "SELECT pg_notify")
"""Statements that are no more than one exchange."""
ON_SOCKET = re.compile(r'on socket "[^"]*"')
NUL = "\u2400"
"""Stands for the character 0, which no text in PostgreSQL has."""

DIGESTS = {
    "ON CONFLICT (project, tool, scope)": "ON CONFLICT (project, tool, md5(scope))",
    "ON CONFLICT (project, steps)": "ON CONFLICT (project, md5(steps))",
    "ON CONFLICT (project, key)": "ON CONFLICT (project, md5(key))",
}
"""What is unique by its digest, since an index takes no long text."""

ALIVE = {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3", "tcp_user_timeout": "30000"}
"""Where the url says nothing else: a server that is gone without a word is noticed."""
TEXT = {"client_encoding": "UTF8"}
"""Of a database made in the locale C all texts would be bytes otherwise."""

WORDS = Words(
    wanted=lambda words: " | ".join(f"'{word}':*" for word in words),
    all_wanted=lambda words: " & ".join(f"'{word}':*" for word in words),
    memories="FROM memories m, to_tsquery('simple', ?) wanted WHERE m.words @@ wanted",
    best="ts_rank('{0, 0, 0.5, 1}', m.words, wanted) DESC",
    shown="FROM shown s, to_tsquery('simple', ?) wanted WHERE s.words @@ wanted",
)


class Lost(StoreBusy):
    """The connection was lost in the middle of something."""


class Undone(StoreBusy):
    """Nothing was stored, for sure."""


class Limits:
    """`connections` at most, of a process. `timeout`: seconds of a statement, and until there is a connection.
    `busy_timeout`: seconds of waiting for what another process is changing."""

    def __init__(
        self, connections: int = 8, timeout: float = 30.0, busy_timeout: float = 1.0, away: float = 5.0
    ) -> None:
        """`away`: seconds of waiting for a server that was there, and is not."""
        self.away = away
        self.connections = connections
        self.timeout = timeout
        self.busy_timeout = busy_timeout


class Pool:
    """The connections of a process to one server. Those that are idle keep the schema that they were used for last."""

    def __init__(self, url: str, limits: Limits) -> None:
        try:
            known = conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            raise StoreError(
                "store.url is not an address of PostgreSQL: postgresql://user@host:port/database"
            ) from error
        self._known: dict[str, Any] = {"connect_timeout": max(2, round(limits.timeout)), **ALIVE, **TEXT, **known}
        self._secrets = [str(known[name]) for name in ("password", "sslpassword") if known.get(name)]
        host = str(known.get("host", ""))
        self.where = f"postgresql://{'' if host.startswith('/') else host}/{known.get('dbname', '')}"
        self._reached = False
        """Whether it was ever there. From then on errors say no more than that it is not: clients read them."""
        self._away_since: float | None = None
        self.limits = limits
        self.threads = Threads(limits.connections)
        self._idle: list[tuple[str, psycopg.Connection]] = []
        self._used = 0
        self._free = Condition(Lock())

    def words_of(self, error: Exception) -> str:
        """What an error says, in one line, without a password."""
        text = ON_SOCKET.sub("on its socket", " ".join(str(error).split())) or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    @contextmanager
    def connection(self, schema: str) -> Iterator[psycopg.Connection]:
        """Raises StoreError."""
        db = self._taken(schema)
        try:
            with self.errors():
                yield db
        except StoreBusy as error:
            if db.closed and not isinstance(error, Lost | Undone):
                raise Lost(str(error)) from error
            raise
        finally:
            self._given_back(schema, db)

    def _taken(self, schema: str) -> psycopg.Connection:
        limits = self.limits
        with self._free:
            if not self._free.wait_for(lambda: self._used < limits.connections, limits.timeout):
                raise StoreBusy(f"{self.where}: all {limits.connections} connections are in use (store.connections)")
            self._used += 1
            found = self._found(schema)
        db: psycopg.Connection | None = None
        try:
            with self.errors():
                before, db = found or ("", self._connected())
                if before != schema:
                    db.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
                return db
        except BaseException as error:
            self._given_back("", db)
            if isinstance(error, StoreBusy) and db is not None and db.closed:
                raise Lost(str(error)) from error
            raise

    def _found(self, schema: str) -> tuple[str, psycopg.Connection] | None:
        """An idle connection that works, best one that was used for the same."""
        self._idle.sort(key=lambda each: each[0] == schema)
        while self._idle:
            before, db = self._idle.pop()
            if not _ended(db):
                return before, db
            db.close()
        return None

    def _given_back(self, schema: str, db: psycopg.Connection | None) -> None:
        with self._free:
            self._used -= 1
            if db is not None and not db.closed and db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                self._idle.append((schema, db))
            elif db is not None:
                db.close()
            self._free.notify()

    def _connected(self) -> psycopg.Connection:
        """Tries again for a while: nothing has been asked yet. Raises psycopg.Error."""
        while True:
            try:
                db = self.connect()
            except psycopg.OperationalError:
                self._away_since = now = self._away_since or time.monotonic()
                if not self._reached or time.monotonic() - now > self.limits.away:
                    raise
                time.sleep(CONNECT_AGAIN)
            else:
                self._reached, self._away_since = True, None
                return db

    def connect(self) -> psycopg.Connection:
        timeouts = self.limits
        db = psycopg.connect(**self._known, autocommit=True)
        db.execute(
            "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false), "
            "set_config('client_min_messages', 'error', false)",
            (str(round(timeouts.timeout * 1000)), str(round(timeouts.busy_timeout * 1000))),
        )
        return db

    async def connect_async(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(**self._known, autocommit=True)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns errors of the database into StoreError."""
        try:
            yield
        except psycopg.IntegrityError as error:
            raise StoreConflict(
                f"{self.where}: the session database does not take that: {self.words_of(error)}"
            ) from error
        except psycopg.errors.QueryCanceled as error:
            words = f"{self.where}: the session database did not answer within {self.limits.timeout:g} s; try again"
            raise StoreBusy(words) from error
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            raise StoreBusy(f"{self.where}: another agent keeps the session database busy; try again") from error
        except psycopg.OperationalError as error:
            said = self.words_of(error)
            if self._reached:
                log.error("%s: %s", self.where, said)
                words = "the session database cannot be reached; try again, the server's log says why"
                raise StoreBusy(words) from error
            if (error.sqlstate or "").startswith("28") or "password" in said:
                raise StoreError(f"{self.where}: the session database lets nobody in: {said}") from error
            raise StoreBusy(f"{self.where}: the session database cannot be reached: {said}; try again") from error
        except psycopg.Error as error:
            raise StoreError(f"{self.where}: the session database cannot be used: {self.words_of(error)}") from error

    def close(self) -> None:
        """What is idle; more may be opened later."""
        with self._free:
            for _, db in self._idle:
                db.close()
            self._idle.clear()
        self.threads.end()


def _ended(db: psycopg.Connection) -> bool:
    """Whether the server has closed it meanwhile: then there is something to read on a connection that is idle."""
    if db.closed:
        return True
    poll = select.poll()
    poll.register(db.fileno(), select.POLLIN | select.POLLERR | select.POLLHUP)
    return bool(poll.poll(0))


POOLS: dict[tuple[str, int], tuple[Pool, int]] = {}
"""By url and number of connections, with how many databases use it."""
_POOLS = Lock()


class Postgres(Database):
    """`schema`: of the owner. Databases of a process share their connections."""

    words = WORDS
    clock = "extract(epoch FROM clock_timestamp())::float8"
    tells = True

    def __init__(self, url: str, schema: str, limits: Limits) -> None:
        self._about = (url, schema, limits)
        self._key = (url, limits.connections)
        with _POOLS:
            pool, users = POOLS.get(self._key) or (Pool(url, limits), 0)
            POOLS[self._key] = (pool, users + 1)
        self._pool = pool
        self._schema = schema
        self._closed = False
        self.where = f"{pool.where} (schema {schema})"
        self.lane = Lane(pool.threads)
        try:
            self.again(self._open)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with self._pool.connection(self._schema) as db:
            if self._format(db) != FORMAT:
                self._migrate(db)

    def _format(self, db: psycopg.Connection) -> int:
        """0: there is nothing. Raises StoreError for what must not be touched."""
        table = sql.Identifier(self._schema, "format").as_string(db)
        ((there, others),) = db.execute(
            "SELECT to_regclass(%s) IS NOT NULL, EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = %s)",
            (table, self._schema),
        ).fetchall()
        if not there and others:
            raise StoreError(f"{self.where}: is another program's; choose another schema with store.schema")
        if not there:
            return 0
        ((made,),) = db.execute(
            sql.SQL("SELECT number FROM {}").format(sql.Identifier(self._schema, "format"))
        ).fetchall()
        if made > FORMAT:
            raise StoreError(
                f"{self.where}: created by a newer acp-coder (format {made}, this one knows {FORMAT}); update "
                "acp-coder, or choose another schema with store.schema. Nothing was changed."
            )
        return int(made)

    def _migrate(self, db: psycopg.Connection) -> None:
        """One process at a time; the others wait, as long as a statement may take."""
        name = sql.Identifier(self._schema)
        with db.transaction():
            db.execute("SET LOCAL lock_timeout = 0")
            lock = int.from_bytes(hashlib.sha256(self._schema.encode()).digest()[:8], "big", signed=True)
            db.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
            made = self._format(db)
            if not db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self._schema,)).fetchall():
                db.execute(sql.SQL("CREATE SCHEMA {}").format(name))
            for statement in statements_after(made, MIGRATIONS):
                db.execute(statement)
            if not made:
                db.execute("CREATE TABLE format (number INTEGER NOT NULL)")
                db.execute("INSERT INTO format VALUES (0)")
            db.execute("UPDATE format SET number = %s", (FORMAT,))

    @contextmanager
    def write(self, *, durable: bool = False) -> Iterator[_Transaction]:
        number: int | None = None
        try:
            with ExitStack() as stack:
                db, number = self.again(lambda: self._begun(stack))
                try:
                    yield _Transaction(db)
                except BaseException:
                    if not db.closed:
                        db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")
        except Lost as error:
            if number is None or not self._was_done(number):
                raise Undone(f"{error}. Nothing of the last change was stored") from error

    def _begun(self, stack: ExitStack) -> tuple[psycopg.Connection, int]:
        """A connection with a transaction, and the number of that."""
        with ExitStack() as inner:
            db = inner.enter_context(self._connection())
            cursor = db.execute("BEGIN; SELECT txid_current()", prepare=False)
            cursor.nextset()
            ((number,),) = cursor.fetchall()
            stack.push(inner.pop_all())
        return db, int(number)

    def _was_done(self, number: int) -> bool:
        """Whether a transaction was, whose connection was lost; the server may need a moment to notice that. Raises
        StoreBusy if that cannot be known."""

        def asked() -> str | None:
            with self._connection() as db:
                status: str | None = db.execute("SELECT txid_status(%s)", (number,)).fetchall()[0][0]
            if status == "in progress":
                raise Lost("its transaction has not ended yet")
            return status

        try:
            status = self.again(asked)
        except StoreError as error:
            log.error("transaction %d: %s", number, error)
            status = None
        if status is None:
            words = "the connection to the session database was lost: whether the last change was stored is not known"
            raise StoreBusy(f"{words}; try again")
        return status == "committed"

    def again(self, work: Callable[[], T]) -> T:
        """As long as the server may be away."""
        until: float | None = None
        while True:
            try:
                return work()
            except (Lost, Undone) as error:
                until = until or time.monotonic() + self._pool.limits.away
                if time.monotonic() > until:
                    raise
                log.warning("%s: %s", self.where, error)
                time.sleep(CONNECT_AGAIN)

    def _done(self, statement: str, work: Callable[[_Transaction], T]) -> T:
        """What a statement by itself gives."""

        def alone() -> T:
            with self._connection() as db:
                return work(_Transaction(db))

        def numbered() -> T:
            with self.write() as db:
                return work(db)

        if statement.startswith(UNNUMBERED):
            return alone()
        return self.again(alone if statement.startswith("SELECT") else numbered)

    def rows(self, query: str, *values: object) -> list[Any]:
        return self._done(query, lambda db: db.rows(query, *values))

    def insert(self, statement: str, key: str, *values: object) -> int:
        return int(self.rows(f"{statement} RETURNING {key}", *values)[0][0])

    def change(self, statement: str, *values: object) -> int:
        return self._done(statement, lambda db: db.change(statement, *values))

    def _connection(self) -> AbstractContextManager[psycopg.Connection]:
        if self._closed:
            raise StoreError(f"{self.where}: the session database has been closed")
        return self._pool.connection(self._schema)

    def another(self) -> Postgres:
        return Postgres(*self._about)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with _POOLS:
            pool, users = POOLS[self._key]
            POOLS[self._key] = (pool, users - 1)
            if users == 1:
                del POOLS[self._key]
                pool.close()

    # --- other processes --------------------------------------------------------------------------------------

    @cached_property
    def _secret(self) -> str:
        return str(self.rows("SELECT secret FROM channels")[0][0])

    def _channel(self, channel: str) -> str:
        """Channels are of the whole database, for all who can connect to it: so they are named by a secret of the
        schema's."""
        return hmac.new(self._secret.encode(), channel.encode(), "sha256").hexdigest()[:LONGEST_NAME]

    def notify(self, notices: Sequence[tuple[str, str]]) -> None:
        if any(len(payload.encode()) > LONGEST_PAYLOAD for _, payload in notices):
            raise StoreError(f"{self.where}: a message of more than {LONGEST_PAYLOAD} bytes cannot be told")
        channels = [self._channel(channel) for channel, _ in notices]
        told = "SELECT pg_notify(channel, payload) FROM unnest(?::text[], ?::text[]) AS told(channel, payload)"
        self.rows(told, channels, [payload for _, payload in notices])

    async def listen(self, *channels: str) -> AsyncGenerator[str, None]:
        while True:
            try:
                names = await anyio.to_thread.run_sync(lambda: [self._channel(channel) for channel in channels])
                db = await self._pool.connect_async()
                async with db:
                    for name in names:
                        await db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(name)))
                    yield ""
                    async for told in db.notifies():
                        yield told.payload
            except psycopg.OperationalError:
                await anyio.sleep(LISTEN_AGAIN)


class _Transaction:
    def __init__(self, db: psycopg.Connection) -> None:
        self._db = db

    def rows(self, query: str, *values: object) -> list[Any]:
        return self._db.execute(_translated(query), _taken(values)).fetchall()

    def change(self, statement: str, *values: object) -> int:
        return self._db.execute(_translated(statement), _taken(values)).rowcount

    def many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        with self._db.cursor() as cursor:
            cursor.executemany(_translated(statement), [_taken(row) for row in rows])


@lru_cache(maxsize=500)
def _translated(statement: str) -> str:
    """With PostgreSQL's sign for a value."""
    for ours, theirs in DIGESTS.items():
        statement = statement.replace(ours, theirs)
    return statement.replace("?", "%s")


def _taken(values: Iterable[object]) -> list[object]:
    return [value.replace("\0", NUL) if isinstance(value, str) and "\0" in value else value for value in values]
