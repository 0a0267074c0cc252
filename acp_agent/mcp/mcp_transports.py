"""How messages reach a server: our own stdio transport; for HTTP and SSE the package's, with our own HTTP client.

The package's stdio transport is not used: closing it can take six seconds, and it does not say why a server died.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import mcp_types as types
import msgspec
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from acp_agent import __version__
from acp_agent.limits.decoding import read_loose_json
from acp_agent.mcp.base import McpError
from acp_agent.mcp.content import one_line
from acp_agent.mcp.link import Link
from acp_agent.mcp.mcp_errors import TRACE, Trace, by_status, failure, retry_seconds
from acp_agent.mcp.oauth import missing_scope, session_auth
from acp_agent.mcp.stdio_server import StdioServer
from acp_agent.mcp.surrogates import Repairer, repaired

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams

HTTP_TIMEOUT = httpx2.Timeout(30.0, read=None)
"""Timeouts of calls are not the transport's business."""
UNREAD = 1_000
"""Messages that may wait for a server that does not read."""
FLUSH = 0.1
"""Seconds to deliver accepted messages to a server that is about to be stopped."""


def transport(link: Link) -> AbstractAsyncContextManager[TransportStreams]:
    if link.spec.transport == "stdio":
        return _stdio(link)
    if link.spec.transport == "sse":
        return _sse(link)
    return _http(link)


@asynccontextmanager
async def _sse(link: Link) -> AsyncGenerator[TransportStreams]:
    auth = await session_auth(link.spec, link.answers.secrets)
    async with sse_client(link.spec.url, httpx_client_factory=lambda *_, **__: _HttpClient(link, auth)) as streams:
        yield streams


@asynccontextmanager
async def _http(link: Link) -> AsyncGenerator[TransportStreams]:
    limit = link.longest_message
    async with (
        _HttpClient(link, await session_auth(link.spec, link.answers.secrets)) as client,
        streamable_http_client(link.spec.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


@asynccontextmanager
async def _stdio(link: Link) -> AsyncGenerator[TransportStreams]:
    cwd = Path(link.spec.cwd) if link.spec.cwd else link.folders[0]
    process = StdioServer.of(link.spec, link.environ, cwd, link.user, link.entered)
    link.process = process
    process.said_line = link.log
    incoming_send, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    # Not bounded here: a server that does not read must not delay a cancel. It is heard no further then (`UNREAD`).
    outgoing, outgoing_receive = anyio.create_memory_object_stream[SessionMessage](math.inf)
    writer_scope = anyio.CancelScope()
    written = anyio.Event()

    async def read() -> None:
        async with incoming_send:
            async for line in process.lines(link.longest_message):
                message = _message(line)
                if message is None:
                    process.heard_junk(line)
                    continue
                if outgoing.statistics().current_buffer_used > UNREAD:
                    link.lose(McpError("policy_blocked", f"it does not read its input ({UNREAD} messages wait)"))
                    return
                try:
                    await incoming_send.send(SessionMessage(message))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
            await process.left()

    async def write() -> None:
        try:
            with writer_scope:
                async with outgoing_receive:
                    async for item in outgoing_receive:
                        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                        await process.send(text.encode("utf-8") + b"\n")
        except OSError:  # The server no longer listens: that is the end.
            await process.left()
            await incoming_send.aclose()
        finally:
            written.set()

    try:
        async with anyio.create_task_group() as tasks:
            for work in (process.watch_stderr, read, write):
                tasks.start_soon(work)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    outgoing.close()
                    with anyio.move_on_after(FLUSH):
                        await written.wait()
                    writer_scope.cancel()
                    await written.wait()
                    await process.end()
                tasks.cancel_scope.cancel()
    finally:
        process.close()
        for stream in (incoming_send, incoming, outgoing, outgoing_receive):
            stream.close()


def _message(line: bytes) -> types.JSONRPCMessage | None:
    """Decodes the line, replacing half surrogates. An invalid answer becomes an error of its request, which would
    otherwise wait for ever. `None`: not a message."""
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    text = repaired(line).decode("utf-8", "replace")
    try:
        return types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError as error:
        try:
            data = read_loose_json(text)
        except ValueError:
            return None
        id_ = data.get("id") if isinstance(data, dict) and "method" not in data else None
        if isinstance(id_, bool) or not isinstance(id_, str | int):
            return None
        words = f"its response is not valid MCP: {one_line(str(error), 300)}"
        return types.JSONRPCError(jsonrpc="2.0", id=id_, error=types.ErrorData(code=types.PARSE_ERROR, message=words))


class _HttpClient(httpx2.AsyncClient):
    """Records HTTP statuses of our requests, and ends the connection where the package would wait for ever."""

    def __init__(self, link: Link, auth: httpx2.Auth | None) -> None:
        headers = {"accept-encoding": "identity", "user-agent": f"acp-coder/{__version__}", **link.spec.headers}
        super().__init__(headers=headers, timeout=HTTP_TIMEOUT, auth=auth)
        self._link = link

    async def send(self, request: httpx2.Request, **kwargs: Any) -> httpx2.Response:
        trace = TRACE.get()
        try:
            response = await super().send(request, **kwargs)
        except httpx2.TransportError as error:
            if request.method == "POST" and self._link.spec.transport == "sse":
                self._link.lose(failure(error, self._link, Trace()))
            raise
        if request.method == "POST" and trace is not None and response.status_code >= 400:
            trace.status = response.status_code
            trace.server = self._link.spec.name
            trace.retry_after = retry_seconds(response.headers.get("retry-after", ""))
            trace.scope = missing_scope(response)
            if self._link.spec.transport == "sse":  # The package's writer ends at the first error.
                self._link.lose(by_status(trace))
            elif trace.status == 404 and "mcp-session-id" in request.headers:
                self._link.lose(McpError("transient", "it no longer knows the session"))
        content_type = response.headers.get("content-type", "").lower()
        if content_type.startswith("application/json"):
            response.stream = _Mended(_Capped(response.stream, self._link.longest_message))
        elif content_type.startswith("text/event-stream"):
            response.stream = _Mended(response.stream)
        return response


class _Capped(httpx2.AsyncByteStream):
    """A body of at most `limit` bytes."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                raise httpx2.StreamError(f"the response has more than {self._limit} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Mended(httpx2.AsyncByteStream):
    """A JSON body with half surrogates replaced: the package would reject it, or wait for ever."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        repairer = Repairer()
        async for chunk in self._stream:
            yield repairer.feed(chunk)
        yield repairer.end()

    async def aclose(self) -> None:
        await self._stream.aclose()


class Watched(msgspec.Struct, eq=False):
    """A stream that reports its end."""

    inner: ReadStream[SessionMessage | Exception]
    ended: Callable[[], None]
    last_context: Any = None
    """Used by the package to carry contexts."""

    async def receive(self) -> SessionMessage | Exception:
        try:
            item = await self.inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self.ended()
            raise
        self.last_context = getattr(self.inner, "last_context", None)
        return item

    async def aclose(self) -> None:
        await self.inner.aclose()

    def __aiter__(self) -> Watched:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Watched:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
