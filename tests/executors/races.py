"""Swaps files while others look at them, as fast as the machine can."""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from acp_agent.errors import AgentError

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
def swapping(one: Path, other: Path) -> Iterator[threading.Lock]:
    """Swaps the two all the time, from another thread; who holds the lock sees them stand as at the beginning."""
    stop = threading.Event()
    lock = threading.Lock()

    def swap() -> None:
        while not stop.is_set():
            with lock:
                exchange(one, other)
                exchange(one, other)

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    try:
        yield lock
    finally:
        stop.set()
        thread.join(ENDS_WITHIN)
        assert not thread.is_alive()


def ends_soon(work: Callable[[], object]) -> Exception | None:
    """The error of ours or of the system that `work` raised; a work that waits fails the test instead of hanging it."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            work()
        except (AgentError, OSError) as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ENDS_WITHIN)
    assert not thread.is_alive(), "it waits"
    return raised[0] if raised else None
