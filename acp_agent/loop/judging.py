"""Work that asks the disk of a session's folders, which may be another machine's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

from acp_agent.safety.folders.paths import Roots

T = TypeVar("T")


async def judged(roots: Roots, work: Callable[[], T]) -> T:
    """What `work` returns: in a thread, where an answer of another machine can be awaited. It must not change what
    others use meanwhile."""
    if roots.disk.here:
        return work()
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
