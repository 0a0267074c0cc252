"""Results of calls that would give the same again.

Only tools that say so (`idempotent`) are remembered, for `ttl` seconds, in memory. What a call read is looked at again
before its result is given: a path that changed since, by us, by a command or in the editor (unsaved text included), has
no remembered result any more. A result that was remembered says so.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Executor
from acp_agent.executors.fingerprint import tree_fingerprint
from acp_agent.safety.access import Access, PathAccess
from acp_agent.tools.kit.tool_context import ToolResult

MARK = "[unchanged since the same call before]"
"""For what was looked at again. What cannot be (a web page) says how old it is."""

MAX_ENTRIES = 200
MAX_TEXT = 200_000
"""Characters of a result that is kept."""

Fingerprint = Callable[[Path], Awaitable[str | None]]


def fingerprint_with(executor: Executor, *, buffers: bool) -> Fingerprint:
    """`buffers`: files are read through the editor, whose unsaved text counts."""

    async def fingerprint(path: Path) -> str | None:
        disk = await anyio.to_thread.run_sync(tree_fingerprint, path)
        if disk is None or not buffers or not await anyio.Path(path).is_file():
            return disk
        try:
            text = await executor.read_text(path)
        except (OSError, UnicodeDecodeError, ExecutorError):
            return None
        return f"{disk} {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"

    return fingerprint


class _Entry(Struct, frozen=True):
    result: ToolResult
    paths: tuple[tuple[Path, str], ...]
    at: float


class ResultCache:
    """Of one session. `ttl` in seconds, 0 for no end. `clock` gives seconds."""

    def __init__(
        self, fingerprint: Fingerprint, *, enabled: bool, ttl: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fingerprint = fingerprint
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
        for path, before in entry.paths:
            if await self._fingerprint(path) != before:
                self._entries.pop(key, None)
                return None
        mark = MARK if entry.paths else f"[remembered: the same call gave this {self._clock() - entry.at:.0f} s ago]"
        return replace(entry.result, text=f"{mark}\n{entry.result.text}")

    async def look(self, accesses: Sequence[Access]) -> tuple[tuple[Path, str], ...] | None:
        """What a call is about to read, as it is now; `None` where its result cannot be kept. To be asked before the
        call: what changes while it runs must be noticed later."""
        if not self._enabled:
            return None
        seen = []
        for access in accesses:
            if isinstance(access, PathAccess):
                found = await self._fingerprint(access.path)
                if found is None:
                    return None
                seen.append((access.path, found))
        return tuple(seen)

    def keep(self, key: str, result: ToolResult, paths: tuple[tuple[Path, str], ...] | None) -> None:
        if paths is None or result.failed or not result.keep or result.parts or len(result.text) > MAX_TEXT:
            return
        self._entries.pop(key, None)
        if len(self._entries) >= MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = _Entry(result, paths, self._clock())

    def clear(self) -> None:
        self._entries.clear()
