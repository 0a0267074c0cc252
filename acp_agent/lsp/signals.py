"""Waits for a condition to become true."""

from __future__ import annotations

from collections.abc import Callable

import anyio


class Signal:
    """Changes call `notify`, which makes waiting tasks check again."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify(self) -> None:
        event, self._event = self._event, anyio.Event()
        event.set()

    async def wait(self) -> None:
        await self._event.wait()

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            await self._event.wait()
