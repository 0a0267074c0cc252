"""Loads modules after the first responses: in small steps, while the process is idle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import anyio
import anyio.to_thread

LOOK_EVERY = 0.1
"""Seconds between two checks for other activity."""

QUIET = 0.01
"""CPU seconds in that time up to which the process counts as idle."""

DISTURBED = 0.002
"""CPU seconds of other threads during a step from which no further step is started."""


async def warm(steps: Iterable[Callable[[], object]]) -> None:
    """Runs the steps in a thread, one after the other. A turn that starts waits for at most one step, and no other step
    starts before the process is idle again: whoever needs a module immediately loads it."""
    left = iter(steps)
    await _quiet()
    while not await anyio.to_thread.run_sync(_some, left):
        await _quiet()


async def _quiet() -> None:
    while True:
        before = time.process_time()
        await anyio.sleep(LOOK_EVERY)
        if time.process_time() - before <= QUIET:
            return


def _some(steps: Iterator[Callable[[], object]]) -> bool:
    """Runs steps until none are left (returns true) or something else computes."""
    begun = _beside()
    for step in steps:
        step()
        if _beside() - begun > DISTURBED:
            return False
    return True


def _beside() -> float:
    """Seconds that other threads of this process have computed."""
    return time.process_time() - time.thread_time()
