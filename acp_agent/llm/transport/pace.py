"""How often the answers of models are read while many arrive at once, as on a server.

Most of what a piece of an answer costs, it costs however long it is. So with many streams each is read once in a while,
and what came meanwhile is one piece for all that follows: store, connections, clients. With few, nothing waits.
"""

from __future__ import annotations

import time

import anyio

INTERVAL = 0.04
"""Seconds between two reads of a stream, if there are many."""
MANY = 32
"""Streams that are read within an interval."""


class Pace:
    """Of all streams of the process."""

    def __init__(self) -> None:
        self._interval = 0
        self._before = 0
        """Streams that were read in the interval before."""
        self._readers: set[int] = set()

    async def wait(self, reader: int) -> None:
        """Before each read of a stream. `reader`: which one."""
        now = time.monotonic()
        interval = int(now / INTERVAL)
        if interval != self._interval:
            self._before = len(self._readers) if interval == self._interval + 1 else 0
            self._interval, self._readers = interval, set()
        self._readers.add(reader)
        if max(self._before, len(self._readers)) > MANY:
            await anyio.sleep((interval + 1) * INTERVAL - now)


PACE = Pace()
