"""Files that pass on what they do not do otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, TypeVar

from acp_agent.executors import base as contract

Inner = TypeVar("Inner", bound=contract.Files)


class ForwardingFiles(Generic[Inner]):
    """Implements `Files` by other files; a subclass says what differs."""

    def __init__(self, files: Inner) -> None:
        self._files = files

    async def read(self, path: Path) -> contract.FileVersion:
        return await self._files.read(path)

    async def read_bytes(self, path: Path, limit: int) -> bytes:
        return await self._files.read_bytes(path, limit)

    async def read_part(self, path: Path, query: contract.PartQuery) -> contract.Part:
        return await self._files.read_part(path, query)

    async def write(
        self, path: Path, text: str, expected: contract.FileVersion | None = None, *, again: bool = True
    ) -> contract.FileVersion:
        return await self._files.write(path, text, expected, again=again)

    async def stat(self, path: Path) -> contract.FileStat | None:
        return await self._files.stat(path)

    async def list(self, path: Path, most: int | None = None) -> contract.Listing:
        return await self._files.list(path, most)

    async def find(self, query: contract.FindQuery) -> contract.Found:
        return await self._files.find(query)

    async def grep(self, query: contract.GrepQuery) -> contract.Found:
        return await self._files.grep(query)

    async def make_directory(self, path: Path) -> int:
        return await self._files.make_directory(path)

    async def remove(self, path: Path, *, max_entries: int, judged: contract.Judged | None = None) -> contract.Tally:
        return await self._files.remove(path, max_entries=max_entries, judged=judged)

    async def move(self, source: Path, destination: Path, **bounds: Any) -> contract.Tally:
        return await self._files.move(source, destination, **bounds)

    async def copy(self, source: Path, destination: Path, **bounds: Any) -> contract.Tally:
        return await self._files.copy(source, destination, **bounds)
