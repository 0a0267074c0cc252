"""What every database of the store does: `sqlite` is one file of a user, `postgres` a schema on a server.

SQL stands once, in the parts of the store, with `?` for each value; ids come from `RETURNING`. It is synchronous, so
that a command and the first `session/new` need no event loop. On the event loop nothing waits for it: there, `do` and
`later` (`Part`) run it in a thread of the database's own (`lane`), in the order in which they were called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from msgspec import Struct

from acp_agent.errors import StoreError
from acp_agent.lazy import load

if TYPE_CHECKING:
    from acp_agent.store.lane import Lane

P = ParamSpec("P")
T = TypeVar("T")

FORMAT = 13
"""The last format of both databases."""

LANE = "acp_agent.store.lane:Lane"
"""Loaded when the event loop needs it: the first `session/new` does not."""


def migrations(file: str) -> dict[int, list[str]]:
    """The statements of each format, by its number."""
    _, *formats = Path(__file__).with_name(file).read_text(encoding="utf-8").split("-- format ")
    steps = (step.strip().split("\n\n") for step in formats)
    return {int(number): statements for number, *statements in steps}


def statements_after(made: int, file: str) -> list[str]:
    """Those that make the last format of this one."""
    return [each for number, statements in migrations(file).items() if number > made for each in statements]


def now() -> str:
    """This moment, as ISO 8601 in UTC."""
    return stamp(datetime.now(UTC))


def stamp(moment: datetime) -> str:
    """As the store has times: texts that compare as they do."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def clean(text: str) -> str:
    """Replaces lone surrogates, which no database accepts."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Transaction(Protocol):
    """What is done in it is done as a whole, or not at all."""

    def rows(self, query: str, *values: object) -> list[Any]:
        """All that the query finds."""
        ...

    def change(self, statement: str, *values: object) -> int:
        """Returns how many rows it was about."""
        ...

    def many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """The statement once for each row."""
        ...


class Words(Struct, frozen=True):
    """How words are looked for. The queries take what is wanted as their first value."""

    wanted: Callable[[Sequence[str]], str]
    """For texts that have one of the words; each may be the beginning of one."""
    all_wanted: Callable[[Sequence[str]], str]
    """For texts that have all of them."""
    memories: str
    """FROM and WHERE of the memories `m` that are wanted."""
    best: str
    """ORDER BY of these: the best first."""
    shown: str
    """FROM and WHERE of the rows `s` of `shown` that are wanted."""


class Database(ABC):
    """Use from one thread at a time. All methods raise StoreError, with a sentence that says what to do; StoreBusy if
    the same may work later; StoreConflict if the tables do not take it."""

    where: str
    """Where it is, for people: without a password."""
    words: Words
    clock: str
    """Its time, in SQL: Unix time in seconds."""
    tells = False
    """Whether processes can tell each other something by it; `notify` and `listen` need that."""

    @abstractmethod
    def write(self, *, durable: bool = False) -> AbstractContextManager[Transaction]:
        """One transaction. `durable`: a power cut cannot lose it either."""

    @abstractmethod
    def rows(self, query: str, *values: object) -> list[Any]:
        """All that the query finds. A statement is a transaction by itself."""

    @abstractmethod
    def insert(self, statement: str, key: str, *values: object) -> int:
        """Inserts one row; returns its `key`, which the database has made."""

    @abstractmethod
    def change(self, statement: str, *values: object) -> int:
        """One statement as a transaction; how many rows it was about."""

    def again(self, work: Callable[[], T]) -> T:
        """Does it, again where the connection is lost: `work` looks what of it is done already."""
        return work()

    @abstractmethod
    def another(self) -> Database:
        """The same database by a connection of its own."""

    @abstractmethod
    def close(self) -> None:
        """May be called twice."""

    def notify(self, notices: Sequence[tuple[str, str]]) -> None:
        """Channels and payloads, as `SessionStore.notify` has them."""
        raise StoreError(f"{self.where}: a store in a file tells other processes nothing")

    def listen(self, *channels: str) -> AsyncGenerator[str, None]:
        """As `SessionStore.listen`."""
        raise StoreError(f"{self.where}: a store in a file tells other processes nothing")

    @cached_property
    def lane(self) -> Lane:
        made: Lane = load(LANE)()
        return made


class Part:
    """Tables that belong together. All its methods are to be called off the event loop; on it: `do` and `later`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Does it in the database's thread, after all that was to be done before. Like any call it cannot be cancelled
        half-way: who is cancelled meanwhile gets to know it behind it."""
        return await self._db.lane.do(work, *args, **kwargs)

    def later(self, work: Callable[[], object], failed: Callable[[StoreError], None]) -> None:
        """As `do`, without waiting for it. `failed` gets to know the StoreError, on the event loop."""
        self._db.lane.later(work, failed)

    def at_leisure(self, work: Callable[[], object], failed: Callable[[StoreError], None]) -> None:
        """As `later`, after a moment in which others go first; not at all if the event loop ends before."""
        self._db.lane.at_leisure(work, failed)

    def call(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """As `later`; `done` gets what it returned or raised."""
        self._db.lane.call(work, done)

    def call_in(
        self, seconds: float, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> Callable[[], None]:
        """As `call`, after that time, unless what is returned is called before."""
        return self._db.lane.call_in(seconds, work, done)
