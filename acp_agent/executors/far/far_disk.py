"""The disk of another machine, as the deciders ask it: one question, one answer.

Judging happens in threads, where a question waits for its answer and is always asked anew. What was answered is known
to what then runs in the event loop, which must not wait for long. (What is opened there is checked there again.)
"""

from __future__ import annotations

import threading
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp_agent.errors import ExecutorError
from acp_agent.executors.far.far_link import FarLink

if TYPE_CHECKING:
    from acp_agent.disk import Kind

PATIENCE = 60.0
"""Seconds for an answer, in a thread."""
LOOP_PATIENCE = 2.0
"""In the event loop, where nothing else goes on meanwhile."""
MOST_KNOWN = 4096


class FarDisk:
    here = False

    def __init__(self, link: FarLink) -> None:
        self.words = link.way.words
        self.where = link.way.where
        self.identity = link.way.identity
        self._link = link
        self._known: dict[tuple[Any, ...], Any] = {}

    def real_path(self, path: Path) -> Path:
        return Path(self._asked("real_path", path))

    def kind(self, path: Path) -> Kind | None:
        found: Kind | None = self._asked("kind", path)
        return found

    def stands(self, path: Path) -> bool:
        return bool(self._asked("stands", path))

    def is_link(self, path: Path) -> bool:
        return bool(self._asked("is_link", path))

    def matches(self, pattern: str, folder: Path, most: int) -> list[str]:
        return [str(name) for name in self._asked("matches", pattern, folder, most)]

    def text(self, path: Path, limit: int) -> str:
        return str(self._asked("text", path, limit))

    def head(self, path: Path, most: int) -> bytes:
        return bytes(self._asked("head", path, most))

    def names(self, folder: Path, most: int) -> list[tuple[str, bool]]:
        return [(str(name), bool(is_folder)) for name, is_folder in self._asked("names", folder, most)]

    def holds(self, path: Path, wanted: bytes, limit: int) -> bool:
        return bool(self._asked("holds", path, wanted, limit))

    def below(self, path: Path, most: int) -> list[tuple[str, int]] | None:
        found = self._asked("below", path, most)
        return None if found is None else [(str(name), int(mode)) for name, mode in found]

    def _asked(self, name: str, *arguments: Any) -> Any:
        """Raises OSError as the disk there does, ExecutorError if it cannot be asked."""
        in_loop, key = threading.current_thread() is threading.main_thread(), (name, *arguments)
        if in_loop and key in self._known:
            if isinstance(known := self._known[key], OSError):
                raise known.with_traceback(None)
            return known
        patience = LOOP_PATIENCE if in_loop else PATIENCE
        number, answer = self._link.call(f"disk.{name}", *arguments)
        if not futures.wait([answer], patience).done:
            answer.cancel()
            self._link.send({"do": "cancel", "call": number})
            raise ExecutorError(f"{self.words} did not answer within {patience:g} s")
        try:
            found = self._link.value_of(answer)
        except OSError as error:
            self._keep(key, error)
            raise
        self._keep(key, found)
        return found

    def _keep(self, key: tuple[Any, ...], found: Any) -> None:
        self._known.pop(key, None)
        if len(self._known) >= MOST_KNOWN:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = found
