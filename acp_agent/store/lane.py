"""Calls of a database, off the event loop: one after the other, in the order in which they came.

A thread is what serves both databases best: SQLite has nothing asynchronous, and with PostgreSQL a synchronous
connection in a thread answers sooner than one on a busy event loop, and lets SQL stand once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

import anyio

from acp_agent.errors import StoreError

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

LEISURE = 0.25
"""Seconds."""


class Threads:
    """Run what they are given, which must not raise. Each starts when it is needed, `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._started = self._unfinished = 0
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = Lock()

    def put(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._unfinished += 1
            starts = self._unfinished > self._started < self._most
            self._started += starts
        self._calls.put(call)
        if starts:
            Thread(target=self._run, name="store", daemon=True).start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            with self._lock:
                self._unfinished -= 1

    def end(self) -> None:
        """Ends them behind what they were given. They start again if they are given more."""
        with self._lock:
            started, self._started = self._started, 0
        for _ in range(started):
            self._calls.put(None)


class Lane:
    """The calls of one database. Many lanes may share threads; without, it has one of its own."""

    def __init__(self, threads: Threads | None = None) -> None:
        self._own = None if threads is not None else Threads(1)
        self._threads = threads or self._own or Threads(1)
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = False
        self._lock = Lock()

    def call(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """To be called on the event loop, where `done` gets what the work returned or raised. It is not called if the
        event loop ends before."""
        with self._lock:
            self._waiting.append(partial(_call, work, done, asyncio.get_running_loop()))
            starts, self._running = not self._running, True
        if starts:
            self._threads.put(self._next)

    def _next(self) -> None:
        with self._lock:
            call = self._waiting.popleft()
        call()
        with self._lock:
            self._running = more = bool(self._waiting)
        if more:  # Other lanes get their turn in between.
            self._threads.put(self._next)

    def together(
        self,
        work: Callable[[list[T]], Sequence[R | StoreError]],
        item: T,
        done: Callable[[R | None, BaseException | None], None],
    ) -> None:
        """As `call`; items that wait behind one another for the same work are done at once. The work returns what
        becomes of each; what it raises, all get."""
        with self._lock:
            last = self._waiting[-1] if self._waiting else None
            if isinstance(last, _Together) and last.work == work:
                last.add(item, done)
                return
            self._waiting.append(joined := _Together(work, asyncio.get_running_loop()))
            joined.add(item, done)
            starts, self._running = not self._running, True
        if starts:
            self._threads.put(self._next)

    async def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.call(partial(work, *args, **kwargs), partial(_settle, future))
        with anyio.CancelScope(shield=True):
            await future
        done: T = future.result()
        return done

    def later(self, work: Callable[[], object], failed: Callable[[StoreError], None]) -> None:
        self.call(work, partial(_told, failed))

    def at_leisure(self, work: Callable[[], object], failed: Callable[[StoreError], None]) -> None:
        """As `later`, after a moment in which others go first; not at all if the event loop ends before."""
        asyncio.get_running_loop().call_later(LEISURE, self.later, work, failed)

    def call_in(
        self, seconds: float, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> Callable[[], None]:
        return asyncio.get_running_loop().call_later(seconds, self.call, work, done).cancel

    def end(self) -> None:
        """Ends a thread of its own behind what it was given."""
        if self._own is not None:
            self._own.end()


class _Together:
    def __init__(self, work: Callable[[list[Any]], Sequence[Any]], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self._loop = loop
        self._items: list[Any] = []
        self._done: deque[Callable[[Any, BaseException | None], None]] = deque()

    def add(self, item: object, done: Callable[[Any, BaseException | None], None]) -> None:
        self._items.append(item)
        self._done.append(done)

    def __call__(self) -> None:
        """In a thread."""
        _call(partial(self.work, self._items), self._tell, self._loop)

    def _tell(self, results: Sequence[Any] | None, failure: BaseException | None) -> None:
        left = deque(results or ())
        try:
            while self._done:
                done, result = self._done.popleft(), left.popleft() if failure is None else failure
                if isinstance(result, BaseException):
                    done(None, result)
                else:
                    done(result, None)
        finally:
            if self._done:  # One of them has failed; the others are told all the same.
                self._loop.call_soon(self._tell, left, failure)


def _call(work: Callable[[], Any], done: Callable[[Any, Any], None], loop: asyncio.AbstractEventLoop) -> None:
    """In a thread. Whatever it raises is raised where it is waited for."""
    result, failure = None, None
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - Whoever waits gets to know it.
        failure = error
    with suppress(RuntimeError):  # The loop has been closed: nobody waits.
        loop.call_soon_threadsafe(done, result, failure)


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # Who waited for it was ended by force.
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _told(failed: Callable[[StoreError], None], _: object, error: BaseException | None) -> None:
    if isinstance(error, StoreError):
        failed(error)
    elif error is not None:
        raise error
