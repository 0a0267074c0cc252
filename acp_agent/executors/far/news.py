"""What one thread tells a task of another, in order."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")

DRAINED = 4096


class News(Generic[T]):
    """Put in by any thread, taken by one task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[T] = []
        self._reads, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closed = False

    def put(self, item: T) -> None:
        """Does nothing once it is closed."""
        with self._lock, contextlib.suppress(BlockingIOError):  # Who is to be woken often enough is awake.
            if not self._closed:
                self._items.append(item)
                os.write(self._wakes, b"x")

    def take(self) -> list[T]:
        """All that was put in since; empty once it is closed."""
        with self._lock:
            if not self._closed:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._reads, DRAINED)
            items, self._items = self._items, []
        return items

    async def wait(self) -> None:
        """Until there is something to take."""
        await anyio.wait_readable(self._reads)

    def close(self) -> None:
        """Nobody may be waiting. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._items = []
            os.close(self._reads)
            os.close(self._wakes)
