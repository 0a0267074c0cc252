"""What is loaded behind the first answers: in small steps, while the process has nothing else to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import anyio
import anyio.to_thread

LOOK_EVERY = 0.1
"""Seconds between two looks at whether anything else is going on."""

QUIET = 0.01
"""Seconds of computing in that time, up to which nothing is."""

DISTURBED = 0.002
"""Seconds of computing beside a step, from which no further step is begun."""


async def warm(steps: Iterable[Callable[[], object]]) -> None:
    """Takes the steps in a thread, one after the other. A turn that begins waits for the end of one step at most, and
    none is begun before the process has been quiet again: what is needed at once is loaded by whoever needs it."""
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
    """Takes steps until there are none (then it is true) or something else computes."""
    begun = _beside()
    for step in steps:
        step()
        if _beside() - begun > DISTURBED:
            return False
    return True


def _beside() -> float:
    """Seconds that other threads of this process have computed."""
    return time.process_time() - time.thread_time()
