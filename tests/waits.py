"""Waiting for what nobody tells of."""

from collections.abc import Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


async def until(holds: Callable[[], T], *, seconds: float = 30) -> T:
    """Asks again until the answer is true; returns that."""
    with anyio.fail_after(seconds):
        while not (value := holds()):
            await anyio.sleep(0.01)
    return value
