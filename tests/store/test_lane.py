"""Calls of a database in their order, whatever comes between them."""

import asyncio
import threading
from functools import partial
from typing import Any

import anyio

from acp_agent.store.lane import Lane


class Meddling:
    """A lock; `then` is called in the store's thread when that has given it back."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.then: Any = None

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if threading.current_thread().name == "store":
            self.then()


async def test_a_call_that_comes_as_the_thread_finds_that_nothing_waits_is_done_once_and_those_after_it() -> None:
    lane, done, loop, called = Lane(), list[int](), asyncio.get_running_loop(), threading.Event()

    def call() -> None:
        lane.call(partial(done.append, 2), lambda *_: None)
        called.set()

    def meddle() -> None:
        if not lane._running and not called.is_set():
            loop.call_soon_threadsafe(call)
            assert called.wait(10)

    lane._lock = lock = Meddling(lane._lock)  # type: ignore[assignment]
    lock.then = meddle
    with anyio.fail_after(10):
        for number in (1, 3, 4):
            await lane.do(done.append, number)
            await anyio.to_thread.run_sync(called.wait, 10)
    lane.end()
    assert done == [1, 2, 3, 4]
