"""The tools that are not of this package: of installed packages, and of the project where the person trusts them.

Trust belongs to a folder and to the very bytes of its files, and is remembered outside of the folder (in the session
store, with the permissions): a pulled commit that changes a tool is asked about again.
"""

from __future__ import annotations

import logging
from pathlib import Path

import anyio.to_thread

from acp_agent.lazy import load
from acp_agent.store.base import SessionStore
from acp_agent.tools.registry import SessionRegistry

__all__ = ["Extensions"]

log = logging.getLogger(__name__)

PACKAGES = "package"
PROJECT = "project"
TOOL = "trust"

PACKAGE_TOOLS = "acp_agent.tools.extend:package_tools"
PROJECT_TOOLS = "acp_agent.tools.extend:project_tools"
PROJECT_DIGEST = "acp_agent.tools.extend:project_digest"
PROJECT_FILES = "acp_agent.tools.extend:project_files"
"""Loaded in a thread: they bring pydantic."""


class Extensions:
    """Of one session in `folder`. Puts what it loads into `registry`."""

    def __init__(self, folder: Path, registry: SessionRegistry, store: SessionStore, *, packages: bool) -> None:
        self._folder = folder
        self._registry = registry
        self._store = store
        self._packages = packages

    def files(self) -> list[str]:
        """The files with tools of the project, relative to it."""
        return [str(file.relative_to(self._folder)) for file in load(PROJECT_FILES)(self._folder)]

    def _scope(self) -> str:
        return f"tools {load(PROJECT_DIGEST)(self._folder)}"

    def trusted(self) -> bool:
        """Whether the person trusts the files as they are now."""
        scope = self._scope()
        known = self._store.permissions(str(self._folder))
        return any(item.tool == TOOL and item.scope == scope and item.decision == "allow" for item in known)

    async def start(self) -> list[str]:
        """Loads what may be loaded. Gives what a person should hear of, in sentences."""
        trouble: list[str] = []
        if self._packages:
            trouble += await self._load(PACKAGES, PACKAGE_TOOLS)
        if not await anyio.to_thread.run_sync(self.files):
            return trouble
        if self.trusted():
            return trouble + await self._load(PROJECT, PROJECT_TOOLS, self._folder)
        return [*trouble, "This folder has tools of its own that are not loaded: `/trust` shows them."]

    async def trust(self) -> list[str]:
        """Remembers that the files as they are now are trusted, and loads them. Gives what went wrong."""
        self._store.remember(str(self._folder), TOOL, self._scope(), "allow")
        return await self._load(PROJECT, PROJECT_TOOLS, self._folder)

    def distrust(self) -> None:
        project = str(self._folder)
        for item in self._store.permissions(project):
            if item.tool == TOOL:
                self._store.revoke(project, item.id)
        self._registry.set_group(PROJECT, ())

    async def _load(self, group: str, row: str, *arguments: Path) -> list[str]:
        made, trouble = await anyio.to_thread.run_sync(lambda: load(row)(*arguments))
        taken = self._registry.set_group(group, made)
        trouble += [f"The tool `{name}` of the {group} is left out: the name is taken." for name in taken]
        for words in trouble:
            log.warning("%s", words)
        return list(trouble)
