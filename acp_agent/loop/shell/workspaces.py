"""Where commands run and files are: the workspaces of a session."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from acp_agent.executors.base import Commands, Files, Offer
from acp_agent.loop.shell.confinement import Confinement


class Closes(Protocol):
    async def close(self) -> None: ...


Made = TypeVar("Made", bound=Closes)


class Late(Generic[Made]):
    """What the first call that needs it makes: loading it takes longer than a first answer should wait."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make

    @cached_property
    def made(self) -> Made:
        return self._make()

    async def close(self) -> None:
        if "made" in vars(self):
            await self.made.close()


class Backend(Struct, frozen=True):
    """The means of a workspace."""

    commands: Commands
    files: Files

    async def close(self) -> None:
        await self.commands.close()


class Workspace:
    """One place: this machine, a container, another machine. `offer`: the operations that the editor serves there."""

    def __init__(self, name: str, confinement: Confinement, offer: Offer, backend: Late[Backend]) -> None:
        self.name = name
        self.confinement = confinement
        self.offer = offer
        self._backend = backend

    @property
    def commands(self) -> Commands:
        return self._backend.made.commands

    @property
    def files(self) -> Files:
        return self._backend.made.files

    async def close(self) -> None:
        await self._backend.close()
        if (place := self.confinement.place) is not None:  # It may have been looked at without a command.
            await place.end()


class Workspaces:
    """Of one session: its own, and `others` by name, each opened by the first call in it."""

    def __init__(
        self, own: Workspace, others: Sequence[str], apart: Collection[str], open_other: Callable[[str], Workspace]
    ) -> None:
        """`apart`: those of the others whose files are others, so that calls there have parts of their own."""
        self.own = own
        self.names = (own.name, *others)
        self.apart = frozenset(apart)
        self._open_other = open_other
        self._opened = {own.name: own}

    @property
    def opened(self) -> Sequence[str]:
        return list(self._opened)

    def get(self, name: str) -> Workspace:
        if name not in self._opened:
            self._opened[name] = self._open_other(name)
        return self._opened[name]

    async def close(self) -> None:
        """The last opened first."""
        for workspace in reversed(self._opened.values()):
            await workspace.close()
