"""The contract of a place: how a command line gets there, and how what runs there ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from acp_agent.executors.places.landlock_there import LandlockThere


class There(Struct, frozen=True):
    """What a place says of itself."""

    shell: str
    """Its bash, or `sh` where there is none."""
    path: str
    """PATH of its login shell."""
    scratch: str
    """A folder of ours, outside of the session's folders. It need not exist yet."""
    home: str
    environ: Mapping[str, str] = {}
    """More of its variables."""

    @property
    def bash(self) -> bool:
        return self.shell.endswith("bash")


class Elsewhere(Protocol):
    """Not this machine."""

    words: str
    """`container web`."""
    where: str
    """As in "runs ...": `in container web`."""
    identity: str
    """What answers are kept for: tells it from others of the same `words`."""

    @property
    def over(self) -> str:
        """Why it cannot be used any more until it is begun anew; empty while it can."""
        ...

    @property
    def lacks_walls(self) -> bool:
        """Whether nothing confines commands there that something should confine, as far as is known."""
        ...

    @property
    def sandbox(self) -> str:
        """What confines commands in it besides, as in `sandbox.base`; empty if that is not known."""
        ...

    async def lines(self) -> list[str]:
        """What is there and what holds there, for the user. Raises ExecutorError."""
        ...

    async def watch(self, tell: Callable[[str], None]) -> None:
        """Tells, until it is cancelled, when the way there is lost, and when it is there again."""
        ...

    async def end(self) -> bool:
        """Removes what we started; whether that ended everything of ours there."""
        ...


class Place(Elsewhere, Protocol):
    """One whose folders are the session's, at the same paths."""

    mark: str
    """Carried by everything that the session starts there."""
    env: tuple[str, ...]
    """Names of the variables of this machine that commands there get."""
    environ: Mapping[str, str]
    """The environment, here, of the command lines that `argv` returns."""
    landlock: LandlockThere | None
    """What each command is confined by."""

    async def ready(self) -> There:
        """Starts what has to be started; not twice unless it was `lost`. Raises ExecutorError with a sentence."""
        ...

    def argv(self, *argv: str, reads: bool = False, terminal: bool = False) -> tuple[str, ...]:
        """The command line, here, of one that runs there with the same streams. Only once it is ready. `reads`: also
        stdin; `terminal`: they are one."""
        ...

    def cwd(self, folder: Path) -> Path:
        """Where a folder of the session is there: where this machine has a link, there may be none."""
        ...

    def lost(self) -> None:
        """A command could not be run there: it is looked at again before the next."""
        ...
