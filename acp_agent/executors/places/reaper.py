"""The end of what runs in a place."""

from __future__ import annotations

import logging

import anyio

from acp_agent.child import Child
from acp_agent.errors import ExecutorError
from acp_agent.executors.places.base import Place, There
from acp_agent.executors.places.starter import REAPER

log = logging.getLogger(__name__)

KILLS = 10.0
"""Seconds for an order to end something there."""
GONE = b"gone\n"


class Reaper:
    """A shell in a place that ends what it is told to, and all of the session's once this process ends."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._there: There | None = None
        self._child: Child | None = None
        self._one = anyio.Lock()

    def start(self, there: There) -> None:
        """Returns at once; does nothing where it runs. Raises ExecutorError."""
        self._there = there
        if self._child is None:
            argv = self.place.argv("sh", "-c", REAPER, "sh", self.place.mark, there.scratch, reads=True)
            try:
                self._child = Child.start(f"reaper in {self.place.words}", argv, env=self.place.environ)
            except (OSError, ValueError) as error:
                raise ExecutorError(f"no command can be run in {self.place.words}: {error}") from error

    async def finish(self, mark: str, group: int) -> bool:
        """Ends what carries `mark`, and the process group, and says whether they are gone."""
        async with self._one:
            for _ in range(2):  # A command may have ended it.
                assert self._there is not None
                self.start(self._there)
                with anyio.move_on_after(KILLS):
                    if answer := await self._asked(f"{mark} {group}\n".encode()):
                        return answer == GONE
                self._drop()
            return False

    async def _asked(self, order: bytes) -> bytes:
        """Empty: it does not answer any more."""
        assert self._child is not None
        said = b""
        try:
            await self._child.send(order)
            while not said.endswith(b"\n"):
                if not (data := await self._child.read()):
                    return b""
                said += data
        except OSError:
            return b""
        return said

    async def end(self) -> None:
        """Ends all of the session's there, and what was started for it."""
        if not await self.place.end() and self._child is not None and not await self.finish(self.place.mark, 0):
            log.warning("it is not known whether all was ended in %s", self.place.words)
        if self._child is not None:
            await self._child.end()
        self._drop()

    def lost(self) -> None:
        """The place may be gone, and this with it."""
        self.place.lost()
        self._drop()

    def _drop(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
