"""Where and how the commands of a conversation run and its files are accessed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp_agent.executors.base import Command, Commands, Files, Offer
from acp_agent.executors.shell_state import forget_state, last_cwd
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.shell.confinement import Confinement
from acp_agent.loop.shell.workspaces import Project, Workspace, Workspaces
from acp_agent.safety.access import IN_PLACE, PANED, PLACE, PLACED
from acp_agent.safety.folders.paths import Roots

if TYPE_CHECKING:
    from acp_agent.loop.beside.background_runs import SessionRuns
    from acp_agent.loop.hooks.hooks import Hooks


class Shell:
    """Of one conversation in one of its workspaces, with its own working directory and variables."""

    def __init__(
        self, workspaces: Workspaces, workspace: Workspace, turn: RunningTurn, runs: SessionRuns, of: str = ""
    ) -> None:
        """`of`: what tells its state from that of the session's other shells."""
        self.workspaces = workspaces
        self.workspace = workspace
        self.turn = turn
        self.runs = runs
        self._of = of

    @property
    def place(self) -> str:
        """The name of its workspace."""
        return self.workspace.name

    @property
    def places(self) -> Sequence[str]:
        """The names of the others."""
        return tuple(name for name in self.workspaces.names if name != self.workspace.name)

    @property
    def project(self) -> Project:
        return self.workspace.project

    @property
    def roots(self) -> Roots:
        return self.project.roots

    @property
    def hooks(self) -> Hooks:
        return self.project.hooks

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
        return Shell(self.workspaces, self.workspace, self.turn, self.runs, f"-{call_id}")

    def at(self, place: str) -> Shell:
        """The shell in another of the `places` with the same files, with a working directory and variables of its
        own."""
        workspace = self.workspaces.get(place)
        of = f"{self._of}.{self.workspaces.opened.index(place)}"
        return Shell(self.workspaces, workspace, self.turn, self.runs, of)

    async def apart(self, place: str) -> Shell:
        """The shell in another of the `places`, with other files. Raises ExecutorError."""
        return self.within(await self.workspaces.get_apart(place))

    def within(self, workspaces: Workspaces) -> Shell:
        """The shell in another project."""
        return Shell(workspaces, workspaces.own, self.turn, self.runs, self._of)

    @property
    def state(self) -> Path:
        """Where the turn's shell stores its working directory and variables; a new turn starts afresh."""
        return self.project.folder.path / "state" / f"shell-{self.turn.number}{self._of}"

    def cwd(self) -> Path:
        """The current directory of the turn's shell."""
        return last_cwd(self.state, self.roots.cwd, self.roots.disk)

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

    def more_parameters(self) -> dict[str, dict[str, Any]]:
        """By tool: those that name a place, where there are others, and a pane, where there is tmux."""
        found: dict[str, dict[str, Any]] = {}
        if self.places:
            found |= {name: {PLACE: {**IN_PLACE, "enum": list(self.places)}} for name in PLACED}
        if self.runs.panes.on:
            found |= {name: {**found.get(name, {}), **more} for name, more in PANED.items()}
        return found
