"""Where and how the commands of a session run and its files are accessed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from acp_agent.executors.base import Command, Commands, Files, Offer
from acp_agent.executors.shell_state import forget_state, last_cwd
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.shell.confinement import Confinement
from acp_agent.loop.shell.private_folder import PrivateFolder
from acp_agent.loop.shell.workspaces import Workspace, Workspaces
from acp_agent.safety.folders.paths import Roots

if TYPE_CHECKING:
    from acp_agent.loop.beside.background_runs import SessionRuns
    from acp_agent.loop.hooks.hooks import Hooks


class Shell:
    """Of one session in one of its workspaces, or (`below`) of a sub-agent in it, with its own working directory and
    variables."""

    def __init__(
        self,
        workspaces: Workspaces,
        workspace: Workspace,
        roots: Roots,
        turn: RunningTurn,
        folder: PrivateFolder,
        hooks: Hooks,
        runs: SessionRuns,
        of: str = "",
    ) -> None:
        """`of`: what tells its state from that of the session's other shells."""
        self.workspaces = workspaces
        self.workspace = workspace
        self._roots = roots
        self.turn = turn
        self._folder = folder
        self.hooks = hooks
        self.runs = runs
        self._of = of

    @property
    def place(self) -> str:
        """The name of its workspace."""
        return self.workspace.name

    @property
    def places(self) -> Sequence[str]:
        """The names of the others."""
        return tuple(name for name in self.workspaces.names if name != self.place)

    @property
    def confinement(self) -> Confinement:
        return self.workspace.confinement

    @property
    def offer(self) -> Offer:
        return self.workspace.offer

    @property
    def commands(self) -> Commands:
        return self.workspace.commands

    @property
    def files(self) -> Files:
        return self.workspace.files

    def below(self, call_id: str) -> Shell:
        """The shell of a sub-agent that a call started."""
        return self._another(self.workspace, f"-{call_id}")

    def at(self, place: str) -> Shell:
        """The shell in another of the `places`, with a working directory and variables of its own."""
        workspace = self.workspaces.get(place)
        return self._another(workspace, f"{self._of}.{self.workspaces.opened.index(place)}")

    def like(self, other: Shell) -> Shell:
        """The shell where another one of the session is."""
        name = other.workspace.name
        return self if name == self.workspace.name else self.at(name)

    def _another(self, workspace: Workspace, of: str) -> Shell:
        return Shell(self.workspaces, workspace, self._roots, self.turn, self._folder, self.hooks, self.runs, of)

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
        for place in self.workspaces.opened:
            forget_state(self.at(place).state)

    @property
    def draws_here(self) -> bool:
        """Whether the editor does not show a command's output itself."""
        return not self.offer.terminal

    def confines(self, command: Command) -> bool:
        """Whether the sandbox confines it, as far as is known."""
        return command.confined and self.confinement.confines(in_terminal=self.offer.terminal)

    def limits(self) -> str:
        """Describes the limits of the sandbox for the model; empty without one."""
        return self.confinement.limits()

    async def close(self) -> None:
        await self.workspaces.close()
        await self.hooks.close()
        self._folder.close()
