"""A proxy's side of a connection: HTTP (CONNECT and plain requests) and SOCKS5, told apart by the first byte.

Here are only the protocols (RFC 9110 section 9.3.6, RFC 9112 section 3.2.2, RFC 1928). Where a client may be connected
to, and how, is decided by the `open` that `answer` gets: the browser's guard, or the one for commands. A plain request
ends its connection, so that nothing that was decided for one host is used for another.
"""

from __future__ import annotations

import re
import socket
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.abc import ByteReceiveStream, ByteStream, SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from acp_agent.errors import AgentError, ToolError
from acp_agent.limits.shares import Share

MAX_HEAD = 65_536
HEAD_TIMEOUT = 30.0
"""Seconds for a request to arrive, and for a further proxy to answer."""
CHUNK = 262_144
ADDRESS_TIMEOUT = 4.0
"""Seconds for an address while there is another to try."""
MOST_ADDRESSES = 4
MOST_CONNECTIONS = 128
"""At a time, to one listener."""
ACCEPT_AGAIN = 0.1
"""Seconds, after this process was out of descriptors, and between two looks for a free place."""
MOST_LOOKUPS = 4
"""Names of a session's commands that are looked up at a time; others wait."""
PLACE_SECONDS = 2.0
"""How long a connection waits for a place; others wait behind it, without being accepted. Then it is refused."""
REFUSE_SECONDS = 1.0
"""For a client that is refused to say what it wants: programs read no answer before."""

HTTP, HTTPS = 80, 443
REQUEST = re.compile(rb"([A-Z]+) ([^\0-\x20\x7f]+) HTTP/1\.[01]\r\n")
HEADERS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*\r\n)*\r\n")
"""Without what servers read in different ways: folded lines, bare line feeds, spaces before the colon."""
HOP_HEADERS = re.compile(rb"^(?:proxy-[^:]*|connection|keep-alive|host):.*\r\n", re.IGNORECASE | re.MULTILINE)

SOCKS, NO_PASSWORD, NO_METHOD = 5, 0, 0xFF
CONNECT, BY_FOUR, BY_NAME, BY_SIX = 1, 1, 3, 4
DONE, NOT_ALLOWED, UNREACHABLE, NO_COMMAND, NO_ADDRESS = 0, 2, 4, 7, 8

ENDED = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead, OSError)
"""How a connection ends that the other side has left."""


class Wanted(Struct, frozen=True):
    """What a client asks for."""

    host: str
    """As the client wrote it."""
    port: int
    url: str = ""
    """The URL of a plain request; empty for a tunnel."""


class Traffic(Struct):
    """Bytes that were relayed."""

    sent: int = 0
    received: int = 0


Open = Callable[[Wanted], Awaitable[tuple[ByteStream, Traffic]]]
"""Connects, and says where to count; or raises an AgentError with a sentence for the user of the client."""


async def serve(
    listener: SocketListener,
    handler: Callable[[SocketStream], Awaitable[None]],
    share: Share,
    refuse: Callable[[SocketStream, str], Awaitable[None]] | None = None,
) -> None:
    """Accepts connections until cancelled. `share`: what each takes one of. `refuse`: tells a client why it gets none;
    else it is only closed."""

    async def handle(client: SocketStream) -> None:
        try:
            await handler(client)
        finally:
            share.give()

    async with anyio.create_task_group() as tasks:
        while True:
            try:
                client = await listener.accept()
            except OSError:
                await anyio.sleep(ACCEPT_AGAIN)
                continue
            try:
                with anyio.move_on_after(PLACE_SECONDS):
                    while share.full():  # noqa: ASYNC110 - it may be any of several that becomes free
                        await anyio.sleep(ACCEPT_AGAIN)
            except BaseException:
                await anyio.aclose_forcefully(client)
                raise
            if not (why := share.take()):
                tasks.start_soon(handle, client)
                continue
            async with client:
                if refuse is not None:
                    with anyio.move_on_after(REFUSE_SECONDS):
                        await refuse(client, why)


async def answer(client: ByteStream, open: Open) -> None:
    """Serves one connection until either side has ended."""
    async with client:
        try:
            await _answer(client, open)
        except ENDED:
            return  # A client that leaves early has got what it wanted.


async def _answer(client: ByteStream, open: Open) -> None:
    reader = BufferedByteReceiveStream(client)
    with anyio.move_on_after(HEAD_TIMEOUT) as scope:
        first = (await reader.receive_exactly(1))[0]
        request = await (_socks(reader, client) if first == SOCKS else _http(reader, bytes([first])))
    if scope.cancelled_caught or request is None:
        if not scope.cancelled_caught and first != SOCKS:
            await client.send(reply(400, "This is a proxy, and that was no request it understands."))
        return
    wanted, head, done = request
    try:
        server, traffic = await open(wanted)
    except AgentError as error:
        await client.send(_refusal(error) if first == SOCKS else reply(403, str(error)))
        return
    async with server:
        if done:
            await client.send(done)
        if early := head + reader.buffer:
            traffic.sent += len(early)
            await server.send(early)
        await relay(client, server, traffic)


async def relay(client: ByteStream, server: ByteStream, traffic: Traffic) -> None:
    """Both directions, each until its source ends; the end of one is passed on."""

    async def pipe(source: ByteStream, sink: ByteStream, *, sends: bool) -> None:
        try:
            while True:
                data = await source.receive(CHUNK)
                await sink.send(data)
                if sends:
                    traffic.sent += len(data)
                else:
                    traffic.received += len(data)
        except anyio.EndOfStream:
            with anyio.CancelScope(shield=True):
                await sink.send_eof()
        except ENDED:
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:

        async def upwards() -> None:
            try:
                await pipe(client, server, sends=True)
            except ENDED:
                tasks.cancel_scope.cancel()

        tasks.start_soon(upwards)
        try:
            await pipe(server, client, sends=False)
        except ENDED:
            tasks.cancel_scope.cancel()


Request = tuple[Wanted, bytes, bytes]
"""What is wanted, what the server gets first, what the client is told once it is connected."""


async def _http(reader: BufferedByteReceiveStream, first: bytes) -> Request | None:
    try:
        rest = await reader.receive_until(b"\r\n\r\n", MAX_HEAD)
    except anyio.DelimiterNotFound:
        return None
    head = first + rest + b"\r\n\r\n"
    if (match := REQUEST.match(head)) is None:
        return None
    method, target = match[1], match[2].decode("latin-1")
    if method == b"CONNECT":
        place = _place(f"//{target}", HTTPS)
        return place and (Wanted(*place), b"", b"HTTP/1.1 200 Connection established\r\n\r\n")
    if HEADERS.fullmatch(head, match.end()) is None:
        return None
    if not target.lower().startswith("http://") or (place := _place(target, HTTP)) is None:
        return None
    return Wanted(*place, url=target), _origin_form(method, target, head[match.end() :]), b""


def _place(url: str, port: int) -> tuple[str, int] | None:
    try:
        parts = urlsplit(url)
        return (parts.hostname, parts.port or port) if parts.hostname and "@" not in parts.netloc else None
    except ValueError:
        return None


def _origin_form(method: bytes, url: str, headers: bytes) -> bytes:
    """The request as the server itself gets it. `Host` is from the URL, which was judged, whatever the client wrote."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = HOP_HEADERS.sub(b"", headers)
    line = method + b" " + path.encode("latin-1") + b" HTTP/1.1\r\n"
    return line + b"Host: " + parts.netloc.encode("latin-1") + b"\r\nConnection: close\r\n" + kept


def reply(status: int, words: str) -> bytes:
    body = f"{words}\n".encode("utf-8", "replace")
    reason = "Forbidden" if status == 403 else "Bad Request"
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


# --- SOCKS5 --------------------------------------------------------------------------------------------------------


async def _socks(reader: BufferedByteReceiveStream, client: ByteStream) -> Request | None:
    """Names are resolved here, not by the client (`socks5h`)."""
    methods = await reader.receive_exactly((await reader.receive_exactly(1))[0])
    if NO_PASSWORD not in methods:
        await client.send(bytes((SOCKS, NO_METHOD)))
        return None
    await client.send(bytes((SOCKS, NO_PASSWORD)))
    _, command, _, kind = await reader.receive_exactly(4)
    if kind not in (BY_FOUR, BY_NAME, BY_SIX):
        await client.send(_socks_reply(NO_ADDRESS))
        return None
    size = {BY_FOUR: 4, BY_SIX: 16}.get(kind) or (await reader.receive_exactly(1))[0]
    data = await reader.receive_exactly(size)
    port = int.from_bytes(await reader.receive_exactly(2), "big")
    if command != CONNECT:
        await client.send(_socks_reply(NO_COMMAND))
        return None
    host = data.decode("latin-1") if kind == BY_NAME else str(ip_address(data))
    return Wanted(host, port), b"", _socks_reply(DONE)


def _refusal(error: AgentError) -> bytes:
    """SOCKS has no place for words."""
    unreachable = isinstance(error, ToolError) and error.category in ("network_error", "timeout")
    return _socks_reply(UNREACHABLE if unreachable else NOT_ALLOWED)


def _socks_reply(code: int) -> bytes:
    return bytes((SOCKS, code, 0, BY_FOUR, 0, 0, 0, 0, 0, 0))


# --- outwards ------------------------------------------------------------------------------------------------------


Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves host and port to addresses. Raises OSError."""


class Lookups:
    """Of names that commands choose, in threads of their own: who waits for a slow one takes none of others."""

    def __init__(self) -> None:
        self._free = anyio.CapacityLimiter(MOST_LOOKUPS)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """As `resolve_by_system`. Who is cancelled does not wait; the thread counts until it has ended."""
        one, began = object(), list[bool]()
        await self._free.acquire_on_behalf_of(one)

        def look() -> list[str]:
            began.append(True)
            try:
                return [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
            finally:
                with suppress(RuntimeError):  # The event loop has ended.
                    anyio.from_thread.run_sync(self._free.release_on_behalf_of, one)

        try:
            return await anyio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
        finally:
            if not began:
                self._free.release_on_behalf_of(one)


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


async def connect(addresses: tuple[str, ...], port: int, upstream: str = "") -> ByteStream:
    """Connects to the first of the addresses that accepts; with `upstream`, an HTTP proxy, through that.

    Raises ToolError.
    """
    trouble: Exception | None = None
    tried = addresses[:MOST_ADDRESSES]
    for address in tried:
        try:
            with anyio.fail_after(HEAD_TIMEOUT if address == tried[-1] else ADDRESS_TIMEOUT):
                if upstream:
                    return await _through(upstream, address, port)
                return await anyio.connect_tcp(address, port)
        except (OSError, TimeoutError) as error:
            trouble = error
    words = str(trouble) or "no answer in time"
    raise ToolError(f"No connection to {addresses[0]}:{port}: {words}.", "network_error") from trouble


async def _through(upstream: str, address: str, port: int) -> ByteStream:
    try:
        proxy = urlsplit(upstream)
        known, proxy_port = proxy.scheme == "http" and proxy.hostname, proxy.port or HTTP
    except ValueError:
        known = None
    if not known:
        raise ToolError(
            "Only plain HTTP proxies (http://HOST:PORT) are supported to connect through.", "policy_blocked"
        )
    stream = await anyio.connect_tcp(known, proxy_port)
    shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    connected = False
    try:
        await stream.send(f"CONNECT {shown} HTTP/1.1\r\nHost: {shown}\r\n{_authorization(upstream)}\r\n".encode())
        # Read to the byte: what follows belongs to the tunnel.
        head = await _head(stream)
        connected = re.match(rb"HTTP/1\.[01] 2\d\d", head) is not None
        if not connected:
            raise OSError(f"the proxy {proxy.hostname} answered {head.split(bytes([13]))[0][:60]!r}")
        return stream
    except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise OSError(f"the proxy {proxy.hostname} closed the connection") from error
    finally:
        if not connected:
            await anyio.aclose_forcefully(stream)


async def _head(stream: ByteReceiveStream) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD:
        head += await stream.receive(1)
    return head


def _authorization(upstream: str) -> str:
    proxy = urlsplit(upstream)
    if not proxy.username:
        return ""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return f"Proxy-Authorization: Basic {b64encode(pair.encode()).decode()}\r\n"
