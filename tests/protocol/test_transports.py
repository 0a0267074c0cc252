"""One contract for every stream, then what is special about pipes, sockets, files and the memory pair."""

import os
import socket
import tty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.client.tasks import Background
from acp_agent.errors import ConnectionClosed
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.transports import FdTransport, Transport, memory_pair
from tests.protocol.kit import Table, echo


@pytest.fixture
def fds() -> Iterator[Callable[..., tuple[int, ...]]]:
    """Registers descriptors to be closed after the test; one closed by the test itself is no failure."""
    with ExitStack() as stack:

        def close(fd: int) -> None:
            with suppress(OSError):
                os.close(fd)

        def register(*numbers: int) -> tuple[int, ...]:
            for number in numbers:
                stack.callback(close, number)
            return numbers

        yield register


@asynccontextmanager
async def memory() -> AsyncIterator[tuple[Transport, Transport]]:
    one, two = memory_pair()
    yield one, two
    one.close()
    two.close()


@asynccontextmanager
async def pipes() -> AsyncIterator[tuple[Transport, Transport]]:
    (a, b), (c, d) = os.pipe(), os.pipe()
    one, two = FdTransport(a, d), FdTransport(c, b, ends_on_hangup=False)
    try:
        yield _Wrapped(one, partial(os.close, d)), _Wrapped(two, partial(os.close, b))
    finally:
        one.close()
        two.close()
        for fd in (a, b, c, d):
            with suppress(OSError):
                os.close(fd)


@asynccontextmanager
async def sockets() -> AsyncIterator[tuple[Transport, Transport]]:
    left, right = socket.socketpair()
    with left, right:
        one = FdTransport(left.fileno(), left.fileno())
        two = FdTransport(right.fileno(), right.fileno())
        ends = [_Wrapped(each, partial(end.shutdown, socket.SHUT_RDWR)) for each, end in ((one, left), (two, right))]
        yield ends[0], ends[1]
        one.close()
        two.close()


class _Wrapped:
    """A transport does not own its descriptors; whoever does ends the other side's reading."""

    def __init__(self, inner: FdTransport, end: Callable[[], None]) -> None:
        self._inner, self._end = inner, end

    async def read(self) -> bytes:
        return await self._inner.read()

    async def write(self, data: bytes) -> None:
        await self._inner.write(data)

    def close(self) -> None:
        self._inner.close()
        with suppress(OSError):
            self._end()


async def read_all(transport: Transport, size: int | None = None) -> bytes:
    """Until the end, or until `size` bytes have come."""
    data = bytearray()
    while size is None or len(data) < size:
        part = await transport.read()
        if not part:
            break
        data += part
    return bytes(data)


@pytest.mark.parametrize("pair", [memory, pipes, sockets])
class TestEveryTransport:
    async def test_what_one_writes_the_other_reads(self, pair: Any) -> None:
        async with pair() as (one, two):
            await one.write(b"abc\n")
            assert await two.read() == b"abc\n"
            await two.write(b"back\n")
            assert await one.read() == b"back\n"

    async def test_many_mebibytes_pass_whole_in_partial_writes(self, pair: Any) -> None:
        data = os.urandom(5 * 1024 * 1024)
        async with pair() as (one, two), Background() as background:
            background.start(one.write, data)
            assert await read_all(two, len(data)) == data

    async def test_write_waits_for_a_reader_that_has_stopped(self, pair: Any) -> None:
        async with pair() as (one, two), Background() as background:
            done = anyio.Event()

            async def write() -> None:
                await one.write(b"x" * 4 * 1024 * 1024)
                done.set()

            background.start(write)
            await anyio.wait_all_tasks_blocked()
            assert not done.is_set()
            assert len(await read_all(two, 4 * 1024 * 1024)) == 4 * 1024 * 1024
            await done.wait()

    async def test_both_directions_at_once(self, pair: Any) -> None:
        size = 1024 * 1024
        async with pair() as (one, two), Background() as background:
            background.start(one.write, b"1" * size)
            background.start(two.write, b"2" * size)
            got: list[bytes] = []

            async def collect(transport: Transport) -> None:
                got.append(await read_all(transport, size))

            async with anyio.create_task_group() as group:
                group.start_soon(collect, one)
                group.start_soon(collect, two)
        assert sorted(got) == [b"1" * size, b"2" * size]

    async def test_close_ends_our_read_that_waits_and_every_later_one(self, pair: Any) -> None:
        async with pair() as (one, _), Background() as background:
            ended = anyio.Event()

            async def read() -> None:
                assert await one.read() == b""
                ended.set()

            background.start(read)
            await anyio.wait_all_tasks_blocked()
            one.close()
            one.close()
            await ended.wait()
            assert await one.read() == b""

    async def test_other_side_reads_what_was_written_and_then_the_end(self, pair: Any) -> None:
        async with pair() as (one, two):
            await one.write(b"last words\n")
            one.close()
            assert await read_all(two) == b"last words\n"

    async def test_write_after_our_close_is_refused(self, pair: Any) -> None:
        async with pair() as (one, _):
            one.close()
            with pytest.raises(ConnectionClosed):
                await one.write(b"x")

    async def test_close_ends_a_write_that_waits(self, pair: Any) -> None:
        async with pair() as (one, _), Background() as background:
            ended = anyio.Event()

            async def write() -> None:
                with pytest.raises(ConnectionClosed):
                    await one.write(b"x" * 4 * 1024 * 1024)
                ended.set()

            background.start(write)
            await anyio.wait_all_tasks_blocked()
            one.close()
            await ended.wait()

    async def test_cancelled_read_loses_nothing(self, pair: Any) -> None:
        async with pair() as (one, two):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:
                    group.start_soon(two.read)
                    await anyio.wait_all_tasks_blocked()
                    scope.cancel()
            await one.write(b"still there")
            assert await two.read() == b"still there"


@pytest.mark.parametrize("what", ["a read", "a write"])
async def test_closed_stdout_ends_what_waits(what: str, fds: Any) -> None:
    """[END-4]"""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    fds(in_read, in_write, out_read, out_write)
    transport = FdTransport(in_read, out_write)
    async with Background() as background:
        ended = anyio.Event()

        async def wait() -> None:
            if what == "a read":
                assert await transport.read() == b""
            with pytest.raises(ConnectionClosed):
                await transport.write(b"x" * 1024 * 1024)
            ended.set()

        background.start(wait)
        await anyio.wait_all_tasks_blocked()
        os.close(out_read)
        await ended.wait()
    transport.close()


async def test_last_words_of_a_child_that_has_gone_are_read(fds: Any) -> None:
    """A client's view: the child closed its stdin and left an answer in the pipe."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    fds(in_read, in_write, out_read, out_write)
    transport = FdTransport(in_read, out_write, ends_on_hangup=False)
    os.write(in_write, b"answer\n")
    os.close(out_read)
    os.close(in_write)
    assert await read_all(transport) == b"answer\n"
    transport.close()


@pytest.mark.parametrize("size", [600 * 1024, None], ids=["a regular file", "/dev/null"])
async def test_a_file_as_stdin_is_read_to_its_end(size: int | None, tmp_path: Path, fds: Any) -> None:
    data = os.urandom(size or 0)
    (tmp_path / "input").write_bytes(data)
    _, out_write = fds(*os.pipe())
    (file,) = fds(os.open(tmp_path / "input" if size else os.devnull, os.O_RDONLY))
    transport = FdTransport(file, out_write)
    assert await read_all(transport) == data
    assert await transport.read() == b""
    transport.close()


async def test_regular_file_and_dev_null_as_stdout_are_written(tmp_path: Path, fds: Any) -> None:
    in_read, _ = fds(*os.pipe())
    file = tmp_path / "output"
    (out,) = fds(os.open(file, os.O_WRONLY | os.O_CREAT))
    (null,) = fds(os.open(os.devnull, os.O_WRONLY))
    for fd in (out, null):
        transport = FdTransport(in_read, fd)
        await transport.write(b"line\n" * 100_000)
        transport.close()
    assert file.read_bytes() == b"line\n" * 100_000


async def test_blocking_flags_are_as_before_after_close_and_descriptors_that_are_gone_no_failure(fds: Any) -> None:
    in_read, _ = fds(*os.pipe())
    _, out_write = fds(*os.pipe())
    transport = FdTransport(in_read, out_write)
    assert os.get_blocking(in_read), "a terminal's flag belongs to the shell too"
    assert not os.get_blocking(out_write)
    transport.close()
    assert os.get_blocking(in_read) and os.get_blocking(out_write)
    os.set_blocking(out_write, False)
    FdTransport(in_read, out_write).close()
    assert not os.get_blocking(out_write)
    os.set_blocking(out_write, True)
    transport = FdTransport(in_read, out_write)
    os.close(in_read)
    os.close(out_write)
    transport.close()


async def test_terminal_as_stdin_and_stdout(fds: Any) -> None:
    controller, terminal = fds(*os.openpty())
    tty.setraw(terminal)
    transport = FdTransport(terminal, terminal)
    os.write(controller, b"typed\n")
    assert await transport.read() == b"typed\n"
    await transport.write(b"shown\n")
    assert os.read(controller, 1000) == b"shown\n" and os.get_blocking(terminal)
    transport.close()


async def test_connection_over_pipes_ends_with_its_input(fds: Any) -> None:
    """[END-1]"""
    in_read, in_write = fds(*os.pipe())
    out_read, out_write = fds(*os.pipe())
    os.write(in_write, b'{"jsonrpc":"2.0","id":1,"method":"echo","params":"x"}\n')
    os.close(in_write)
    await Connection(FdTransport(in_read, out_write), Table(echo=echo)).serve()
    assert os.read(out_read, 1000) == b'{"jsonrpc":"2.0","id":1,"result":"x"}\n' and os.get_blocking(out_write)
