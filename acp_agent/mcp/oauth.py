"""Logins at MCP servers by OAuth: authorization code with PKCE and dynamic registration, by the `mcp` package.

What a login gives (tokens, the registered client, where they are from) is kept under the server's URL, so that it never
goes to another. In a session it is only used and refreshed: nothing there opens a browser by itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
import anyio.to_thread
import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from acp_agent import __version__
from acp_agent.errors import AgentError, ConfigError
from acp_agent.limits.decoding import read_json
from acp_agent.mcp.base import McpError, Secrets, ServerSpec
from acp_agent.mcp.content import one_line

log = logging.getLogger(__name__)

CALLBACK = "/callback"
LONGEST_REQUEST = 16 * 1024
PAGE = "<!doctype html><meta charset=utf-8><title>acp-coder</title><p>Done. You can close this window."
EARLY = 30.0
"""Seconds before its end at which a token is refreshed."""
MODERN = {
    "io.modelcontextprotocol/protocolVersion": LATEST_MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "acp-coder", "version": __version__},
    "io.modelcontextprotocol/clientCapabilities": {},
}
KNOCKS: tuple[tuple[str, dict[str, Any], dict[str, str]], ...] = (
    (
        "server/discover",
        {"_meta": MODERN},
        {"mcp-protocol-version": LATEST_MODERN_VERSION, "mcp-method": "server/discover"},
    ),
    (
        "initialize",
        {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "acp-coder", "version": __version__},
        },
        {},
    ),
    ("tools/list", {}, {"mcp-protocol-version": LATEST_HANDSHAKE_VERSION}),
)
"""Requests that a server may want a login for: method, parameters, headers. Some let everybody say hello."""


class _Kept(msgspec.Struct):
    """What is kept of a login, each part as the package's JSON."""

    token: dict[str, Any]
    client: dict[str, Any]
    ends: float | None = None
    """When the access token does, in seconds since 1970."""
    resource: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    issuer: str | None = None
    wanted: str | None = None
    """Scopes that the server missed in the token."""


class _Session(OAuthClientProvider):
    """Uses and refreshes what a login gave."""

    def __init__(self, url: str, secrets: Secrets) -> None:
        super().__init__(url, _metadata(f"http://127.0.0.1{CALLBACK}"), _Nowhere())
        self._secrets = secrets
        self._url = url

    async def _initialize(self) -> None:
        text = await anyio.to_thread.run_sync(self._secrets.read, self._url)
        self._initialized = True
        try:
            _unpack(self, read_json(text or b"", type=_Kept))
        except ValueError:
            return  # There is none, or none that we can read.

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        async with self.context.lock:
            if not self._initialized:
                await self._initialize()
            fresh = False
            if not self.context.is_token_valid() and self.context.can_refresh_token():
                fresh = True
                await self._refreshed((yield await self._refresh_token()))
            used = self._add_token(request)
        response = yield request
        if used and (scope := missing_scope(response)) is not None:
            await self._write(wanted=scope)
        if response.status_code != 401 or fresh or not used:
            return
        async with self.context.lock:
            now = self.context.current_tokens
            if now is not None and now.access_token == used and self.context.can_refresh_token():
                await self._refreshed((yield await self._refresh_token()))
            again = self._add_token(request)
        if again and again != used:
            yield request

    def _add_token(self, request: httpx2.Request) -> str:
        """The token that is sent; empty if there is none."""
        if self.context.current_tokens is None:
            return ""
        self._add_auth_header(request)
        return self.context.current_tokens.access_token

    async def _refreshed(self, response: httpx2.Response) -> None:
        if await self._handle_refresh_response(response):
            await self._write()

    async def _write(self, wanted: str | None = None) -> None:
        try:
            await anyio.to_thread.run_sync(self._secrets.write, self._url, _packed(self, wanted))
        except ConfigError as error:
            log.warning("what is new of a login at an MCP server cannot be kept: %s", error)


class _Login(OAuthClientProvider):
    """Logs in. `more`: what an earlier login gave, and lacks."""

    def __init__(self, more: _Kept | None, *about: Any, **named: Any) -> None:
        super().__init__(*about, **named)
        self._more = more

    async def _initialize(self) -> None:
        if self._more is not None:
            client = self.context.client_info
            _unpack(self, self._more)
            self.context.token_expiry_time = None  # It may have ended: what counts is what it allows.
            self.context.client_info = client  # A registered one has its own port to come back to.
        self._initialized = True

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """As the package does if the server refuses the request; where it is known to, it is not asked again."""
        flow = super()._auth_flow(request)
        answer: httpx2.Response | None = None
        try:
            while True:
                asked = await (anext(flow) if answer is None else flow.asend(answer))
                if self._more is not None and answer is None:
                    challenge = f'Bearer error="insufficient_scope", scope="{self._more.wanted}"'
                    answer = httpx2.Response(403, headers={"www-authenticate": challenge}, request=request)
                else:
                    answer = yield asked
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()


def missing_scope(response: httpx2.Response) -> str | None:
    """The scopes that a server wants of a token and does not find."""
    if response.status_code != 403 or extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return None
    return extract_field_from_www_auth(response, "scope") or ""


def _unpack(provider: OAuthClientProvider, kept: _Kept) -> None:
    """Raises ValueError."""
    context = provider.context
    context.current_tokens = OAuthToken.model_validate(kept.token)
    context.client_info = OAuthClientInformationFull.model_validate(kept.client)
    if kept.metadata is not None:
        context.oauth_metadata = OAuthMetadata.model_validate(kept.metadata)
    if kept.resource is not None:
        context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(kept.resource)
    context.auth_server_url = kept.issuer
    context.token_expiry_time = None if kept.ends is None else kept.ends - EARLY


def _metadata(address: str) -> OAuthClientMetadata:
    about = {"client_name": "acp-coder", "redirect_uris": [address], "token_endpoint_auth_method": "none"}
    return OAuthClientMetadata.model_validate(about)


class _Nowhere:
    """The package's storage, for what is kept elsewhere."""

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None: ...

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...


def _packed(provider: OAuthClientProvider, wanted: str | None = None) -> str:
    context = provider.context
    token, client = context.current_tokens, context.client_info
    assert token is not None
    assert client is not None
    kept = _Kept(
        _json(token),
        _json(client),
        None if token.expires_in is None else time.time() + token.expires_in,
        None if context.protected_resource_metadata is None else _json(context.protected_resource_metadata),
        None if context.oauth_metadata is None else _json(context.oauth_metadata),
        context.auth_server_url,
        wanted,
    )
    return msgspec.json.encode(kept).decode()


def _json(model: Any) -> dict[str, Any]:
    made: dict[str, Any] = model.model_dump(mode="json", exclude_none=True)
    return made


async def session_auth(spec: ServerSpec, secrets: Secrets | None) -> httpx2.Auth | None:
    """For the requests of a session; `None` where the user has not logged in, or set the header."""
    if secrets is None or any(name.lower() == "authorization" for name in spec.headers):
        return None
    try:
        kept = await anyio.to_thread.run_sync(secrets.read, spec.url)
    except ConfigError as error:
        raise McpError("policy_blocked", str(error)) from error
    return _Session(spec.url, secrets) if kept else None


async def login(spec: ServerSpec, secrets: Secrets, show: Callable[[str], Awaitable[None]], timeout: float) -> None:
    """Logs in: `show` gets the URL that the user has to open. Raises McpError."""
    if spec.transport == "stdio":
        raise McpError("invalid_input", f"{spec.name} is a program; only servers with a URL have a login")
    failed: McpError | None = McpError("transient", f"nobody logged in within {timeout:g} seconds")
    with anyio.move_on_after(timeout):
        async with _listening(spec.client.port) as (address, answer):
            try:
                await _login(spec, secrets, show, address, answer)
                failed = None
            except McpError as error:
                failed = error
            except OAuthFlowError as error:
                failed = McpError("auth_failure", f"the login failed: {one_line(str(error), 300)}")
            except (httpx2.HTTPError, httpx2.InvalidURL, AgentError, ValueError, OSError) as error:
                failed = McpError("transient", f"the login failed: {one_line(str(error), 300)}")
    if failed is not None:
        raise failed


async def _login(
    spec: ServerSpec,
    secrets: Secrets,
    show: Callable[[str], Awaitable[None]],
    address: str,
    answer: Callable[[], Awaitable[AuthorizationCodeResult]],
) -> None:
    async def redirect(url: str) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not url.isprintable():
            raise OAuthFlowError(f"its login is no URL of http or https: {url!r}")
        await show(url)

    provider = _Login(
        await anyio.to_thread.run_sync(_lacking, spec, secrets),
        *(spec.url, _metadata(address), _Nowhere(), redirect, answer),
        client_metadata_url=spec.client.id if spec.client.id.startswith("https://") else None,
    )
    if spec.client.id and provider.context.client_metadata_url is None:
        provider.context.client_info = _registered(spec, address)
    headers = {"accept": "application/json, text/event-stream", **spec.headers}
    async with httpx2.AsyncClient(auth=provider, headers=headers, timeout=30.0) as client:
        if spec.transport == "sse":
            status = await _knock(client, "GET", spec.url)
        else:
            session: dict[str, str] = {}
            for number, (method, params, more) in enumerate(KNOCKS):
                body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                status = await _knock(client, "POST", spec.url, session, json=body, headers={**more, **session})
                if provider.context.current_tokens is not None:
                    break
        if provider.context.current_tokens is None:
            words = "it wants no login" if status < 400 else f"it answered HTTP {status}"
            raise McpError("invalid_input", words)
        if status in (401, 403):
            raise McpError("auth_failure", f"it answered HTTP {status} after the login")
    await anyio.to_thread.run_sync(secrets.write, spec.url, _packed(provider))


async def _knock(
    client: httpx2.AsyncClient, method: str, url: str, session: dict[str, str] | None = None, **more: Any
) -> int:
    """The status of the answer; `session` gets the header that names a session, if the server opens one."""
    async with client.stream(method, url, **more) as response:
        if session is not None and (id_ := response.headers.get("mcp-session-id")):
            session["mcp-session-id"] = id_
        return response.status_code


def _lacking(spec: ServerSpec, secrets: Secrets) -> _Kept | None:
    """An earlier login that the server found too little in."""
    try:
        kept = read_json(secrets.read(spec.url) or b"", type=_Kept)
    except ValueError:
        return None
    return kept if kept.wanted else None


def _registered(spec: ServerSpec, address: str) -> OAuthClientInformationFull:
    about: dict[str, Any] = {"client_id": spec.client.id, "redirect_uris": [address]}
    if spec.client.secret:
        about |= {"client_secret": spec.client.secret, "token_endpoint_auth_method": "client_secret_basic"}
    else:
        about["token_endpoint_auth_method"] = "none"
    return OAuthClientInformationFull.model_validate(about)


@asynccontextmanager
async def _listening(port: int) -> AsyncGenerator[tuple[str, Callable[[], Awaitable[AuthorizationCodeResult]]]]:
    """Yields the address on this machine where the browser comes back to, and what waits for that."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    got: list[dict[str, str]] = []
    came = anyio.Event()

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(10):
                head = b""
                try:
                    while b"\r\n\r\n" not in head and len(head) < LONGEST_REQUEST:
                        head += await stream.receive()
                    words = head.split(b"\r\n", 1)[0].decode("ascii", "replace").split()
                    url = urlsplit(words[1]) if len(words) == 3 and words[0] == "GET" else urlsplit("")
                    found = {name: values[0] for name, values in parse_qs(url.query).items()}
                    fits = url.path == CALLBACK and bool({"code", "error"} & found.keys())
                    body = PAGE if fits else "Not found."
                    await stream.send(
                        f"HTTP/1.1 {'200 OK' if fits else '404 Not Found'}\r\nContent-Type: text/html\r\n"
                        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
                    )
                except (anyio.EndOfStream, anyio.BrokenResourceError, ValueError):
                    return
                if fits:
                    got.append(found)
                    came.set()

    async def answer() -> AuthorizationCodeResult:
        await came.wait()
        found = got[0]
        if "error" in found:
            raise OAuthFlowError(found.get("error_description") or found["error"])
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        try:
            yield f"http://127.0.0.1:{port}{CALLBACK}", answer
        finally:
            tasks.cancel_scope.cancel()


__all__ = ["login", "session_auth"]
