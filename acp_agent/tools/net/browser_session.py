"""A headless Chromium for one session, driven by Playwright. It reaches the network only through the guarded proxy.

Started on first use, closed when idle and with the session; has its own temporary profile, without any of the user's
data.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream

from acp_agent.config.model import BrowserConfig
from acp_agent.errors import ToolError
from acp_agent.lazy import load
from acp_agent.own_programs import search_path
from acp_agent.tools.net.chromium import find_chromium, missing_browser
from acp_agent.tools.net.web_client import GuardedClient
from acp_agent.tools.net.web_proxy import GuardedProxy

log = logging.getLogger(__name__)

T = TypeVar("T")

PLAYWRIGHT = "playwright.async_api:async_playwright"
PLAYWRIGHT_ERROR = "playwright.async_api:Error"
PLAYWRIGHT_TIMEOUT = "playwright.async_api:TimeoutError"

CLOSED = "has been closed"
DOWNLOAD = "Download is starting"
"""Playwright's messages: it has no public names for these errors."""

START_TIMEOUT = 60.0
CLOSE_TIMEOUT = 5.0
"""For closing the page, and for closing the driver."""

LONGEST_PARENT = 40
"""Characters of a profile folder's path: the sockets in it may have paths of 107 in total."""

PROFILE = "acp-coder-browser-"
"""Prefix of a profile folder's name, before the pid of its owner."""

ARGUMENTS = (
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-features=DnsOverHttps,AsyncDns",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""Everything goes through the proxy: no QUIC, no WebRTC, no DNS lookups of its own."""


class _Life:
    """A browser from start to end. Tasks waiting for it are notified of both."""

    def __init__(self) -> None:
        self.page: Any = None
        """`None` before the start and after the end."""
        self.trouble = ToolError("The browser was closed.")
        """Why it ended."""
        self.ready = anyio.Event()
        self.used = anyio.Event()
        self.over = anyio.Event()

    def begin(self, page: Any) -> None:
        if not self.over.is_set():  # It may have been closed while it was starting.
            self.page = page
            self.ready.set()

    def end(self, trouble: ToolError | None = None) -> None:
        """Records the first message only."""
        if self.over.is_set():
            return
        self.page, self.trouble = None, trouble or self.trouble
        for event in (self.over, self.used, self.ready):
            event.set()


class BrowserSession:
    """One page at a time. All raise ToolError."""

    def __init__(
        self,
        client: GuardedClient,
        config: BrowserConfig,
        *,
        proxy: str = "",
        arguments: tuple[str, ...] = (),
        folders: Sequence[Path] = (),
        refuses: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        """`proxy`: an upstream HTTP proxy for ours. `arguments`: more for Chromium. `folders`: the session's, in which
        it is not looked for. `refuses`: as in `WebAccess`."""
        self._folders = tuple(folders)
        self._client = client
        self._config = config
        self._proxy = GuardedProxy(client, upstream=proxy, refuses=refuses)
        self._arguments = arguments
        self._lock = anyio.Lock()
        self._lives = anyio.Event()
        self._starts: MemoryObjectSendStream[_Life] | None = None
        self._life = _Life()
        self._life.end()

    @property
    def host(self) -> str:
        """Host of the open page; empty if there is none."""
        return urlsplit(self.url).hostname or ""

    @property
    def url(self) -> str:
        return str(self._life.page.url) if self._life.page is not None else ""

    async def live(self) -> None:
        """Owns the browser, in a separate task, until cancelled. Survives a failing browser."""
        starts, asked = anyio.create_memory_object_stream[_Life](math.inf)
        self._starts = starts
        self._lives.set()
        try:
            with starts, asked:
                async for life in asked:
                    await self._one_life(life)
        finally:
            self._starts = None
            self._life.end(ToolError("The browser is closed."))

    async def _one_life(self, life: _Life) -> None:
        try:
            async with AsyncExitStack() as stack:
                folder = await anyio.to_thread.run_sync(_new_profile)
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                port = await stack.enter_async_context(self._proxy.serve())
                with anyio.move_on_after(START_TIMEOUT) as start:
                    life.begin(await self._launch(stack, life, folder, port))
                if start.cancelled_caught:
                    raise ToolError(f"The browser did not start within {START_TIMEOUT:g} s.", "timeout")
                stack.callback(life.end)
                await self._until_over(life)
        except (OSError, ExceptionGroup) as error:  # A group: failures beside the proxy's tasks, or in them.
            life.end(_trouble(error))
        finally:
            life.end(ToolError("The browser could not be started."))

    async def _until_over(self, life: _Life) -> None:
        while not life.over.is_set():
            with anyio.move_on_after(self._config.idle_timeout) as idle:
                await life.used.wait()
            if idle.cancelled_caught and not self._lock.locked():
                return
            life.used = anyio.Event()

    async def _launch(self, stack: AsyncExitStack, life: _Life, folder: str, port: int) -> Any:
        program = find_chromium(self._config, self._folders)
        if program is None:
            raise ToolError(missing_browser(self._config, self._folders) or "Chromium was not found.")
        try:
            playwright_error = await anyio.to_thread.run_sync(load, PLAYWRIGHT_ERROR)
            driver = await load(PLAYWRIGHT)().start()
        except (ImportError, OSError) as error:
            raise ToolError(f"Playwright could not be started: {error}") from error
        try:
            stack.push_async_callback(_shielded, driver.stop)
            context = await driver.chromium.launch_persistent_context(
                folder,
                executable_path=program or None,
                headless=True,
                # Chromium refuses to use its own sandbox as root.
                chromium_sandbox=os.geteuid() != 0,
                proxy={"server": f"http://127.0.0.1:{port}", "bypass": "<-loopback>"},
                args=[*ARGUMENTS, *self._arguments],
                accept_downloads=False,
                service_workers="block",
                # Nothing of the user's: neither keys nor their home folder.
                env={
                    "PATH": search_path(os.environ.get("PATH", os.defpath), self._folders),
                    "LANG": "C.UTF-8",
                    "HOME": folder,
                    "TMPDIR": folder,
                },
                ignore_https_errors="--ignore-certificate-errors" in self._arguments,
                timeout=self._config.timeout * 1000,
            )
            stack.push_async_callback(_shielded, context.close)
            context.set_default_timeout(self._config.timeout * 1000)
            await context.route("**/*", self._let_through)
            context.on("request", lambda request: self._want(request.url))  # Redirects are not routed.
            await context.route_web_socket("**/*", self._let_socket_through)
            context.on("close", lambda *_: life.end())
            page = context.pages[0] if context.pages else await context.new_page()
            page.on("close", lambda *_: life.end())
            page.on("crash", lambda *_: life.end())
            page.on("dialog", lambda dialog: dialog.dismiss())
            return page
        except playwright_error as error:
            raise ToolError(f"The browser could not be started: {_first_line(error)}") from error

    async def _let_through(self, route: Any) -> None:
        """Announces a page's request to the proxy before the browser connects."""
        self._want(route.request.url)
        await route.continue_()

    def _let_socket_through(self, socket: Any) -> None:
        self._want(socket.url)
        socket.connect_to_server()

    def _want(self, url: str) -> None:
        try:
            self._proxy.want(urlsplit(url).hostname or "")
        except ValueError:
            log.debug("a page asked for %r", url)

    async def _living(self) -> _Life:
        """Returns a browser with an open page, starting or awaiting it if needed."""
        with anyio.move_on_after(CLOSE_TIMEOUT):  # The owner's task may not run yet.
            await self._lives.wait()
        if self._starts is None:
            raise ToolError("The browser is closed.")
        if self._life.over.is_set():
            self._life = _Life()
            self._starts.send_nowait(self._life)
        life, longest = self._life, START_TIMEOUT + 3 * CLOSE_TIMEOUT  # The previous one may still be closing.
        with anyio.move_on_after(longest) as start:
            await life.ready.wait()
        if start.cancelled_caught:
            raise ToolError(f"The browser did not start within {longest:g} s.", "timeout")
        if life.page is None:
            raise life.trouble
        return life

    async def do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Runs `work` on the page, starting the browser if needed. One at a time."""
        async with self._lock:
            life = await self._living()
            life.used.set()
            refused = len(self._proxy.refused)
            playwright_error = load(PLAYWRIGHT_ERROR)
            try:
                with anyio.fail_after(self._config.timeout):
                    return await work(life.page)
            except TimeoutError as error:
                raise ToolError(f"The browser took longer than {self._config.timeout:g} s.", "timeout") from error
            except playwright_error as error:
                if life.over.is_set() or CLOSED in str(error):
                    life.end()  # If only the driver is gone, nothing else reports it.
                    raise ToolError(
                        "The browser has ended: it crashed, was closed or was killed. The page is gone.",
                        suggestion="Open the page again: that starts a new browser.",
                    ) from error
                if len(self._proxy.refused) > refused:
                    raise ToolError(self._proxy.refused[-1], "policy_blocked") from error
                if DOWNLOAD in str(error):
                    raise ToolError(
                        "This is a file to download, not a page, and the browser does not save files.",
                        suggestion="Use `fetch` to read it, or `bash` (`curl -O`) to save it.",
                    ) from error
                raise ToolError(f"The browser action failed: {_first_line(error)}") from error

    def refused_since(self, count: int) -> list[str]:
        """Returns the refused requests of pages, after the first `count`."""
        return self._proxy.refused[count:]

    @property
    def refusals(self) -> int:
        return len(self._proxy.refused)

    def stop(self) -> None:
        """Closes the browser; the next use starts a new one."""
        self._life.end()


def _trouble(error: OSError | ExceptionGroup[Exception]) -> ToolError:
    """Describes the failure to tasks waiting for the browser."""
    cause: Exception = error
    while isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, ToolError):
        return cause
    log.warning("the browser failed", exc_info=error)
    return ToolError(f"The browser could not be started: {_first_line(cause) or type(cause).__name__}")


def _new_profile() -> str:
    """Creates a profile folder, after removing those whose process is gone (killed, or before its browser was)."""
    parent = tempfile.gettempdir()
    short = parent if len(parent) <= LONGEST_PARENT else "/tmp"
    for name in os.listdir(short):
        owner = name.removeprefix(PROFILE).partition("-")[0]
        if name.startswith(PROFILE) and owner.isdigit() and not _runs(int(owner)):
            shutil.rmtree(os.path.join(short, name), ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{PROFILE}{os.getpid()}-", dir=short)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _shielded(close: Callable[[], Awaitable[object]]) -> None:
    """Closes even when the session is cancelled, and never for long."""
    with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
        try:
            await close()
        except load(PLAYWRIGHT_ERROR) as error:
            log.debug("the browser was gone already: %s", error)


def _first_line(error: BaseException) -> str:
    """Playwright's messages continue with a coloured log of calls."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return text.strip().partition("\n")[0][:500]
