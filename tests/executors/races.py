"""Somebody who swaps things while others look, as fast as the machine can."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["EXCHANGES", "ends_soon", "exchange", "swapping"]

RENAME_EXCHANGE = 2
AT_FDCWD = -100
ENDS_WITHIN = 20.0

_libc = ctypes.CDLL(None, use_errno=True)
EXCHANGES = hasattr(_libc, "renameat2")


def exchange(one: Path, other: Path) -> None:
    """Each gets the other's name, at once."""
    if _libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Swaps the two all the time, from another thread; at the end they stand as at the beginning."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            exchange(one, other)
            exchange(one, other)

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(ENDS_WITHIN)
        assert not thread.is_alive()


def ends_soon(work: Callable[[], object]) -> BaseException | None:
    """What `work` raised; a work that waits for something fails the test instead of hanging it."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # whatever it is: the test looks at it
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ENDS_WITHIN)
    assert not thread.is_alive(), "it waits"
    return raised[0] if raised else None
