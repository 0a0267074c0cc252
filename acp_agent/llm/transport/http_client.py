"""`HttpClient`: HTTP/1.1 to one model server. The only module of this wing with httpcore2, and without httpx2, whose
import would be a fifth of the way to a first answer.

Redirects are not followed, so a plain URL never leads to an unverified https one. No cookies.
"""

from __future__ import annotations

import os
import sys
import zlib
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpcore2
from msgspec import Struct

from acp_agent import __version__
from acp_agent.lazy import load
from acp_agent.llm.transport.pace import PACE

FAILURES = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)
"""What `HttpClient` raises, beside ValueError for what cannot be a request."""
SILENCE = (httpcore2.ReadTimeout, httpcore2.WriteTimeout)
NO_CONNECTION_IN_TIME = httpcore2.ConnectTimeout
NO_CONNECTION = httpcore2.ConnectError

KEPT_CONNECTIONS = 8
KEPT_FOR = 60.0
"""Connections to the server that wait for the next request, and for how many seconds."""

_SAFE = "/%?&=:@!$'()*+,;[]~"
"""What stays as it is in a path or query, beside letters, digits and `-._`."""


class HttpResponse(Struct, frozen=True):
    """The head of a response, its body still unread."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case; repeated ones joined by a comma."""
    body: httpcore2.Response

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yields the body as it arrives, without gzip or deflate, which some proxies apply unasked."""
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("identity", "", "gzip", "deflate"):
            raise httpcore2.RemoteProtocolError(f"the response is encoded as {coding!r}, which was not asked for")
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32) if coding in ("gzip", "deflate") else None
        async with aclosing(self.body.aiter_stream()) as chunks:
            async for chunk in chunks:
                try:
                    yield unpacker.decompress(chunk) if unpacker else chunk
                except zlib.error as error:
                    raise httpcore2.RemoteProtocolError(
                        f"the compression of the response is broken: {error}"
                    ) from error

    async def read(self, limit: int) -> bytes:
        """Returns the body, at most `limit` bytes of it."""
        body = bytearray()
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= limit:
                    break
        return bytes(body[:limit])

    async def aclose(self) -> None:
        """Closes the connection, or gives it back if the body was read to its end."""
        await self.body.aclose()


class HttpClient:
    """Pooled connections to the server at `base_url`; `proxied` by the proxy that the environment names for it. Raises
    ValueError for a proxy that cannot be used.
    """

    def __init__(self, base_url: str, *, connect_timeout: float, idle_timeout: float, proxied: bool) -> None:
        """`idle_timeout`: seconds without a byte."""
        self._timeouts = {"connect": connect_timeout, "read": idle_timeout, "write": idle_timeout, "pool": None}
        # Loading certificates costs tens of milliseconds, and plain HTTP needs none.
        plain = base_url.lower().startswith("http://")
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=None if plain else httpcore2.default_ssl_context(),
            proxy=_proxy(base_url) if proxied else None,
            max_connections=None,
            max_keepalive_connections=KEPT_CONNECTIONS,
            keepalive_expiry=KEPT_FOR,
            network_backend=_Network(),
        )

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, *, timeout: float = 0
    ) -> HttpResponse:
        """Sends a request and returns the response, which must be closed. `timeout`: instead of the idle timeout.
        Raises one of `FAILURES`, or ValueError.
        """
        place = urlsplit(url)
        host = (place.hostname or "").encode("ascii" if (place.hostname or "").isascii() else "idna")
        authority = host.decode() if b":" not in host else f"[{host.decode()}]"
        sent = {
            "Host": authority if place.port is None else f"{authority}:{place.port}",
            "User-Agent": f"acp-coder/{__version__}",
            "Accept-Encoding": "identity",
            **headers,
        }
        if place.username is not None:
            sent["Authorization"] = _basic(place.username, place.password)
        if body is not None:
            sent["Content-Length"] = str(len(body))
        target = quote(place.path or "/", safe=_SAFE) + ("?" + quote(place.query, safe=_SAFE) if place.query else "")
        timeouts = self._timeouts | ({"read": timeout, "write": timeout} if timeout else {})
        response = await self._pool.handle_async_request(
            httpcore2.Request(
                method,
                httpcore2.URL(scheme=place.scheme.encode(), host=host, port=place.port, target=target.encode()),
                headers=[(name.encode(), value.encode()) for name, value in sent.items()],
                content=body,
                extensions={"timeout": timeouts},
            )
        )
        found: dict[str, str] = {}
        for raw, value in response.headers:
            name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
            found[name] = f"{found[name]}, {text}" if name in found else text
        return HttpResponse(response.status, found, response)

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Network(httpcore2.AnyIOBackend):
    async def connect_tcp(self, *where: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
        return _Paced(await super().connect_tcp(*where, **more))


class _Paced(httpcore2.AsyncNetworkStream):
    """One that is read at the pace of all."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self.write, self.aclose = stream.write, stream.aclose  # type: ignore[method-assign]
        self.get_extra_info = stream.get_extra_info  # type: ignore[method-assign]

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await PACE.wait(id(self))
        return await self._stream.read(max_bytes, timeout)

    async def start_tls(self, *how: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
        return _Paced(await self._stream.start_tls(*how, **more))


def _basic(name: str, password: str | None) -> str:
    return "Basic " + b64encode(f"{unquote(name)}:{unquote(password or '')}".encode()).decode()


def _proxy(base_url: str) -> httpcore2.Proxy | None:
    """The proxy of the environment (`HTTPS_PROXY`, `NO_PROXY`, ...), or of the system settings on macOS."""
    if sys.platform != "darwin" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    server = urlsplit(base_url)
    known = load("urllib.request:getproxies")()
    url = known.get(server.scheme) or known.get("all") or ""
    excepted = [name.strip() for name in known.get("no", "").split(",")]
    if not url or "*" in excepted or load("urllib.request:proxy_bypass")(server.netloc.rpartition("@")[2]):
        return None
    try:
        place = urlsplit(url if "://" in url else f"http://{url}")
        port = place.port
    except ValueError:  # Whose words may have a part of the password.
        words = (
            "the proxy of the environment is not a URL: in its password, `#`, `/` and `@` are `%23`, `%2F` and `%40`"
        )
        raise ValueError(words) from None
    if place.scheme not in ("http", "https", "socks5", "socks5h") or not place.hostname:
        raise ValueError(f"the proxy {place.scheme}://{place.hostname or ''} of the environment is of no known kind")
    if place.scheme.startswith("socks"):
        try:
            load("socksio:SOCKS5Connection")
        except ImportError:
            raise ValueError("a SOCKS proxy needs the Python package socksio: pip install socksio") from None
    default = {"http": 80, "https": 443}.get(place.scheme, 1080)
    return httpcore2.Proxy(
        httpcore2.URL(scheme=place.scheme.encode(), host=place.hostname.encode(), port=port or default, target=b"/"),
        auth=(unquote(place.username), unquote(place.password or "")) if place.username is not None else None,
    )
