"""The files of one call, which keep what is at a path before it is written, moved, copied over or removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
from msgspec import Struct
from msgspec.structs import replace

from acp_agent.child import User
from acp_agent.errors import AgentError, ExecutorError, StoreError
from acp_agent.executors import base as contract
from acp_agent.executors import files
from acp_agent.executors.base import FileVersion, digest_of
from acp_agent.executors.encodings import decoded, encoded
from acp_agent.executors.forwarding_files import ForwardingFiles
from acp_agent.executors.users import in_thread_as
from acp_agent.undo.base import Change, Entry, named
from acp_agent.undo.contents import Contents
from acp_agent.undo.operation_log import Writer
from acp_agent.undo.pictures import Camera, missing_folders

T = TypeVar("T")


class Listener(Protocol):
    """Told of what our own tools change."""

    def changing(self, paths: Sequence[Path]) -> AbstractContextManager[None]:
        """While they are, and until `changed`."""
        ...

    def changed(self, changes: Sequence[Change]) -> None: ...

    def not_kept(self, words: str) -> None:
        """Something of the call cannot be taken back."""


class RecordingFiles(ForwardingFiles[contract.Files]):
    """Implements `Files`: passes everything on and writes what is changed to the log.

    If what was there cannot be kept, the change is made all the same, and the listener is told.
    """

    def __init__(
        self,
        files: contract.Files,
        camera: Camera,
        writer: Writer,
        listener: Listener,
        user: Callable[[], User | None] = lambda: None,
    ) -> None:
        """`user`: as whom it looks at what is there."""
        super().__init__(files)
        self._camera = camera
        self._writer = writer
        self._listener = listener
        self._user = user
        self._read: dict[Path, str] = {}
        """What the editor or the disk had, as last read by this call."""

    # --- changes ----------------------------------------------------------------------------------------------

    async def write(
        self, path: Path, text: str, expected: FileVersion | None = None, *, again: bool = True
    ) -> FileVersion:
        shots = await self._before(lambda: [*missing_folders(path), path], self._read.pop(path, None))
        return await self._noted(shots, lambda: self._files.write(path, text, expected, again=again))

    async def make_directory(self, path: Path) -> int:
        shots = await self._before(lambda: [*missing_folders(path), path])
        return await self._noted(shots, lambda: self._files.make_directory(path))

    async def remove(self, path: Path, *, max_entries: int, judged: contract.Judged | None = None) -> contract.Tally:
        shots = await self._before(lambda: tree(path, max_entries))
        return await self._noted(shots, lambda: self._files.remove(path, max_entries=max_entries, judged=judged))

    async def move(self, source: Path, destination: Path, **bounds: Any) -> contract.Tally:
        return await self._carry(self._files.move, source, destination, bounds, moves=True)

    async def copy(self, source: Path, destination: Path, **bounds: Any) -> contract.Tally:
        return await self._carry(self._files.copy, source, destination, bounds, moves=False)

    async def _carry(
        self, work: Callable[..., Awaitable[T]], source: Path, destination: Path, bounds: dict[str, Any], *, moves: bool
    ) -> T:
        shots = await self._before(lambda: _arriving(source, destination, bounds["max_entries"], moves=moves))
        return await self._noted(shots, lambda: work(source, destination, **bounds))

    async def _before(self, paths: Callable[[], Sequence[Path]], read: str | None = None) -> _Shots | None:
        """Pictures of these paths, in the log; `None` if that failed. `read`: what the editor has of the last."""

        def take() -> list[tuple[Path, Entry]]:
            pictures = [(path, self._camera.take(path)) for path in dict.fromkeys(paths())]
            if read is not None:
                pictures[-1] = (pictures[-1][0], with_unsaved(pictures[-1][1], read, self._camera.contents))
            return pictures

        try:
            pictures = await self._thread(take)
            return _Shots(pictures, await self._writer.do(self._writer.before, pictures))
        except (ExecutorError, OSError, StoreError) as error:
            self._listener.not_kept(f"What this call changes cannot be taken back: {error}.")
            return None

    async def _noted(self, shots: _Shots | None, work: Callable[[], Awaitable[T]]) -> T:
        if shots is None:
            return await work()
        done: T | None = None
        with self._listener.changing([path for path, _ in shots.pictures]):
            try:
                done = await work()
                return done
            finally:
                with anyio.CancelScope(shield=True):
                    await self._after(shots, done if isinstance(done, FileVersion) else None)

    async def _after(self, shots: _Shots, now: FileVersion | None = None) -> None:
        """`now`: the last path, as it was written."""
        before = [entry for _, entry in shots.pictures]
        paths = [path for path, _ in shots.pictures]

        def take() -> list[Entry]:
            data = None if now is None else _bytes_of(now)
            *others, (last, old) = shots.pictures
            after = [self._camera.take(path, like=entry.content) for path, entry in others]
            after.append(self._camera.take(last, like=old.content, data=data))
            if now is not None and data is None:
                after[-1] = with_unsaved(after[-1], now.text, self._camera.contents)
            return after

        try:
            after = await self._thread(take)
            self._listener.changed(list(map(Change, paths, before, after)))  # At once: others may be looking.
            await self._writer.do(self._writer.after, shots.ids, before, after)
        except (ExecutorError, OSError, StoreError) as error:
            self._listener.not_kept(f"What this call changed cannot be taken back: {error}.")
            return
        lost = [f"{path} ({old.why})" for path, old, new in zip(paths, before, after, strict=True) if _lost(old, new)]
        if lost:
            self._listener.not_kept(f"Cannot be taken back: {named(lost)}.")

    async def _thread(self, work: Callable[[], T]) -> T:
        return await in_thread_as(self._user(), work)

    async def read(self, path: Path) -> FileVersion:
        found = await self._files.read(path)
        self._read[path] = found.text
        return found


class _Shots(Struct, frozen=True):
    pictures: list[tuple[Path, Entry]]
    ids: list[int]


def tree(path: Path, max_entries: int) -> list[Path]:
    """`path` and everything below it, folders first; no more than `max_entries`. Follows no link."""
    found = [path]
    for at in found:
        seen = files.look_at(at)
        if seen is not None and seen.kind == "dir":
            found += [at / name for name, _ in files.entries(at, max_entries - len(found))[0]]
    return found


def _arriving(source: Path, destination: Path, max_entries: int, *, moves: bool) -> list[Path]:
    """What changes: with a move the source; at the destination missing folders above it, what is there, what comes."""
    found = tree(source, max_entries)
    coming = [destination / path.relative_to(source) for path in found]
    return [*(found if moves else ()), *missing_folders(destination), *tree(destination, max_entries), *coming]


def with_unsaved(entry: Entry, shown: str, contents: Contents) -> Entry:
    """The entry with the text that the editor shows, if the file has another."""
    try:
        if entry.kind == "file" and entry.content and decoded(contents.get(entry.content)).text != shown:
            return replace(entry, unsaved=contents.put(shown.encode(), entry.content))
    except (AgentError, UnicodeError):
        pass
    return entry


def _bytes_of(version: FileVersion) -> bytes | None:
    """Of the file on the disk, if it has the text that the editor shows."""
    data, _ = encoded(version.text, version.encoding)
    return data if digest_of(data) == version.digest else None


def _lost(before: Entry, after: Entry) -> bool:
    return before.kind == "file" and not before.content and not before.same(after)
