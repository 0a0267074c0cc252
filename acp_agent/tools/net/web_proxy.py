"""A local proxy through which a browser reaches what the guarded client may reach, and nothing else.

The browser resolves no names: it asks this proxy, which checks the URL or authority, resolves once, checks every record
and connects to exactly that address. It supports CONNECT (https, wss) and plain requests to hosts allowed without
TLS. Hosts that no page has requested (browsers like to call home) are refused, too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteReceiveStream, ByteStream, SocketStream

from acp_agent.errors import ToolError
from acp_agent.tools.net.web_client import GuardedClient

log = logging.getLogger(__name__)

MAX_HEAD = 65_536
HEAD_TIMEOUT = 30.0
CONNECT_TIMEOUT = 15.0
WANTED_TIMEOUT = 1.0
CHUNK = 65_536

REQUEST = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]\r\n")
HOP_HEADERS = re.compile(rb"^(?:proxy-[^:]*|connection|keep-alive):.*\r\n", re.IGNORECASE | re.MULTILINE)


class GuardedProxy:
    """`refused` collects refused requests of pages, for the user and the model."""

    def __init__(self, client: GuardedClient, *, upstream: str = "") -> None:
        """`upstream`: an HTTP proxy used for connecting, to checked addresses only."""
        self._client = client
        self._upstream = upstream
        self.refused: list[str] = []
        self._wanted: set[str] = set()
        self._news = anyio.Event()

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[int, None]:
        """Serves on 127.0.0.1; returns the port."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port: int = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._handle)
            try:
                yield port
            finally:
                tasks.cancel_scope.cancel()

    async def _handle(self, browser: SocketStream) -> None:
        async with browser:
            try:
                await self._answer(browser)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError) as error:
                log.debug("a connection of the browser ended: %s", error)

    async def _answer(self, browser: SocketStream) -> None:
        with anyio.move_on_after(HEAD_TIMEOUT) as scope:
            head, rest = await _head(browser)
        if scope.cancelled_caught or (request := REQUEST.match(head)) is None:
            await browser.send(_reply(400, "not a request"))
            return
        method, target = request[1].decode(), request[2].decode("latin-1")
        url = f"https://{target}/" if method == "CONNECT" else target
        if not await self._is_wanted(_host(url)):
            log.debug("the browser itself asked for %s", url)
            await browser.send(_reply(403, "no page asked for it"))
            return
        try:
            server = await self._connect(url)
        except ToolError as error:
            self._refuse(url, error)
            await browser.send(_reply(403, str(error)))
            return
        async with server:
            if method == "CONNECT":
                await browser.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                if rest:
                    await server.send(rest)
            else:
                await server.send(_origin_form(request[1], url, head[request.end() :]) + rest)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pipe, browser, server)
                await _pipe(server, browser)
                tasks.cancel_scope.cancel()

    def want(self, host: str) -> None:
        """Records that a page requests something from `host`."""
        self._wanted.add(host.lower())
        news, self._news = self._news, anyio.Event()
        news.set()

    async def _is_wanted(self, host: str) -> bool:
        """Waits a moment: after a redirect the browser may connect before we hear of the page's request."""
        with anyio.move_on_after(WANTED_TIMEOUT):
            while host not in self._wanted:
                await self._news.wait()
        return host in self._wanted

    async def _connect(self, url: str) -> ByteStream:
        """Raises ToolError for what must not or cannot be reached."""
        try:
            with anyio.fail_after(CONNECT_TIMEOUT):
                target, addresses = await self._client.locate(url)
                return await self._open(addresses, target.port)
        except TimeoutError as error:
            raise ToolError(f"{url} did not answer within {CONNECT_TIMEOUT:g} s.", "timeout") from error

    async def _open(self, addresses: tuple[str, ...], port: int) -> ByteStream:
        trouble: OSError | None = None
        for address in addresses:
            try:
                if self._upstream:
                    return await self._through_upstream(address, port)
                return await anyio.connect_tcp(address, port)
            except OSError as error:
                trouble = error
        raise ToolError(f"No connection to {addresses[0]}:{port}: {trouble}", "network_error") from trouble

    async def _through_upstream(self, address: str, port: int) -> ByteStream:
        proxy = urlsplit(self._upstream)
        if proxy.scheme != "http" or not proxy.hostname:
            raise ToolError("The browser supports only plain HTTP proxies (`tools.web.proxy`).", "policy_blocked")
        stream = await anyio.connect_tcp(proxy.hostname, proxy.port or 80)
        shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        connected = False
        try:
            await stream.send(f"CONNECT {shown} HTTP/1.1\r\nHost: {shown}\r\n\r\n".encode())
            head, _ = await _head(stream)
            connected = re.match(rb"HTTP/1\.[01] 2\d\d", head) is not None
            if not connected:
                raise OSError(f"the proxy answered {head[:60]!r}")
            return stream
        except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise OSError("the proxy hung up") from error
        finally:
            if not connected:
                await anyio.aclose_forcefully(stream)

    def _refuse(self, url: str, error: ToolError) -> None:
        log.info("the browser was refused %s: %s", url, error)
        self.refused.append(f"{url}: {error}")


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


async def _head(stream: ByteReceiveStream) -> tuple[bytes, bytes]:
    """Returns the bytes up to and including the empty line, and those after it."""
    data = b""
    while b"\r\n\r\n" not in data:
        if len(data) > MAX_HEAD:
            return b"", b""
        data += await stream.receive(CHUNK)
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def _origin_form(method: bytes, url: str, headers: bytes) -> bytes:
    """The request in the form for the origin server; its connection ends with the answer."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = HOP_HEADERS.sub(b"", headers)
    return method + b" " + path.encode("latin-1") + b" HTTP/1.1\r\nConnection: close\r\n" + kept


def _reply(status: int, words: str) -> bytes:
    body = words.encode("utf-8", "replace")
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


async def _pipe(source: ByteStream, sink: ByteStream) -> None:
    try:
        while True:
            await sink.send(await source.receive(CHUNK))
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return
