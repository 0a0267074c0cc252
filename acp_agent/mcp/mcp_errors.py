"""Converts the package's errors to `McpError`, with our own messages and codes."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from http import HTTPStatus

import httpx2
import mcp_types as types
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from acp_agent.mcp.base import McpError, McpErrorCode, ServerSpec
from acp_agent.mcp.content import one_line
from acp_agent.mcp.link import Link

log = logging.getLogger(__name__)

CODES: dict[int, McpErrorCode] = {
    types.INVALID_PARAMS: "invalid_input",
    types.INVALID_REQUEST: "invalid_input",
    types.METHOD_NOT_FOUND: "not_found",
    -32002: "not_found",  # Resource not found.
    types.REQUEST_TIMEOUT: "transient",
    types.MISSING_REQUIRED_CLIENT_CAPABILITY: "policy_blocked",
    types.URL_ELICITATION_REQUIRED: "auth_failure",
}
"""By the code of a JSON-RPC error; all others are `server_error`."""

STATUSES: dict[int, McpErrorCode] = {
    400: "invalid_input",
    401: "auth_failure",
    403: "auth_failure",
    404: "not_found",
    405: "not_found",
    408: "transient",
    410: "not_found",
    413: "invalid_input",
    422: "invalid_input",
    425: "transient",
    429: "rate_limited",
    451: "policy_blocked",
    502: "transient",
    503: "transient",
    504: "transient",
}


class Trace(Struct):
    """The HTTP status of a request, which the package does not expose."""

    status: int | None = None
    retry_after: float | None = None
    server: str = ""
    """The server's name."""
    scope: str | None = None
    """What a login has to allow besides, if the server refused what the one there is does not."""


TRACE: ContextVar[Trace | None] = ContextVar("mcp_trace", default=None)
"""The running request's trace: the package carries the sender's context to its transport."""


def first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The most informative failure: the package's task groups wrap each other."""
    leaves: list[BaseException] = []

    def walk(error: BaseException) -> None:
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                walk(inner)
        else:
            leaves.append(error)

    walk(group)
    for kind in (McpError, httpx2.HTTPError, OSError, MCPError):
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    return leaves[0]


def failure(error: BaseException, link: Link, trace: Trace) -> McpError:
    """Describes the failure. A known reason for the server's end says more than the request that ran into it."""
    if isinstance(error, McpError):
        return error
    closed = isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED
    if link.lost is not None and (closed or trace.status is not None):
        return link.lost
    if trace.status is not None:
        return by_status(trace, error)
    host = _address(link.spec)
    match error:
        case httpx2.HTTPStatusError():
            answer = error.response
            after = retry_seconds(answer.headers.get("retry-after", ""))
            return by_status(Trace(answer.status_code, after, link.spec.name))
        case httpx2.ConnectError():
            return McpError("transient", f"{host} refused the connection or cannot be reached ({error})")
        case httpx2.TimeoutException():
            return McpError("transient", f"{host} did not answer in time")
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            return McpError("invalid_input", f"its address is not a usable URL ({error})")
        case httpx2.HTTPError():
            return McpError("transient", f"the connection to {host} was lost ({error or type(error).__name__})")
        case MCPError():
            words = one_line(error.message, 2000) or f"error {error.code}"
            if closed and ("closed" in words.lower() or "SSE stream" in words):  # The code is also used by servers.
                return McpError("transient", words)
            return McpError(CODES.get(error.code, "server_error"), words)
        case ValueError():
            return McpError("server_error", f"its response is not valid MCP: {one_line(str(error), 300)}")
    log.error("an MCP connection failed unexpectedly", exc_info=error)
    return McpError("transient", f"the connection was lost ({type(error).__name__}: {one_line(str(error), 300)})")


def by_status(trace: Trace, error: BaseException | None = None) -> McpError:
    status = trace.status or 0
    code = STATUSES.get(status, "server_error" if status >= 500 else "invalid_input")
    words = f"it answered HTTP {status}"
    if status == HTTPStatus.UNAUTHORIZED and trace.server:
        name = one_line(trace.server, 60)
        words += f": it wants a login (`acp-coder mcp login {name}` or `/mcp login {name}`) or other headers"
    elif trace.scope is not None and trace.server:
        name = one_line(trace.server, 60)
        words += f": it wants a login that allows more ({one_line(trace.scope, 200)}): `/mcp login {name}`"
    elif code == "auth_failure":
        words += ": it rejects the credentials (see its headers in the configuration)"
    elif isinstance(error, MCPError) and "error response" not in error.message:
        words += f": {one_line(error.message, 2000)}"
    return McpError(code, words, retry_after=trace.retry_after)


def retry_seconds(value: str) -> float | None:
    """`Retry-After` in seconds; dates are not supported."""
    return float(value) if value.isascii() and value.isdigit() else None


def _address(spec: ServerSpec) -> str:
    """The server's address without possible secrets."""
    try:
        url = httpx2.URL(spec.url)
    except httpx2.InvalidURL:
        return "the server"
    return f"{url.scheme}://{url.host}" + (f":{url.port}" if url.port else "")
