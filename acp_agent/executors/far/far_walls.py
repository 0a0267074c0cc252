"""What confines commands on another machine: the sandbox that works there, found and used by our program there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import anyio
import msgspec
from msgspec import Struct

from acp_agent.errors import ExecutorError
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.far.far_peer import Header
from acp_agent.executors.far.program import sources
from acp_agent.executors.sandbox.base import SandboxKind
from acp_agent.legible import legible

T = TypeVar("T")

MOST_SAID, MOST_LINE, MOST_SENTENCES = 200, 4_000, 30
"""Characters and sentences of what a host says of itself."""


class About(Struct, frozen=True):
    """What works there."""

    kind: SandboxKind
    words: str = "no sandbox"
    trouble: tuple[str, ...] = ()
    """Why there is nothing better, one sentence each."""
    disabled: bool = False
    """By the configuration."""

    def sentences(self) -> list[str]:
        """`trouble`, as it may be shown."""
        return _bounded(self.trouble, MOST_SAID)


def _bounded(said: Sequence[str], most: int) -> list[str]:
    shown = [text if len(text) <= most else f"{text[: most - 1]}…" for text in map(legible, said[:MOST_SENTENCES])]
    return [*shown, *([f"And {len(said) - MOST_SENTENCES} more."] if len(said) > MOST_SENTENCES else [])]


class WayIn(Struct, frozen=True):
    """The command line to begin there instead."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    files: tuple[tuple[int, str, bool], ...]
    """Descriptors, the files to be opened as them, and whether for writing, too."""


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
    def lacks(self) -> bool:
        """Whether nothing does, although something should."""
        return not self.confine and (self.about is None or not self.about.disabled)

    @property
    def confine(self) -> bool:
        """Whether something does, as far as is known."""
        return self.kind not in ("", "none")

    async def holds(self) -> bool:
        """The same, asked. Raises ExecutorError where nothing may run without."""
        about = await self.ready()
        if about.kind == "none" and not about.disabled and self._given["sandbox"]["strict"]:
            none = f"no sandbox works {self._link.way.where}"
            words = f"{none}, and with tools.sandbox.strict, or `landlock` of its place, no command runs without one"
            raise ExecutorError("\n- ".join([words, *about.sentences()]))
        return about.kind != "none"

    async def ready(self) -> About:
        """Raises ExecutorError if the host cannot be asked."""
        async with self._finding:
            if self.about is None:
                header = {"do": "walls", "row": self._row, "given": self._given}
                self.about = await self._asked(About, header, sources(self._modules))
            return self.about

    async def lines(self) -> list[str]:
        """What confines them and what they may touch, for the user. Raises ExecutorError."""
        about = await self.ready()
        if about.kind == "none":
            none = (
                "Nothing confines commands there but that user's own rights; you are asked as where no sandbox works."
            )
            words = f"No sandbox there{legible(about.words)[:MOST_SAID].removeprefix('no sandbox')}."
            return [words if about.disabled else none, *about.sentences()]
        network = "all of it" if self._given["sandbox"]["network"] == "allow" else "none"
        unix = "allowed" if self._given["sandbox"]["allow_unix_sockets"] else "none"
        said = await self._asked(list[str], {"do": "told"})
        return [
            f"Sandbox there: {legible(about.words)[:MOST_SAID]}.",
            *about.sentences(),
            f"Network: {network}. Unix sockets: {unix}.",
            *_bounded(said, MOST_LINE),
        ]

    async def way_in(self, header: Header) -> WayIn:
        """How a program begins, confined, in a terminal. Raises ExecutorError."""
        return await self._asked(WayIn, header)

    async def _asked(self, kind: type[T], header: Header, data: bytes = b"") -> T:
        said = await self._link.answer_of(self._link.ask(header, data))
        try:
            return msgspec.convert(said, kind)
        except msgspec.ValidationError as error:
            raise ExecutorError(f"{self._link.way.words} gave an answer that is none") from error
