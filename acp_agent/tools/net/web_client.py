"""`GuardedClient`: the only way from a tool to the web.

For each hop the URL is checked, resolved once, every address is checked, and the connection goes to exactly such an
address; the name is kept for the certificate and the Host header. A connection serves one hop, so that nothing checked
for one name is used for another. Redirects are followed here, each as a new hop. No cookies, no proxy from the
environment; a configured proxy gets the checked address, not the name. `safety/deciding/network.py` decides what may
be requested, `web_body` which part of the answer is text.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urljoin

import anyio
import anyio.to_thread
import httpcore2
import httpx2
from msgspec import Struct
from msgspec.structs import replace

from acp_agent import __version__
from acp_agent.config.model import WebConfig
from acp_agent.errors import ToolError
from acp_agent.proxying import Resolver, resolve_by_system
from acp_agent.safety.deciding.network import NetworkPolicy, Target, check_addresses, check_url
from acp_agent.tools.net.web_body import WebAnswer, decode_text, is_text, plain_type

USER_AGENT = f"Mozilla/5.0 (compatible; acp-coder/{__version__})"

ACCEPT = "text/html,application/xhtml+xml,application/json;q=0.9,text/*;q=0.9,*/*;q=0.1"

MOST_ADDRESSES = 4
"""Addresses of one name, tried in turn until one accepts."""

CONNECT_TIMEOUT = 4.0
"""Seconds for an address while there is another to try."""

CODINGS = frozenset(("", "identity", "gzip", "deflate"))
"""Content codings that are requested and decoded."""

KEPT_ACROSS_ORIGINS = frozenset(("accept", "accept-language", "content-type", "range", "user-agent"))
"""Headers that another origin may see. All others may be credentials."""

READING = frozenset(("GET", "HEAD", "OPTIONS"))


class _Ask(Struct, frozen=True):
    """One request in a chain."""

    method: str
    target: Target
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes | None


class GuardedClient:
    """Makes web requests within the limits of `config`. Keeps no connections, so there is nothing to close.

    `resolve`, `ssl_context` (called at the first request) and `backend` (which opens TCP connections) are for
    tests.
    """

    def __init__(
        self,
        config: WebConfig,
        *,
        resolve: Resolver = resolve_by_system,
        ssl_context: Callable[[], ssl.SSLContext] = httpx2.create_ssl_context,
        backend: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        self.policy = NetworkPolicy.from_config(config)
        self._config = config
        self._resolve = resolve
        self._make_context = ssl_context
        self._context: ssl.SSLContext | None = None
        self._backend = backend

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        any_host: bool = False,
    ) -> WebAnswer:
        """Returns the answer, whatever its status, after redirects: within the site of `url` (`same_site`), which the
        user was asked about; anywhere with `any_host`.

        Takes at most `timeout` seconds from the first lookup to the last byte. Raises ToolError: `policy_blocked` or
        `invalid_parameters` for a URL that must not be requested (at any hop), `timeout`, `network_error`.
        """
        hops: list[str] = []
        try:
            with anyio.fail_after(self._config.timeout):
                given = {name.lower(): value for name, value in (headers or {}).items()}
                return await self._follow(method.upper(), url, given, body, hops, any_host)
        except TimeoutError as error:
            raise ToolError(
                f"{_path(hops) or url} did not answer in full within {self._config.timeout:g} s.", "timeout"
            ) from error

    async def locate(self, url: str) -> tuple[Target, tuple[str, ...]]:
        """Returns what may be connected to for `url`: the target and its checked addresses. Raises ToolError."""
        target = check_url(url, self.policy)
        return target, await self._addresses(target)

    async def _follow(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, hops: list[str], any_host: bool
    ) -> WebAnswer:
        ask = _Ask(method, check_url(url, self.policy), headers, body)
        home = None if any_host else ask.target
        while True:
            hops.append(ask.target.url)
            addresses = await self._addresses(ask.target)
            answer, location = await self._hop(ask, addresses, tuple(hops))
            if location is None:
                return answer
            if len(hops) > self._config.max_redirects:
                raise ToolError(
                    f"{_path(hops)} leads to {location[:300]}: more than {self._config.max_redirects} redirects."
                )
            ask = self._next(ask, answer.status, location, hops, home)

    def _next(self, ask: _Ask, status: int, location: str, hops: Sequence[str], home: Target | None) -> _Ask:
        """The request for a redirect (RFC 9110, 15.4; 301 and 302 as browsers treat them). `home`: the site it must not
        leave."""
        try:
            target = check_url(urljoin(ask.target.url, location), self.policy)
        except ToolError as error:
            raise ToolError(f"{_path(hops)} redirects to a URL that is refused. {error}", error.category) from error
        except ValueError as error:
            raise ToolError(f"{_path(hops)} redirects to {location[:300]}, which is not a URL.") from error
        if target.url in hops and ask.method == "GET":
            raise ToolError(f"{_path([*hops, target.url])} redirects in a circle.")
        following = replace(ask, target=target)
        if (status == 303 and ask.method != "HEAD") or (status in (301, 302) and ask.method == "POST"):
            kept = {name: value for name, value in ask.headers.items() if not name.startswith("content-")}
            following = replace(following, method="GET", body=None, headers=kept)
        if target.origin != ask.target.origin:
            if following.method not in READING or following.body is not None:
                raise ToolError(
                    f"{_path(hops)} redirects the {ask.method} to {target.url}. It was not sent there; request that "
                    "URL itself if you mean it.",
                    "policy_blocked",
                )
            if home is not None and not same_site(home, target):
                raise ToolError(
                    f"{_path(hops)} redirects to {target.url} on another host; call it with that URL so that the "
                    "user is asked.",
                    "policy_blocked",
                )
            kept = {name: value for name, value in following.headers.items() if name in KEPT_ACROSS_ORIGINS}
            following = replace(following, headers=kept)
        return following

    async def _addresses(self, target: Target) -> tuple[str, ...]:
        """Resolves a name, once per hop, and checks every record."""
        if target.address is not None:
            return check_addresses(target.host, [target.host], self.policy)
        try:
            found = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError) as error:
            raise ToolError(
                f"{target.host} could not be resolved ({error}). Check the name.", "network_error"
            ) from error
        return check_addresses(target.host, found, self.policy)

    async def _hop(self, ask: _Ask, addresses: Sequence[str], hops: tuple[str, ...]) -> tuple[WebAnswer, str | None]:
        """Returns the answer of one hop, and the redirect's request, if any."""
        async with self._answer(ask, addresses) as response:
            location = response.headers.get("location")
            redirected = response.status_code in (301, 302, 303, 307, 308) and bool(location)
            content_type = response.headers.get("content-type", "")
            text: str | None = None
            truncated = False
            if redirected:
                text = ""
            elif is_text(content_type):
                data, truncated = await self._body(response, ask.target.url)
                text = decode_text(data, content_type)
            headers = tuple((name.lower(), value) for name, value in response.headers.multi_items())
            answer = WebAnswer(
                url=ask.target.url,
                status=response.status_code,
                headers=headers,
                content_type=plain_type(content_type),
                text=text,
                truncated=truncated,
                hops=hops,
            )
            return answer, location.strip() if redirected and location else None

    async def _body(self, response: httpx2.Response, url: str) -> tuple[bytes, bool]:
        """Returns decoded bytes, and whether there were more than the limit."""
        codings = response.headers.get("content-encoding", "").lower().split(",")
        if len(codings) > 1 or codings[0].strip() not in CODINGS:
            raise ToolError(f"{url} answered in an encoding that was not requested ({', '.join(codings)[:100]}).")
        limit = self._config.max_body_bytes
        data = bytearray()
        try:
            async with aclosing(response.aiter_bytes()) as chunks:
                async for chunk in chunks:
                    data += chunk[: limit + 1 - len(data)]
                    if len(data) > limit:
                        return bytes(data[:limit]), True
        except httpx2.DecodingError as error:
            raise ToolError(f"{url} answered with broken compression ({error}).", "server_error") from error
        except httpcore2.NetworkError as error:
            raise ToolError(f"{url} closed the connection in the middle of its response.", "network_error") from error
        except httpcore2.ProtocolError as error:
            raise ToolError(f"{url} sent an incomplete or malformed response ({error}).", "network_error") from error
        return bytes(data), False

    @asynccontextmanager
    async def _answer(self, ask: _Ask, addresses: Sequence[str]) -> AsyncIterator[httpx2.Response]:
        """Connects to one of `addresses` and yields the answer's head, its body still unread."""
        context = await self._tls() if ask.target.scheme == "https" else None
        tried = addresses[:MOST_ADDRESSES]
        for place, address in enumerate(tried):
            last = place == len(tried) - 1
            host = f"[{address}]" if self._config.proxy and ":" in address else address
            pool = self._pool(context)
            try:
                try:
                    response = await pool.handle_async_request(_request(ask, host, None if last else CONNECT_TIMEOUT))
                except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                    if last or isinstance(_under(error), ssl.SSLError):
                        raise _no_connection(ask.target, address, error) from error
                    continue
                except httpcore2.LocalProtocolError as error:
                    raise ToolError(f"The request cannot be sent: {error}.", "invalid_parameters") from error
                except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError) as error:
                    raise ToolError(
                        f"{ask.target.url} sent no valid response ({error or type(error).__name__}).", "network_error"
                    ) from error
                yield httpx2.Response(response.status, headers=response.headers, stream=_Stream(response))
                return
            finally:
                with anyio.CancelScope(shield=True):
                    await pool.aclose()

    async def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            try:
                self._context = await anyio.to_thread.run_sync(self._make_context)
            except OSError as error:
                raise ToolError(f"This machine's certificates could not be read: {error}.") from error
        return self._context

    def _pool(self, context: ssl.SSLContext | None) -> httpcore2.AsyncConnectionPool:
        backend = self._backend or httpcore2.AnyIOBackend()
        if not self._config.proxy:
            return httpcore2.AsyncConnectionPool(ssl_context=context, max_connections=1, network_backend=backend)
        try:
            proxy = httpx2.Proxy(self._config.proxy)
        except (ValueError, httpx2.InvalidURL) as error:
            raise ToolError(
                f"`tools.web.proxy` is not the URL of a proxy ({error}). Only the user can fix it."
            ) from error
        if proxy.url.scheme not in ("http", "https"):
            raise ToolError("`tools.web.proxy` must be an http or https URL. Only the user can fix it.")
        return httpcore2.AsyncHTTPProxy(
            httpcore2.URL(
                scheme=proxy.url.raw_scheme, host=proxy.url.raw_host, port=proxy.url.port, target=proxy.url.raw_path
            ),
            proxy_auth=proxy.raw_auth,
            ssl_context=context,
            max_connections=1,
            network_backend=backend,
        )


class _Stream(httpx2.AsyncByteStream):
    """The body of an answer, closed together with its connection."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.aiter_stream():
            yield chunk

    async def aclose(self) -> None:
        await self._response.aclose()


def same_site(one: Target, other: Target) -> bool:
    """Whether a permission for one host covers the other: equal except for a leading `www.`, or one below the other."""
    if one.address is not None or other.address is not None:
        return one.host == other.host
    first, second = _without_www(one.host), _without_www(other.host)
    upper, lower = sorted((first, second), key=len)
    return upper == lower or ("." in upper and lower.endswith(f".{upper}"))


def _without_www(host: str) -> str:
    bare = host.removeprefix("www.")
    return bare if "." in bare else host


def _request(ask: _Ask, host: str, connect_timeout: float | None) -> httpcore2.Request:
    """Connects to `host`, an address; the name stays for the certificate and the Host header."""
    headers = {"user-agent": USER_AGENT, "accept": ACCEPT, **ask.headers}
    headers |= {"host": ask.target.authority, "accept-encoding": "gzip, deflate", "connection": "close"}
    if ask.body is not None or ask.method not in READING:
        headers["content-length"] = str(len(ask.body or b""))
    timeouts = {"connect": connect_timeout}
    return httpcore2.Request(
        ask.method,
        httpcore2.URL(
            scheme=ask.target.scheme.encode(),
            host=host.encode(),
            port=ask.target.port,
            target=ask.target.path.encode("ascii"),
        ),
        headers=[(name.encode("ascii"), value.encode("utf-8")) for name, value in headers.items()],
        content=ask.body,
        extensions={"sni_hostname": ask.target.host, "timeout": timeouts},
    )


def _no_connection(target: Target, address: str, error: Exception) -> ToolError:
    under = _under(error)
    if isinstance(under, ssl.SSLCertVerificationError):
        return ToolError(
            f"{target.url} was not requested: the certificate of {target.host} is not valid "
            f"({under.verify_message.rstrip('.')}). Only the user can decide about that."
        )
    words = str(error) or type(error).__name__
    return ToolError(f"{target.host} ({address}, port {target.port}) could not be reached: {words}.", "network_error")


def _under(error: Exception) -> BaseException | None:
    """Returns the cause of the transport's own error."""
    return error.__cause__ or error.__context__


def _path(hops: Sequence[str]) -> str:
    return " -> ".join(hops)
