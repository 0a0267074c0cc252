"""What the page completes: folders to begin a session in, files to mention. Names only, of the token's folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import anyio.to_thread
import msgspec

from acp_agent.fronts.folder_files import MAX_FOUND, FolderFiles
from acp_agent.fronts.server.operations import Operation
from acp_agent.opening import Opening

KNOWN_FOLDERS = 8
"""Whose files are remembered for a few seconds."""


class FoldersAsked(msgspec.Struct, frozen=True):
    path: Annotated[
        str, msgspec.Meta(description="How it begins, absolute; empty: where sessions of the token may begin.")
    ] = ""


class FilesAsked(msgspec.Struct, frozen=True):
    folder: Annotated[str, msgspec.Meta(description="the folder of a session")]
    query: Annotated[str, msgspec.Meta(description="Letters of the path, in their order.")] = ""


class FolderNames:
    """Of one token. `opening`: of its owner, below `allowed`; empty: anywhere."""

    def __init__(self, opening: Opening, allowed: Sequence[str]) -> None:
        self._may_open = opening.below(allowed).may_open
        self._allowed = allowed

    async def folders(self, asked: FoldersAsked) -> list[str]:
        """Folders whose path begins so, of those that the token may open or go through."""
        return await anyio.to_thread.run_sync(self._folders, asked)

    async def files(self, asked: FilesAsked) -> list[str]:
        """Paths below the folder with these letters, folders with a `/` at their end."""
        return await anyio.to_thread.run_sync(self._files, asked)

    def _folders(self, asked: FoldersAsked) -> list[str]:
        if not asked.path:
            return list(self._allowed) or [os.getcwd()]
        above, _, begins = asked.path.rpartition("/")
        if not asked.path.startswith("/"):
            return []
        try:
            with os.scandir(above or "/") as entries:
                names = sorted(each.name for each in entries if _begins(each.name, begins) and each.is_dir())
        except (OSError, ValueError):
            return []
        found: list[str] = []
        for name in names:
            if self._may_see(path := f"{above}/{name}"):
                found.append(path)
                if len(found) == MAX_FOUND:
                    break
        return found

    def _files(self, asked: FilesAsked) -> list[str]:
        if not (os.path.isabs(asked.folder) and "\0" not in asked.folder and self._may_open(asked.folder)):
            return []
        return _files_of(asked.folder).matching(asked.query)

    def _may_see(self, path: str) -> bool:
        return self._may_open(path) or any(Path(each).is_relative_to(path) for each in self._allowed)


def _begins(name: str, begins: str) -> bool:
    return name.casefold().startswith(begins.casefold()) and (begins.startswith(".") or not name.startswith("."))


@lru_cache(KNOWN_FOLDERS)
def _files_of(folder: str) -> FolderFiles:
    return FolderFiles(Path(folder))


NAMES = (
    Operation("/folders", FolderNames.folders, asked=FoldersAsked, answer=list[str], scope="prompt"),
    Operation("/files", FolderNames.files, asked=FilesAsked, answer=list[str], scope="prompt"),
)
