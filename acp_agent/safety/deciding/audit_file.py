"""The file of the audit log: whole lines, in a chain of hashes, written by several agents at once, rotated.

Each line has a number (`seq`) and the hash of the line before it (`prev`), also across rotated files. The last number
and hash are also recorded in the store (`Heads`), after the line was written. So a line that was changed, inserted or
removed breaks the chain, and an end that was cut off differs from the record (`audit_chain.check`).

- One agent writes at a time: it holds a lock (`flock`) on the file, for a bounded time.
- The chain goes on from the record, not from whatever the file ends with: a cut stays visible after the next line.
- Only if what the file has more than the record is a proper continuation (an agent was killed before it could record
  its line, or the store was busy), the chain goes on after that, and the next line says how many lines were unrecorded.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from acp_agent.errors import StoreError
from acp_agent.lazy import load
from acp_agent.limits.decoding import read_json

log = logging.getLogger(__name__)

PRIVATE = 0o600
START = "0" * 64
"""`prev` of a first line that follows nothing."""
LOCK_SECONDS, LOCK_PAUSE = 1.0, 0.002
"""How long a line waits for another agent's."""
BLOCK = 64 * 1024
UNKNOWN = 0
"""`begin` of a head that was not compared with the record, and so is not recorded."""

SHA256 = "hashlib:sha256"
CONTINUES = "acp_agent.safety.deciding.audit_chain:continues"


class Link(msgspec.Struct, frozen=True):
    """What of a line is part of the chain."""

    seq: int | None = None
    prev: str | None = None
    unrecorded: int = 0


class Head(msgspec.Struct, frozen=True):
    """What is recorded about a log."""

    count: int
    """Number of the last line."""
    hash: str
    """Of that line."""
    begin: int = 1
    """Number of the first line that must still be there: older ones were rotated away, or accepted by the user."""


class Heads(Protocol):
    """The records. All raise StoreError."""

    def read(self, log: str) -> tuple[int, str, int] | None:
        """Count, hash and begin."""
        ...

    def write(self, log: str, count: int, hash: str, begin: int) -> None: ...


class AuditFile:
    """`changed` is called if the file is not what was recorded."""

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        backups: int,
        heads: Heads | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Without `heads` the chain goes on from the end of the file."""
        self.path = path
        self._name = os.path.realpath(path)
        self._max_bytes = max_bytes
        self._backups = backups
        self._heads = heads
        self._changed = changed
        self._seen: tuple[int, int, int] | None = None
        """Device, inode and size of the file after our last line, if that was recorded or will be."""
        self._head = Head(0, START)
        self._patient = True

    def append(self, make: Callable[[int, str, int | None], bytes]) -> None:
        """Adds the line that `make` returns for its number, the hash of the line before it and, if there are any, the
        number of unrecorded lines before it. Raises OSError; then the file is as it was."""
        while True:
            with self.locked() as fd:
                found = os.fstat(fd)
                unrecorded, torn = 0, False
                if self._seen != (found.st_dev, found.st_ino, found.st_size):
                    unrecorded, torn = self._find_end(fd, found.st_size)
                head = self._head
                line = make(head.count + 1, head.hash, unrecorded or None)
                data = b"\n" * torn + line + b"\n"
                if found.st_size and found.st_size + len(data) > self._max_bytes and self._rotate():
                    continue
                self._write(fd, data, found.st_size)
                self._head = Head(head.count + 1, hash_of(line), head.begin)
                self._record((found.st_dev, found.st_ino, found.st_size + len(data)))
                return

    @contextmanager
    def locked(self) -> Iterator[int]:
        """The file, open, while no other agent writes or rotates it. Raises OSError."""
        until = time.monotonic() + (LOCK_SECONDS if self._patient else 0.0)
        while True:
            fd = self.open()
            try:
                self._lock(fd, until)
                if _same(fd, self.path):  # Else it was rotated meanwhile.
                    yield fd
                    return
            finally:
                os.close(fd)

    def _lock(self, fd: int, until: float) -> None:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > until:
                    self._patient = False  # Not every line waits that long.
                    raise OSError(errno.EAGAIN, "another program keeps it locked") from error
                time.sleep(LOCK_PAUSE)
            else:
                self._patient = True
                return

    def open(self) -> int:
        """Raises OSError if it cannot be written or is not a regular file."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(self.path, flags, PRIVATE)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self.path, flags, PRIVATE)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise OSError(0, "it is not a regular file")
        if stat.S_IMODE(found.st_mode) != PRIVATE:
            os.fchmod(fd, PRIVATE)
        return fd

    def _write(self, fd: int, data: bytes, size: int) -> None:
        done = 0
        try:
            while done < len(data):  # On a full disk the next write raises an error.
                done += os.write(fd, data[done:])
        except OSError:
            os.ftruncate(fd, size)
            raise

    # --- the chain --------------------------------------------------------------------------------------------

    def _find_end(self, fd: int, size: int) -> tuple[int, bool]:
        """Sets the head that the next line follows. Returns how many lines before it are unrecorded, and whether the
        last line is not whole."""
        self._seen = None
        line = last_line(fd, size) if size else self._last_rotated()
        torn = bool(size) and os.pread(fd, 1, size - 1) != b"\n"
        seq, here = link_of(line).seq or 0, hash_of(line) if line else START
        try:
            known = self._heads.read(self._name) if self._heads is not None else None
        except StoreError as error:
            log.warning("the record of the audit log cannot be read: %s", error)
            self._head = Head(seq, here, UNKNOWN)
            return 0, torn
        if known is None:
            self._head = Head(seq, here, seq + 1)
            return 0, torn
        self._head = head = Head(*known)
        if (seq == head.count and here == head.hash) or (not line and head.begin > head.count):
            return 0, torn
        if seq > head.count and not torn and load(CONTINUES)(self.path, head):
            self._head = Head(seq, here, head.begin)
            return seq - head.count, torn
        log.warning("the audit log %s was changed", self.path)
        if self._changed is not None:
            self._changed()
        return 0, torn

    def _last_rotated(self) -> bytes:
        """The last line of the newest rotated file, if there is one."""
        try:
            fd = os.open(f"{self.path}.1", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return b""
        try:
            return last_line(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def _record(self, seen: tuple[int, int, int]) -> None:
        """Records the head, so that the next line need not look for it."""
        self._seen = seen if self._recorded() else None

    def _recorded(self) -> bool:
        head = self._head
        if self._heads is None:
            return True
        if head.begin == UNKNOWN:
            return False
        try:
            self._heads.write(self._name, head.count, head.hash, head.begin)
        except StoreError as error:  # The next line finds out.
            log.warning("the end of the audit log cannot be recorded: %s", error)
            return False
        return True

    def _rotate(self) -> bool:
        """Moves the files on; what is no longer kept is recorded before it is gone. False if that failed."""
        last = Path(f"{self.path}.{self._backups}") if self._backups else self.path
        if last.exists():
            with open(os.open(last, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
                gone = link_of(last_line(file.fileno(), os.fstat(file.fileno()).st_size)).seq or 0
            if gone >= self._head.begin:
                self._head = msgspec.structs.replace(self._head, begin=gone + 1)
                if not self._recorded():
                    return False
        for number in range(self._backups - 1, 0, -1):
            older = f"{self.path}.{number}"
            if os.path.exists(older):
                os.replace(older, f"{self.path}.{number + 1}")
        if self._backups:
            os.replace(self.path, f"{self.path}.1")
        else:
            os.unlink(self.path)
        self._seen = None
        return True


def hash_of(line: bytes) -> str:
    digest: str = load(SHA256)(line).hexdigest()
    return digest


def link_of(line: bytes) -> Link:
    """A line that is none of ours has no number."""
    try:
        return read_json(line, type=Link)
    except msgspec.DecodeError:
        return Link()


def last_line(fd: int, size: int) -> bytes:
    """The last line, without its end; also one that is not whole."""
    end, text = size, b""
    while end > 0 and b"\n" not in text[:-1]:
        begin = max(0, end - BLOCK)
        text = os.pread(fd, end - begin, begin) + text
        end = begin
    return text.removesuffix(b"\n").rpartition(b"\n")[2]


def _same(fd: int, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)
