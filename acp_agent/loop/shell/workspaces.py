"""Where the calls of a session run: its workspaces, and the projects that they have in common."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio
from msgspec import Struct

from acp_agent.executors.base import Commands, Files, Late, Offer
from acp_agent.loop.shell.confinement import Confinement

if TYPE_CHECKING:
    from acp_agent.loop.beside.languages import Languages
    from acp_agent.loop.calls.call_permissions import Permissions
    from acp_agent.loop.hooks.hooks import Hooks
    from acp_agent.loop.prompts.instructions import Instructions
    from acp_agent.loop.prompts.skills import Skills
    from acp_agent.loop.shell.command_network import CommandNetwork
    from acp_agent.loop.shell.private_folder import PrivateFolder
    from acp_agent.loop.undo.change_recorder import ChangeRecorder
    from acp_agent.safety.folders.paths import Roots


class Backend(Struct, frozen=True):
    """The means of a workspace."""

    commands: Commands
    files: Files

    async def close(self) -> None:
        await self.commands.close()


class Project(Struct, frozen=True, eq=False):
    """Folders on one machine, and what belongs to their files wherever commands run."""

    roots: Roots
    folder: PrivateFolder
    hooks: Hooks
    instructions: Instructions
    skills: Skills
    permissions: Permissions
    network: CommandNetwork
    recorder: ChangeRecorder
    languages: Languages
    away: bool = False
    """Whether its files are not those of the session, nor a worktree of them."""

    async def close(self) -> None:
        async with AsyncExitStack() as ends:  # The last first.
            ends.callback(self.folder.close)
            for part in (self.languages, self.network, self.recorder):
                ends.push_async_callback(part.close)


class Workspace:
    """One place with the files of a project: this machine, a container, another machine. `offer`: the operations that
    the editor serves there."""

    def __init__(
        self, name: str, project: Project, confinement: Confinement, offer: Offer, backend: Late[Backend]
    ) -> None:
        self.name = name
        self.project = project
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


class Opens(Protocol):
    """Opens the workspaces of a project. Raises ExecutorError if a place cannot be reached."""

    def with_these_files(self, name: str) -> Workspace: ...

    async def with_other_files(self, name: str) -> Workspaces: ...

    async def in_worktree(self, name: str, worktree: Path) -> Workspaces: ...


class Workspaces:
    """Those of a project: its `own`, and `others` by name, each opened by the first call in it. `apart`: the names of
    those with other files, which have a project, and so workspaces, of their own."""

    def __init__(self, own: Workspace, others: Sequence[str], apart: Collection[str], opens: Opens) -> None:
        self.own = own
        self.names = (own.name, *others)
        self.apart = frozenset(apart)
        self.opens = opens
        self._opened = {own.name: own}
        self._apart: dict[str, Workspaces] = {}

    @cached_property
    def _opening(self) -> anyio.Lock:
        return anyio.Lock()

    @property
    def opened(self) -> Sequence[str]:
        return list(self._opened)

    def get(self, name: str) -> Workspace:
        """One with the same files."""
        if name not in self._opened:
            self._opened[name] = self.opens.with_these_files(name)
        return self._opened[name]

    async def get_apart(self, name: str) -> Workspaces:
        """Kept until the session ends, or leaves its own place. Raises ExecutorError if it cannot be reached."""
        async with self._opening:
            known = self._apart.get(name)
            if known is not None and known.own.confinement.over:
                await self._apart.pop(name).close()
                known = None
            if known is None:
                known = self._apart[name] = await self.opens.with_other_files(name)
            return known

    async def close(self) -> None:
        """With the project; the last opened first."""
        apart, self._apart = self._apart, {}
        async with AsyncExitStack() as ends:
            for each in apart.values():
                ends.push_async_callback(each.close)
            ends.push_async_callback(self.own.project.close)
            for workspace in self._opened.values():
                ends.push_async_callback(workspace.close)
