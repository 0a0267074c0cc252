"""The contract of files over a disk: this machine's, or another one's through a link.

What is asked of a disk are functions of `files` and `tree`, by themselves: `LocalDisk` calls them in a thread, as the
user that tools act as; `RemoteDisk` has them called over there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio.from_thread

from acp_agent.child import User
from acp_agent.errors import ExecutorError
from acp_agent.executors import base as contract
from acp_agent.executors import files, search, tree
from acp_agent.executors.encodings import UTF8, decoded_part, encoded
from acp_agent.executors.tree_walk import Hides
from acp_agent.executors.users import in_thread_as
from acp_agent.own_programs import find_program

T = TypeVar("T")
Query = TypeVar("Query")

CHECK = anyio.from_thread.check_cancelled


class Disk(Protocol):
    """Where the files are."""

    async def do(self, path: Path, work: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Returns what `work`, a function of `files` or `tree`, returns there. Raises FileNotFoundError, ExecutorError
        (which names `path`)."""
        ...

    async def search(self, how: search.Search[Query], query: Query, hides: Hides | None) -> contract.Found: ...


class LocalDisk:
    """This machine's. `user`: who acts; `None`: this process's own. `environ`, `folders`: where ripgrep is looked for,
    and where not."""

    def __init__(
        self, environ: Mapping[str, str], folders: Sequence[Path] = (), user: Callable[[], User | None] = lambda: None
    ) -> None:
        self._environ = environ
        self._folders = tuple(folders)
        self._user = user

    async def do(self, path: Path, work: Callable[..., T], *arguments: Any, **options: Any) -> T:
        try:
            return await in_thread_as(self._user(), partial(work, *arguments, **options))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ExecutorError(f"{path}: {error.strerror or error}") from error

    async def search(self, how: search.Search[Query], query: Query, hides: Hides | None) -> contract.Found:
        return await how(query, hides, search.Here(find_program("rg", self._environ, self._folders), self._user()))


class DiskFiles:
    """Implements `Files`. `hides`: whether a path is kept from being read, listed, found, copied or written; `None`:
    none is."""

    def __init__(self, disk: Disk, hides: Hides | None = None) -> None:
        self._disk = disk
        self._hides = hides

    async def read(self, path: Path) -> contract.FileVersion:
        self._need_shown(path)
        return await self._disk.do(path, files.read_version, path)

    async def find_version(self, path: Path) -> contract.FileVersion | None:
        """`None` for what is not there, is no text or cannot be read."""
        try:
            return await self.read(path)
        except (FileNotFoundError, UnicodeDecodeError, ExecutorError):
            return None

    async def read_bytes(self, path: Path, limit: int) -> bytes:
        self._need_shown(path)
        return await self._disk.do(path, files.read, path, limit)

    async def read_part(self, path: Path, query: contract.PartQuery) -> contract.Part:
        self._need_shown(path)
        about = query.first, query.lines, query.bytes, query.skip, query.timeout
        head, _, data = (await self._disk.do(path, files.part, path, *about)).partition(b"\n")
        first, size = map(int, head.split())
        cut = len(data) == query.bytes
        return contract.Part(first, size, *decoded_part(data, begun=query.skip > 0, goes_on=cut), cut)

    async def write(
        self, path: Path, text: str, expected: contract.FileVersion | None = None, *, again: bool = True
    ) -> contract.FileVersion:
        self._need_shown(path)
        old = await self.find_version(path)
        await self.need_expected(path, expected, old)
        return await self.write_like(path, text, old)

    async def need_expected(
        self, path: Path, expected: contract.FileVersion | None, now: contract.FileVersion | None
    ) -> None:
        """Raises ChangedMeanwhile if the disk, of which `now` is the text if it is one, has not what is expected."""
        if expected is None:
            return
        try:
            digest = contract.digest_of(await self.read_bytes(path, -1)) if now is None else now.digest
        except FileNotFoundError:
            digest = None
        if not expected.is_on_disk(digest):
            raise contract.ChangedMeanwhile(path)

    async def write_like(self, path: Path, text: str, old: contract.FileVersion | None) -> contract.FileVersion:
        """Writes the file itself in the encoding of `old`, or in UTF-8 if that lacks a character, or there is none."""
        self._need_shown(path)
        encoding = UTF8 if old is None else old.encoding
        now, remark = await self._disk.do(path, files.write_text, path, text, encoding)
        data, encoding = encoded(text, encoding)
        return contract.FileVersion(now, contract.digest_of(data), encoding, remark)

    async def need_plain(self, path: Path) -> None:
        """Raises ExecutorError for a path that must not be opened by name: hidden, reached through a link, or not a
        regular file. It may be missing."""
        self._need_shown(path)
        await self._disk.do(path, files.need_plain, path)

    def _need_shown(self, path: Path) -> None:
        if self._hides is not None and self._hides(path):
            words = "must not be read or changed (`tools.files.deny_read`, `tools.risk.forbidden_paths`)"
            raise ExecutorError(f"{path} is hidden and {words}")

    async def stat(self, path: Path) -> contract.FileStat | None:
        return await self._disk.do(path, files.look_at, path)

    async def list(self, path: Path, most: int | None = None) -> contract.Listing:
        self._need_shown(path)
        found, more = await self._disk.do(path, files.entries, path, most)
        hides = self._hides
        shown = found if hides is None else [entry for entry in found if not hides(path / entry[0])]
        return contract.Listing(tuple(shown), more)

    async def find(self, query: contract.FindQuery) -> contract.Found:
        self._need_shown(query.root)
        return await self._disk.search(search.find, query, self._hides)

    async def grep(self, query: contract.GrepQuery) -> contract.Found:
        self._need_shown(query.root)
        hides, skips = self._hides, query.skips
        if skips is not None:
            hides = lambda path: skips(path) or (self._hides is not None and self._hides(path))  # noqa: E731
        return await self._disk.search(search.grep, query, hides)

    async def make_directory(self, path: Path) -> int:
        return await self._disk.do(path, tree.make_directory, path)

    async def remove(self, path: Path, *, max_entries: int, judged: contract.Judged | None = None) -> contract.Tally:
        return await self._disk.do(path, tree.remove, path, max_entries, check=CHECK, judged=judged)

    async def move(self, source: Path, destination: Path, **bounds: Any) -> contract.Tally:
        return await self._carry(tree.move, source, destination, **bounds)

    async def copy(self, source: Path, destination: Path, **bounds: Any) -> contract.Tally:
        return await self._carry(tree.copy, source, destination, **bounds)

    async def _carry(
        self,
        work: Callable[..., contract.Tally],
        *paths: Path,
        overwrite: bool,
        max_entries: int,
        judged: contract.Judged | None = None,
    ) -> contract.Tally:
        bounds = {"check": CHECK, "hides": self._hides, "judged": judged}
        return await self._disk.do(paths[0], work, *paths, overwrite, max_entries, **bounds)
