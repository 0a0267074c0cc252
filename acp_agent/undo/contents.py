"""Contents of files by their SHA-256, in a folder: compressed, and as a difference to an earlier content where that is
much smaller.

A file is a zero and the compressed content, or the length of its chain, the base's hash, the lengths of what both begin
and end with, and the compressed middle. Written besides and renamed, so that two processes never see half a one. What
is read is checked.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
import uuid
import zlib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from acp_agent.errors import AgentError
from acp_agent.executors.users import as_ourselves

LEVEL = 1
"""Of the compression: speed matters more."""
LONGEST_CHAIN = 100
"""Differences that are read one after the other."""
DELTA_HEAD = struct.Struct(">B32sII")
YOUNG = 3600.0
"""Seconds for which a content is kept although no operation refers to it: another agent may be about to."""
BLOCK = 4096
"""Bytes that the smallest file takes."""
SHORT = 32 * 1024
"""Bytes of a content that is compressed before a difference is looked for."""
RECENT, LONGEST_RECENT = 8, 1_000_000
"""Contents that are remembered, of at most so many bytes: the next one of the same file is a difference to one."""


class ContentError(AgentError):
    """A content cannot be kept, or is not there any more."""


def name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Contents:
    """`quota`: bytes that all contents together may take; 0: no limit. Thread-safe."""

    def __init__(self, folder: Path, *, quota: int = 0) -> None:
        self.folder = folder
        self._quota = quota
        self._used: int | None = None
        self._recent: dict[str, tuple[int, bytes]] = {}

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name[2:]

    def put(self, data: bytes, like: str = "") -> str:
        """Keeps `data` and returns its hash. `like`: a kept content that it probably resembles. Raises ContentError."""
        with as_ourselves():
            return self._put(data, like)

    def _put(self, data: bytes, like: str) -> str:
        name = name_of(data)
        path = self._path(name)
        try:
            try:
                os.utime(path)  # Young again: it is not removed before it is referred to.
                return name
            except FileNotFoundError:
                pass
            packed = self._packed(data, like)
            self._remember(name, packed[0], data)
            self._need_room(len(packed))
            try:
                _write(path, packed)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _write(path, packed)
        except OSError as error:
            raise ContentError(f"{self.folder}: {error.strerror or error}") from error
        return name

    def _remember(self, name: str, depth: int, data: bytes) -> None:
        if len(data) <= LONGEST_RECENT:
            self._recent[name] = (depth, data)
            while len(self._recent) > RECENT:
                self._recent.pop(next(iter(self._recent)), None)

    def _need_room(self, size: int) -> None:
        if not self._quota:
            return
        if self._used is None:
            self._used = self.used()
        if self._used + size > self._quota:
            raise ContentError(f"the contents would take more than `undo.quota_bytes` ({self._quota} bytes)")
        self._used += _rounded(size)

    def used(self) -> int:
        """Bytes that all contents take on the disk."""
        return sum(_rounded(size) for _, size, _ in self._all())

    def _packed(self, data: bytes, like: str) -> bytes:
        """As short as it gets in a short time; what fits into a block is short enough."""
        whole = b""
        if len(data) <= SHORT:
            whole = b"\0" + zlib.compress(data, LEVEL)
            if len(whole) <= BLOCK:
                return whole
        return self._difference(data, like) or whole or b"\0" + zlib.compress(data, LEVEL)

    def _difference(self, data: bytes, like: str) -> bytes:
        """`data` as what differs from `like`; empty where that does not save much."""
        if not like or len(data) < BLOCK:
            return b""
        try:
            depth, base = self._recent.get(like) or self._read(like)
        except ContentError:
            return b""
        if depth >= LONGEST_CHAIN:
            return b""
        head = common(base, data)
        tail = min(common(base[::-1], data[::-1]), min(len(base), len(data)) - head)
        if len(data) - head - tail > len(data) // 8:
            return b""
        middle = zlib.compress(data[head : len(data) - tail], LEVEL)
        return DELTA_HEAD.pack(depth + 1, bytes.fromhex(like), head, tail) + middle

    def get(self, name: str) -> bytes:
        """The content with this hash. Raises ContentError if it is lost."""
        with as_ourselves():
            return self._read(name)[1]

    def _read(self, name: str) -> tuple[int, bytes]:
        """The length of its chain of differences, and the content."""
        middles: list[tuple[int, int, bytes]] = []
        depth, at = -1, name
        try:
            while True:
                packed = self._path(at).read_bytes()
                depth = packed[0] if depth < 0 else depth
                if packed[0] == 0:
                    data = zlib.decompress(packed[1:])
                    break
                _, base, head, tail = DELTA_HEAD.unpack_from(packed)
                middles.append((head, tail, zlib.decompress(packed[DELTA_HEAD.size :])))
                at = base.hex()
            for head, tail, middle in reversed(middles):
                data = data[:head] + middle + data[len(data) - tail :]
        except (OSError, zlib.error, struct.error, IndexError) as error:
            raise ContentError(f"a content kept for undo is lost ({name[:12]})") from error
        if name_of(data) != name:
            raise ContentError(f"a content kept for undo is damaged ({name[:12]})")
        return depth, data

    def _all(self) -> list[tuple[str, int, float]]:
        """Name, size and time of each."""
        found = []
        try:
            folders = [entry.path for entry in os.scandir(self.folder) if len(entry.name) == 2]
        except OSError:
            return []
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # It has got its name.
                        seen = entry.stat(follow_symlinks=False)
                        found.append((os.path.basename(folder) + entry.name, seen.st_size, seen.st_mtime))
        return found

    def sweep(self, live: Collection[str]) -> int:
        """Removes what is neither in `live` nor the base of such a one, nor young; the bytes that became free."""
        freed, all_ = 0, self._all()
        keep = {*live}
        for name in live:
            keep.update(self._bases(name))
        for name, _, at in all_:
            if time.time() - at < YOUNG:
                keep.update(self._bases(name))
        for name, size, at in all_:
            if name not in keep and time.time() - at >= YOUNG:
                try:
                    os.unlink(self._path(name))
                    freed += _rounded(size)
                except OSError:
                    continue
        self._used = None
        return freed

    def _bases(self, name: str) -> list[str]:
        bases: list[str] = []
        try:
            while True:
                with open(self._path(name), "rb") as file:
                    head = file.read(DELTA_HEAD.size)
                if not head or head[0] == 0:
                    return bases
                name = DELTA_HEAD.unpack(head)[1].hex()
                bases.append(name)
        except (OSError, struct.error):
            return bases


def _write(path: Path, packed: bytes) -> None:
    beside = f"{path.parent}/.{uuid.uuid4().hex}"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            left = memoryview(packed)
            while left:
                left = left[file.write(left) :]
        os.rename(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


def _rounded(size: int) -> int:
    return (size + BLOCK - 1) // BLOCK * BLOCK


def common(one: bytes, other: bytes) -> int:
    """The length of what both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
