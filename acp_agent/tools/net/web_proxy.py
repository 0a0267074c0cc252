"""A local proxy through which a browser reaches what the guarded client may reach, and nothing else.

The browser resolves no names: it asks this proxy, which checks the URL or authority, resolves once, checks every record
and connects to exactly that address. Hosts that no page has requested (browsers like to call home) are refused, too.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketListener

from acp_agent.errors import ToolError
from acp_agent.limits.shares import CONNECTIONS, Share
from acp_agent.proxying import MOST_CONNECTIONS, Traffic, Wanted, answer, connect, serve
from acp_agent.tools.net.web_client import GuardedClient

log = logging.getLogger(__name__)

WANTED_TIMEOUT = 1.0


class GuardedProxy:
    """`refused` collects refused requests of pages, for the user and the model."""

    def __init__(
        self, client: GuardedClient, *, upstream: str = "", refuses: Callable[[str], Awaitable[str]] | None = None
    ) -> None:
        """`upstream`: an HTTP proxy used for connecting, to checked addresses only. `refuses`: as in `WebAccess`."""
        self._refuses = refuses
        self._client = client
        self._upstream = upstream
        self.refused: list[str] = []
        self._wanted: set[str] = set()
        self._news = anyio.Event()

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[int, None]:
        """Serves on 127.0.0.1; returns the port."""
        listener = await SocketListener.from_socket(socket.create_server(("127.0.0.1", 0)))
        port: int = listener.extra(anyio.abc.SocketAttribute.local_port)
        share = Share("the browser", "connections", "", MOST_CONNECTIONS, CONNECTIONS)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(serve, listener, self._handle, share)
            try:
                yield port
            finally:
                tasks.cancel_scope.cancel()

    async def _handle(self, browser: ByteStream) -> None:
        await answer(browser, self._open)

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

    async def _open(self, wanted: Wanted) -> tuple[ByteStream, Traffic]:
        """Raises ToolError for what must not or cannot be reached."""
        host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
        url = wanted.url or f"https://{host}:{wanted.port}/"
        if not await self._is_wanted(wanted.host.lower()):
            log.debug("the browser itself asked for %s", url)
            raise ToolError("No page asked for it.", "policy_blocked")
        try:
            target, addresses = await self._client.locate(url)
            if self._refuses is not None and (why := await self._refuses(target.host)):
                raise ToolError(why, "policy_blocked")
            return await connect(addresses, target.port, self._upstream), Traffic()
        except ToolError as error:
            log.info("the browser was refused %s: %s", url, error)
            self.refused.append(f"{url}: {error}")
            raise
