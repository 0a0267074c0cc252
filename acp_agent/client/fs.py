"""`fs/*` on real files, with the unsaved text of open buffers on top."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import anyio

from acp_agent.errors import InternalError, InvalidParams, ResourceNotFound
from acp_agent.schema import acp


class Folders:
    """The working directory and the additional directories of each session."""

    def __init__(self) -> None:
        self._of: dict[str, list[Path]] = {}

    def begin(self, session_id: str, folders: Sequence[Path]) -> None:
        self._of[session_id] = [*folders]

    def end(self, session_id: str) -> None:
        self._of.pop(session_id, None)

    async def check(self, session_id: str, path: str) -> None:
        """Raises InvalidParams for a path that leads out of the session's folders, also by links."""
        inside = await anyio.to_thread.run_sync(_is_below, _absolute(path), self._of.get(session_id, []))
        if not inside:
            raise InvalidParams(f"the path is in none of the session's folders: {path}")


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    try:
        real = Path(os.path.realpath(path))
        return any(real.is_relative_to(os.path.realpath(folder)) for folder in folders)
    except (OSError, ValueError):  # No path of this system.
        return False


class Files:
    """UTF-8 text files with unchanged line endings.

    `buffers` holds unsaved text: reads see it instead of the disk. `save`: whether a write to an open buffer is saved
    immediately, as in most editors, or stays in the buffer.
    """

    def __init__(self, *, buffers: dict[Path, str] | None = None, save: bool = True) -> None:
        self.buffers: dict[Path, str] = {} if buffers is None else buffers
        self.save = save

    async def read(self, request: acp.ReadTextFileRequest) -> acp.ReadTextFileResponse:
        path = _absolute(request.path)
        text = self.buffers.get(path)
        if text is None:
            text = await _read(path)
        if request.line is not None or request.limit is not None:
            text = _lines(text, request.line or 1, request.limit)
        return acp.ReadTextFileResponse(content=text)

    async def write(self, request: acp.WriteTextFileRequest) -> acp.WriteTextFileResponse | None:
        """Makes missing parent folders."""
        path = _absolute(request.path)
        if path in self.buffers:
            if not self.save:
                self.buffers[path] = request.content
                return acp.WriteTextFileResponse()
            del self.buffers[path]
        try:
            await anyio.Path(path).parent.mkdir(parents=True, exist_ok=True)
            await anyio.Path(path).write_bytes(request.content.encode("utf-8", "replace"))
        except OSError as error:
            raise InternalError(f"cannot write {path}: {error.strerror}") from error
        return acp.WriteTextFileResponse()


async def _read(path: Path) -> str:
    try:
        return (await anyio.Path(path).read_bytes()).decode("utf-8")
    except FileNotFoundError as error:
        raise ResourceNotFound(f"Resource not found: {path}", {"uri": str(path)}) from error
    except OSError as error:
        raise InternalError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InternalError(f"{path} is not UTF-8 text") from error


def _lines(text: str, line: int, limit: int | None) -> str:
    first = max(line, 1) - 1
    lines = text.split("\n")
    end = len(lines) if limit is None else min(first + limit, len(lines))
    chosen = "\n".join(lines[first:end])
    return chosen + "\n" if first < end < len(lines) else chosen


def _absolute(path: str) -> Path:
    if not Path(path).is_absolute():
        raise InvalidParams(f"the path must be absolute: {path}")
    return Path(path)
