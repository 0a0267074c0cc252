"""The tools that are not of this package: of installed packages, and of the project where the person trusts them.

Trust belongs to a folder and to the very bytes of its files, and is remembered outside of the folder (in the session
store, with the permissions): a pulled commit that changes a tool is asked about again.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import anyio
import anyio.to_thread

from acp_agent.lazy import load
from acp_agent.store.base import SessionStore
from acp_agent.tools.registry import SessionRegistry

__all__ = ["Extensions"]

log = logging.getLogger(__name__)

PACKAGES = "package"
PROJECT = "project"
TOOL = "trust"

TOOLS_FOLDER = ".acp-agent/tools"

PACKAGE_TOOLS = "acp_agent.tools.extend:package_tools"
PROJECT_TOOLS = "acp_agent.tools.extend:project_tools"
"""Loaded in a thread: they bring pydantic."""


class Extensions:
    """Of one session in `folder`. Puts what it loads into `registry`."""

    def __init__(self, folder: Path, registry: SessionRegistry, store: SessionStore, *, packages: bool) -> None:
        self._folder = folder
        self._registry = registry
        self._store = store
        self._packages = packages
        self._begun = False
        self._loading = anyio.Lock()

    def files(self) -> list[Path]:
        """The files with tools of the project; names beginning with `_` are helpers of theirs."""
        base = self._folder / TOOLS_FOLDER
        try:
            own = (file for file in base.glob("*.py") if not file.name.startswith("_"))
            return sorted(file for file in own if file.resolve().parent == base.resolve())
        except OSError:
            return []

    def _scope(self) -> str:
        """Changes with every byte of every Python file in the tools folder."""
        state = hashlib.sha256()
        for file in sorted((self._folder / TOOLS_FOLDER).rglob("*.py")):
            try:
                state.update(f"{file.relative_to(self._folder)}\0".encode("utf-8", "surrogateescape"))
                state.update(hashlib.sha256(file.read_bytes()).digest())
            except OSError:
                state.update(b"unreadable")
        return f"tools {state.hexdigest()}"

    def trusted(self) -> bool:
        """Whether the person trusts the files as they are now."""
        scope = self._scope()
        known = self._store.permissions(str(self._folder))
        return any(item.tool == TOOL and item.scope == scope and item.decision == "allow" for item in known)

    async def packages(self) -> list[str]:
        """Loads the tools of packages. Gives what a person should hear of, in sentences."""
        return await self._load(PACKAGES, PACKAGE_TOOLS) if self._packages else []

    async def project(self) -> list[str]:
        """Loads the project's tools where they are trusted; once. Whoever asks meanwhile waits until it is done."""
        async with self._loading:
            if self._begun or not self.files():
                return []
            self._begun = True
            if self.trusted():
                return await self._load(PROJECT, PROJECT_TOOLS, self.files())
            return ["This folder has tools of its own that are not loaded: `/trust` shows them."]

    async def trust(self) -> list[str]:
        """Remembers that the files as they are now are trusted, and loads them. Gives what went wrong."""
        self._store.remember(str(self._folder), TOOL, self._scope(), "allow")
        return await self._load(PROJECT, PROJECT_TOOLS, self.files())

    def distrust(self) -> None:
        project = str(self._folder)
        for item in self._store.permissions(project):
            if item.tool == TOOL:
                self._store.revoke(project, item.id)
        self._registry.set_group(PROJECT, ())

    async def _load(self, group: str, row: str, *arguments: object) -> list[str]:
        made, trouble = await anyio.to_thread.run_sync(lambda: load(row)(*arguments))
        taken = self._registry.set_group(group, made)
        trouble += [f"The tool `{name}` of the {group} is left out: the name is taken." for name in taken]
        for words in trouble:
            log.warning("%s", words)
        return list(trouble)
