"""How many files and sockets this process may have open.

The soft limit is raised at start. What we start gets the one that we were started with (`as_before`, `behind`,
`restoring`): some programs close all descriptors that they could have, or cannot use high ones. The browser's driver is
Node.js, which raises its own.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

WANTED = (65_536, 10_240)
"""The second for macOS, which allows less than it says."""
PARTS = 16
"""Of all descriptors: Shares are so many of these; what is left is the agent's own (stores, logs, processes)."""
LEAST = 64
"""With fewer not even one command may find all that it needs."""
RESERVE = 2
"""So many are never held for others, whatever they are for."""

_before: list[int] = []
"""The soft limit that we were started with, if it was raised."""


def raise_limit() -> None:
    """To be called once, when the process starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in WANTED:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most and not _before:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                _before.append(soft)


def fits(parts: int, each: int = 1) -> int:
    """How many things of so many descriptors each fit in so many `PARTS`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (WANTED[0] if soft == resource.RLIM_INFINITY else soft) * parts // PARTS // each)


def few_left() -> str:
    """Why nothing more may be held for others: what is left is the agent's own. Empty: there are more. As costly as
    opening a file: the system gives the lowest number that is free."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        os.close(lowest := os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        lowest = soft
    if soft == resource.RLIM_INFINITY or lowest < fits(PARTS - RESERVE):
        return ""
    return f"this agent has few file descriptors left ({soft} in all, `ulimit -n`): end something, or try again later."


def too_few() -> str:
    """What to add to what went wrong, where this process may hardly open anything; else empty."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f" (this process may open {soft} files; {LEAST} are needed: `ulimit -n`)" if 0 <= soft < LEAST else ""


def as_before() -> str:
    """What a shell begins with: without a cost."""
    return f"ulimit -S -n {_before[0]}; " if _before else ""


def behind(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line behind such a shell, for what takes no `restoring`, or is started often."""
    return ("/bin/sh", "-c", f'{as_before()}exec "$@"', "sh", *argv) if _before else tuple(argv)


def restoring() -> dict[str, Any]:
    """Arguments of `Popen`, for what is no shell. What runs between fork and exec is a single call of the system."""
    if not _before:
        return {}
    limits = (_before[0], resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    return {"preexec_fn": partial(resource.setrlimit, resource.RLIMIT_NOFILE, limits)}
