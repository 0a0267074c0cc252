"""What confines commands on another machine: the sandbox that works there, found and used by our program there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from acp_agent.errors import ExecutorError
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.far.program import sources


class About(Struct, frozen=True):
    """What works there."""

    kind: str
    """As in `sandbox.base`."""
    words: str = "no sandbox"
    trouble: tuple[str, ...] = ()
    """Why there is nothing better, one sentence each."""


class FarWalls:
    """Of one session. `row`: what is made there, of `modules`, with what is `given`."""

    def __init__(self, link: FarLink, row: str, modules: tuple[str, ...], given: Mapping[str, Any]) -> None:
        self._link = link
        self._row, self._modules, self._given = row, modules, given
        self._finding = anyio.Lock()
        self.about: About | None = None
        """Once it was asked."""

    @property
    def kind(self) -> str:
        """Empty until it is known."""
        return "" if self.about is None else self.about.kind

    @property
    def confine(self) -> bool:
        """Whether something does, as far as is known."""
        return self.kind not in ("", "none")

    async def holds(self) -> bool:
        """The same, asked. Raises ExecutorError where nothing may run without."""
        about = await self.ready()
        if about.kind == "none" and self._given["sandbox"]["strict"]:
            words = f"no sandbox works on {self._link.way.words}, and with tools.sandbox.strict no command runs without"
            raise ExecutorError("\n- ".join([f"{words} one", *about.trouble]))
        return about.kind != "none"

    async def ready(self) -> About:
        """Raises ExecutorError if the host cannot be asked."""
        async with self._finding:
            if self.about is None:
                header = {"do": "walls", "row": self._row, "given": self._given}
                said = await self._link.answer_of(self._link.ask(header, sources(self._modules)))
                try:
                    self.about = msgspec.convert(said, About)
                except msgspec.ValidationError as error:
                    raise ExecutorError(f"{self._link.way.words} gave an answer that is none") from error
            return self.about
