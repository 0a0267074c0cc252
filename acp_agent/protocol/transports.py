"""Byte streams for a `Connection`: this process's stdin and stdout, a child's pipes, and an in-memory pair.

The contract has three calls: `read()` returns some bytes, `b""` at the end; `write()` returns once the bytes are on
their way (which provides back-pressure); `close()` is idempotent and wakes both.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import sys
import threading
from typing import Protocol

from acp_agent.errors import ConnectionClosed

READ_SIZE = 256 * 1024
"""Bytes requested from the kernel at once."""

MEMORY_CAPACITY = 64 * 1024
"""Bytes a memory transport holds before a write waits: the capacity of a Linux pipe."""


class Transport(Protocol):
    async def read(self) -> bytes:
        """Returns the next bytes; `b""` once the other side has ended or this side was closed."""
        ...

    async def write(self, data: bytes) -> None:
        """Returns when all of `data` has been accepted. Raises ConnectionClosed when nobody reads any more."""
        ...

    def close(self) -> None: ...


def stdio() -> FdTransport:
    """This process's stdin and stdout. Nothing else may read from or write to them."""
    return FdTransport(0, 1)


class FdTransport:
    """Two file descriptors: pipes, sockets, terminals or files.

    The read end is never switched to non-blocking (a terminal shares that flag with the shell that started us): a read
    follows a readiness report, and where the kernel reports none (regular files) a thread reads. The write end is
    switched for pipes and sockets only, and switched back by `close()`. The descriptors stay open.

    `ends_on_hangup`: reading ends once our output is no longer read, even while nothing arrives. That is right for
    an agent, and wrong for a client, whose child's last output may still be in the pipe.
    """

    def __init__(self, read_fd: int, write_fd: int, *, ends_on_hangup: bool = True) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._closed = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        mode = os.fstat(write_fd).st_mode
        self._nonblocking = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        self._was_blocking = os.get_blocking(write_fd)
        if self._nonblocking:
            os.set_blocking(write_fd, False)
        self._hangup: asyncio.Future[None] = self._loop.create_future()
        self._watching_hangup = ends_on_hangup and stat.S_ISFIFO(mode) and sys.platform == "linux"
        if self._watching_hangup:
            # The write end of a pipe never becomes readable, but the kernel reports there that its reader has gone.
            self._loop.add_reader(write_fd, self._on_hangup)
        self._polled = True
        try:
            self._loop.add_reader(read_fd, self._on_readable)
            self._loop.remove_reader(read_fd)
        except OSError as error:
            if error.errno != errno.EPERM:
                raise
            self._polled = False

    @property
    def hung_up(self) -> bool:
        """Whether our output is no longer read (where the kernel reports it: pipes)."""
        return self._hangup.done()

    async def read(self) -> bytes:
        if self._closed:
            return b""
        self._reader = self._loop.create_future()
        if self._polled:
            self._loop.add_reader(self._read_fd, self._on_readable)
        else:
            threading.Thread(target=self._read_in_thread, args=(self._reader,), daemon=True).start()
        try:
            await asyncio.wait((self._reader, self._hangup), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._polled and not self._closed:
                self._loop.remove_reader(self._read_fd)
        if self._closed or self._hangup.done():
            return b""
        return self._thread_data if not self._polled else self._read_now()

    _thread_data = b""

    def _read_now(self) -> bytes:
        try:
            return os.read(self._read_fd, READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return b"\n"  # An empty line: nothing arrived after all, and this is not the end.
        except OSError:
            return b""

    def _read_in_thread(self, ready: asyncio.Future[None]) -> None:
        data = self._read_now()

        def deliver() -> None:
            self._thread_data = data
            if not ready.done():
                ready.set_result(None)

        try:
            self._loop.call_soon_threadsafe(deliver)
        except RuntimeError:
            pass  # The loop has ended; nobody waits for these bytes.

    def _on_readable(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _on_writable(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _on_hangup(self) -> None:
        self._loop.remove_reader(self._write_fd)
        self._watching_hangup = False
        if not self._hangup.done():
            self._hangup.set_result(None)
        self._on_writable()

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if self._closed or self._hangup.done():
                raise ConnectionClosed("our output is no longer read")
            try:
                rest = rest[os.write(self._write_fd, rest) :]
            except (BlockingIOError, InterruptedError):
                self._writer = self._loop.create_future()
                self._loop.add_writer(self._write_fd, self._on_writable)
                try:
                    await self._writer
                finally:
                    if not self._closed:
                        self._loop.remove_writer(self._write_fd)
            except OSError as error:
                raise ConnectionClosed(f"our output cannot be written: {error.strerror}") from error

    def write_now(self, data: bytes) -> int:
        """Writes what is accepted without waiting and returns its size. Failures are left for `write` to find."""
        if self._closed or not self._nonblocking or self._hangup.done():
            return 0
        try:
            return os.write(self._write_fd, data)
        except OSError:
            return 0

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._polled:
            self._loop.remove_reader(self._read_fd)
        self._loop.remove_writer(self._write_fd)
        if self._watching_hangup:
            self._loop.remove_reader(self._write_fd)
            self._watching_hangup = False
        if self._nonblocking and self._was_blocking:
            try:
                os.set_blocking(self._write_fd, True)
            except OSError:
                pass  # The descriptor was closed before.
        self._on_readable()
        self._on_writable()


class MemoryTransport:
    """One end of an in-memory pair, with a pipe's capacity and back-pressure."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def read(self) -> bytes:
        return await self._incoming.get()

    async def write(self, data: bytes) -> None:
        await self._outgoing.put(data)

    def close(self) -> None:
        """Ends both directions: the other side reads what was written, then `b""`."""
        self._outgoing.end()
        self._incoming.end()


class _Pipe:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._data = bytearray()
        self._ended = False
        self._changed = asyncio.Event()

    async def get(self) -> bytes:
        while not self._data and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._data)
        self._data.clear()
        self._changed.set()
        return data

    async def put(self, data: bytes) -> None:
        rest = data
        while rest:
            while len(self._data) >= self._capacity and not self._ended:
                self._changed.clear()
                await self._changed.wait()
            if self._ended:
                raise ConnectionClosed("the other end of the memory pair is closed")
            room = self._capacity - len(self._data)
            self._data += rest[:room]
            rest = rest[room:]
            self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()


def memory_pair(capacity: int = MEMORY_CAPACITY) -> tuple[MemoryTransport, MemoryTransport]:
    """Two connected transports: each reads what the other writes."""
    one, two = _Pipe(capacity), _Pipe(capacity)
    return MemoryTransport(one, two), MemoryTransport(two, one)
