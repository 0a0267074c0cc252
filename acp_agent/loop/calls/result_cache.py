"""A cache of results of calls that would return the same again.

Only results of `idempotent` tools are cached, for `ttl` seconds, in memory. The first call only stats the paths it
names; folders are scanned when the same call is repeated. A cached result is invalid once a path has changed since the
first call started, by us, by a command or in the editor (unsaved text included). A cached result says so.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Files
from acp_agent.executors.fingerprint import Seen, look, unchanged
from acp_agent.safety.access import Access, PathAccess
from acp_agent.tools.kit.tool_context import ToolResult

MARK = "[unchanged since the same call before]"
"""For validated results. What cannot be validated (a web page) says how old it is."""

MAX_ENTRIES = 200
MAX_TEXT = 200_000
"""Characters of a result that is kept."""


class SeenPath(Struct, frozen=True):
    path: Path
    disk: Seen
    text: str
    """A digest of what the editor shows; empty where files are read from the disk."""


class Looks:
    """`buffers`: files are read through the editor, whose unsaved text counts. `here`: they are on this machine; the
    results of others are not kept."""

    def __init__(self, files: Files, *, buffers: bool, here: bool = True) -> None:
        self._files = files
        self._here = here
        self._buffers = buffers

    async def look(self, path: Path) -> SeenPath | None:
        """`None` if changes of the path could not be detected later."""
        disk = look(path) if self._here else None
        text = None if disk is None else await self._text(path, disk)
        return None if disk is None or text is None else SeenPath(path, disk, text)

    async def unchanged(self, seen: SeenPath) -> bool:
        same = await anyio.to_thread.run_sync(unchanged, seen.path, seen.disk)
        return same and await self._text(seen.path, seen.disk) == seen.text

    async def _text(self, path: Path, disk: Seen) -> str | None:
        if disk.folder or not self._buffers or not await anyio.Path(path).is_file():
            return ""
        try:
            text = (await self._files.read(path)).text
        except (OSError, UnicodeDecodeError, ExecutorError):
            return None
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class _Entry(Struct, frozen=True):
    result: ToolResult
    paths: tuple[SeenPath, ...]
    at: float


class ResultCache:
    """Of one session. `ttl` in seconds, 0 for no end. `clock` gives seconds."""

    def __init__(self, looks: Looks, *, enabled: bool, ttl: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._looks = looks
        self._enabled = enabled
        self._ttl = ttl
        self._clock = clock
        self._entries: dict[str, _Entry] = {}

    async def find(self, key: str) -> ToolResult | None:
        """The result of the same call, marked, if nothing that it read has changed."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if self._ttl and self._clock() - entry.at > self._ttl:
            del self._entries[key]
            return None
        for seen in entry.paths:
            if not await self._looks.unchanged(seen):
                self._entries.pop(key, None)
                return None
        mark = MARK if entry.paths else f"[cached: the same call returned this {self._clock() - entry.at:.0f} s ago]"
        return replace(entry.result, text=f"{mark}\n{entry.result.text}")

    async def look(self, accesses: Sequence[Access]) -> tuple[SeenPath, ...] | None:
        """Returns the state of what a call is about to read; `None` if its result cannot be cached. Call it before the
        call runs: later changes must be noticed."""
        if not self._enabled:
            return None
        seen = []
        for access in accesses:
            if isinstance(access, PathAccess):
                found = await self._looks.look(access.path)
                if found is None:
                    return None
                seen.append(found)
        return tuple(seen)

    def keep(self, key: str, result: ToolResult, paths: tuple[SeenPath, ...] | None) -> None:
        if paths is None or result.failed or not result.keep or result.parts or len(result.text) > MAX_TEXT:
            return
        self._entries.pop(key, None)
        if len(self._entries) >= MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = _Entry(result, paths, self._clock())

    def changed(self) -> None:
        """One of our calls may have changed something: forgets folders. The disk would show it, too, except on another
        machine with another clock."""
        folders = [key for key, entry in self._entries.items() if any(seen.disk.folder for seen in entry.paths)]
        for key in folders:
            del self._entries[key]
