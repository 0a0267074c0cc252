"""When garbage is collected on a server.

To look through everything, as Python does by itself now and then, stops all sessions for a tenth of a second and more.
So it is done while no turn runs, and what is in use then is not looked through again until the next time.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import anyio

YOUNG, MIDDLE, NEVER = 10_000, 10, 1_000_000_000
"""Of `gc.set_threshold`."""
EVERY = 30.0
"""Seconds between two looks whether it is quiet."""
LATEST = 600.0
"""Seconds after which it is done though turns run."""


async def collecting(quiet: Callable[[], bool]) -> None:
    before = gc.get_threshold()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    try:
        last = time.monotonic()
        while True:
            await anyio.sleep(EVERY)
            made = gc.get_count()[2]
            if made and (quiet() or time.monotonic() - last > LATEST):
                gc.unfreeze()
                gc.collect()
                gc.freeze()
                last = time.monotonic()
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
