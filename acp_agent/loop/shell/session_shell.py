"""Where and how the commands of a session run and its files are accessed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec import Struct

from acp_agent.executors.base import Command, Commands, Files
from acp_agent.executors.route import Offer, route
from acp_agent.executors.shell_state import forget_state, last_cwd
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.shell.confinement import Confinement
from acp_agent.loop.shell.private_folder import PrivateFolder
from acp_agent.safety.folders.paths import Roots

if TYPE_CHECKING:
    from acp_agent.loop.beside.background_runs import SessionRuns
    from acp_agent.loop.hooks.hooks import Hooks


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
    """Where commands run and where files are."""

    commands: Commands
    files: Files

    async def close(self) -> None:
        await self.commands.close()


Located = tuple[Confinement, Late[Backend], Offer]
"""What a shell has of its own in another place."""


class Shell:
    """Of one session, or (`below`) of a sub-agent in it, with its own working directory and variables."""

    def __init__(
        self,
        roots: Roots,
        turn: RunningTurn,
        folder: PrivateFolder,
        offer: Offer,
        late: Late[Backend],
        confinement: Confinement,
        hooks: Hooks,
        runs: SessionRuns,
        place: str,
        places: Sequence[str],
        apart: Collection[str],
        locate: Callable[[str], Located],
    ) -> None:
        """`place`: its name. `places`: others, in which `at` gives a shell; `locate` makes what it needs there.
        `apart`: those of them whose files are others, so that calls there have parts of their own."""
        self._roots = roots
        self.turn = turn
        self._folder = folder
        self._late = late
        self.offer = offer
        """The operations that the editor serves."""
        self.confinement = confinement
        self.hooks = hooks
        self.runs = runs
        self.place = place
        self.places = tuple(places)
        self.apart = frozenset(apart)
        self._locate = locate
        self._located: dict[str, Located] = {place: (confinement, late, offer)}
        """By name; the session's own first."""
        self._of = ""

    @property
    def commands(self) -> Commands:
        return self._late.made.commands

    @property
    def files(self) -> Files:
        return self._late.made.files

    def below(self, call_id: str) -> Shell:
        """The shell of a sub-agent that a call started."""
        other = copy.copy(self)
        other._of = f"-{call_id}"
        return other

    def at(self, place: str) -> Shell:
        """The shell in another of the `places`, with a working directory and variables of its own."""
        if place not in self._located:
            self._located[place] = self._locate(place)
        other = copy.copy(self)
        other.confinement, other._late, other.offer = self._located[place]
        other.place, other.places = place, tuple(name for name in (self.place, *self.places) if name != place)
        other._of = f"{self._of}.{list(self._located).index(place)}"
        return other

    @property
    def state(self) -> Path:
        """Where the turn's shell stores its working directory and variables; a new turn starts afresh."""
        return self._folder.path / "state" / f"shell-{self.turn.number}{self._of}"

    @property
    def private(self) -> Path:
        """The session's own folder, of which commands see only parts."""
        return self._folder.path

    def cwd(self) -> Path:
        """The current directory of the turn's shell."""
        return last_cwd(self.state, self._roots.cwd, self._roots.disk)

    def forget_state(self) -> None:
        """The turn is over."""
        forget_state(self.state)
        for place in self._located:
            forget_state(self.at(place).state)

    @property
    def draws_here(self) -> bool:
        """Whether the editor does not show a command's output itself."""
        return route("run", self.offer) == "local"

    def confines(self, command: Command) -> bool:
        """Whether the sandbox confines it, as far as is known."""
        return command.confined and self.confinement.confines(in_terminal=route("run", self.offer) != "local")

    def limits(self) -> str:
        """Describes the limits of the sandbox for the model; empty without one."""
        return self.confinement.limits()

    async def close(self) -> None:
        for confinement, late, _ in reversed(self._located.values()):
            await late.close()
            if confinement.place is not None:  # It may have been looked at without a command.
                await confinement.place.end()
        await self.hooks.close()
        self._folder.close()
