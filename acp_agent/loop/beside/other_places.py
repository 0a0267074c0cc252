"""The parts of a session for single calls and sub-agents in places whose files are others than the session's."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from acp_agent.loop.session import Session
    from acp_agent.loop.turns.parts import Parts


class OtherPlaces:
    """They are kept until the session ends, or leaves its own place."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._parts: dict[str, Parts] = {}

    @cached_property
    def _building(self) -> anyio.Lock:
        return anyio.Lock()

    async def parts(self, place: str) -> Parts:
        """Raises ExecutorError if the place cannot be reached."""
        async with self._building:
            known = self._parts.get(place)
            if known is not None and known.shell.confinement.over:
                await self._parts.pop(place).close()
                known = None
            if known is None:
                known = self._parts[place] = await self._session.parts_elsewhere(place=place)
            return known

    async def close(self) -> None:
        parts, self._parts = self._parts, {}
        async with AsyncExitStack() as ends:
            for each in parts.values():
                ends.push_async_callback(each.close)
