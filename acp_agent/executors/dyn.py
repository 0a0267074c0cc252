"""The executor a session holds: each operation goes to the first backend that serves it.

`route` decides and is pure; a remote backend (container, ssh) will be one more name in its answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from acp_agent.executors.base import Command, EntryKind, Executor, FileStat, FindQuery, Found, GrepQuery, Process, Tally
from acp_agent.executors.editor import EditorExecutor, NotStarted
from acp_agent.executors.local import LocalExecutor

Operation = Literal[
    "run",
    "read_text",
    "write_text",
    "read_bytes",
    "stat",
    "list",
    "find",
    "grep",
    "make_directory",
    "remove",
    "move",
    "copy",
]
Backend = Literal["editor", "local"]


@dataclass(frozen=True)
class Offer:
    """What the editor offers and the configuration lets us use."""

    terminal: bool = False
    read_text: bool = False
    write_text: bool = False


def route(operation: Operation, offer: Offer) -> Backend:
    """The backend of an operation. Each capability counts by itself (FS-1, TERM-1)."""
    match operation:
        case "run":
            return "editor" if offer.terminal else "local"
        case "read_text":
            return "editor" if offer.read_text else "local"
        case "write_text":
            return "editor" if offer.write_text else "local"
        case "read_bytes" | "stat" | "list" | "find" | "grep" | "make_directory" | "remove" | "move" | "copy":
            return "local"


class DynExecutor:
    """Falls back to local when the editor's terminal fails before the command started, and only then."""

    def __init__(self, editor: EditorExecutor, local: LocalExecutor, offer: Offer) -> None:
        self._backends: dict[Backend, Executor] = {"editor": editor, "local": local}
        self._local = local
        self.offer = offer

    def _at(self, operation: Operation) -> Executor:
        return self._backends[route(operation, self.offer)]

    async def run(self, command: Command) -> Process:
        try:
            return await self._at("run").run(command)
        except NotStarted:
            return await self._local.run(command)

    async def read_text(self, path: Path) -> str:
        return await self._at("read_text").read_text(path)

    async def read_bytes(self, path: Path, limit: int) -> bytes:
        return await self._at("read_bytes").read_bytes(path, limit)

    async def write_text(self, path: Path, text: str) -> str:
        return await self._at("write_text").write_text(path, text)

    async def stat(self, path: Path) -> FileStat | None:
        return await self._at("stat").stat(path)

    async def list(self, path: Path) -> list[tuple[str, EntryKind]]:
        return await self._at("list").list(path)

    async def find(self, query: FindQuery) -> Found:
        return await self._at("find").find(query)

    async def grep(self, query: GrepQuery) -> Found:
        return await self._at("grep").grep(query)

    async def make_directory(self, path: Path) -> int:
        return await self._at("make_directory").make_directory(path)

    async def remove(self, path: Path, *, max_entries: int) -> Tally:
        return await self._at("remove").remove(path, max_entries=max_entries)

    async def move(self, source: Path, destination: Path, *, overwrite: bool, max_entries: int) -> Tally:
        return await self._at("move").move(source, destination, overwrite=overwrite, max_entries=max_entries)

    async def copy(self, source: Path, destination: Path, *, overwrite: bool, max_entries: int) -> Tally:
        return await self._at("copy").copy(source, destination, overwrite=overwrite, max_entries=max_entries)
