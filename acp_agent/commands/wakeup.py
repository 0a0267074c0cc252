"""Signals that are heard while the main thread is blocked: Python runs its handlers only when that continues."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

ENDING = frozenset((signal.SIGTERM, signal.SIGINT))


def watch_signals(heard: Callable[[], None]) -> int:
    """Calls `heard` in a thread at the first signal that ends the agent; others have a handler only for the sake of its
    children (`default_signals`). Closing the returned file descriptor, once `signal.set_wakeup_fd` has another, ends
    the thread."""
    read, write = os.pipe()
    os.set_blocking(write, False)

    def watch() -> None:
        while numbers := os.read(read, 64):
            if not ENDING.isdisjoint(numbers):
                heard()
                break
        os.close(read)

    threading.Thread(target=watch, daemon=True).start()
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return write
