"""A headless Chromium of one session, driven by Playwright. It reaches the network through the guarded proxy only.

Started at the first use, closed after a while without use and with the session; a profile of its own, without anything
of the person's, gone afterwards.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from acp_agent.config.model import BrowserConfig
from acp_agent.errors import ToolError
from acp_agent.lazy import load
from acp_agent.tools.web_client import GuardedClient
from acp_agent.tools.web_proxy import GuardedProxy

__all__ = ["BrowserSession", "find_chromium", "missing_browser"]

log = logging.getLogger(__name__)

T = TypeVar("T")

PLAYWRIGHT = "playwright.async_api:async_playwright"
PLAYWRIGHT_ERROR = "playwright.async_api:Error"

START_TIMEOUT = 60.0

LONGEST_PARENT = 40
"""Characters of a folder for profiles: the sockets in it may have paths of 107 in all."""

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CACHE = "~/.cache/ms-playwright"

ARGUMENTS = (
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-features=DnsOverHttps,AsyncDns",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""Nothing leaves but through the proxy: no QUIC, no WebRTC beside it, no look-ups of its own."""


def find_chromium(config: BrowserConfig) -> str | None:
    """The program to use; empty where Playwright has one of its own; `None` where there is none."""
    if config.executable:
        program = os.path.expanduser(config.executable)
        return program if os.access(program, os.X_OK) else None
    for name in PROGRAMS:
        if (found := shutil.which(name)) is not None:
            return found
    cache = Path(os.path.expanduser(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or CACHE))
    return "" if any(cache.glob("chromium*")) else None


def missing_browser(config: BrowserConfig) -> str | None:
    """Why there is no browser, as a sentence; `None` where there is one. Loads nothing."""
    if find_spec("playwright") is None:
        return "`browser` needs the extra: pip install 'acp-agent[browser]'."
    if find_chromium(config) is None:
        return "`browser` needs a Chromium: install one, or name it by `tools.browser.executable`."
    return None


class BrowserSession:
    """One page at a time. All raise ToolError."""

    def __init__(
        self, client: GuardedClient, config: BrowserConfig, *, proxy: str = "", arguments: tuple[str, ...] = ()
    ) -> None:
        """`proxy`: an HTTP proxy behind ours. `arguments`: more for Chromium."""
        self._client = client
        self._config = config
        self._proxy = GuardedProxy(client, upstream=proxy)
        self._arguments = arguments
        self._lock = anyio.Lock()
        self._page: Any = None
        self._wanted: anyio.Event | None = None
        self._used = anyio.Event()
        self._ready = anyio.Event()
        self._closed = anyio.Event()
        self._trouble: ToolError | None = None

    @property
    def host(self) -> str:
        """Of the page that is open; empty where there is none."""
        return urlsplit(self._page.url).hostname or "" if self._page is not None else ""

    @property
    def url(self) -> str:
        return str(self._page.url) if self._page is not None else ""

    async def live(self) -> None:
        """Owns the browser, in a task of its own, until it is cancelled."""
        self._wanted = anyio.Event()
        while True:
            await self._wanted.wait()
            await self._one_life()

    async def _one_life(self) -> None:
        async with AsyncExitStack() as stack:
            parent = tempfile.gettempdir()
            short = parent if len(parent) <= LONGEST_PARENT else "/tmp"
            folder = tempfile.mkdtemp(prefix="acp-agent-browser-", dir=short)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            port = await stack.enter_async_context(self._proxy.serve())
            self._closed = anyio.Event()
            try:
                self._page = await self._launch(stack, folder, port)
            except ToolError as error:  # Not through the proxy's tasks, which would make a group of it.
                self._trouble, self._wanted = error, anyio.Event()
                self._ready.set()
                return
            stack.callback(self._gone)
            self._ready.set()
            while not self._closed.is_set():
                with anyio.move_on_after(self._config.idle_timeout) as idle:
                    await self._used.wait()
                if idle.cancelled_caught and not self._lock.locked():
                    return
                self._used = anyio.Event()

    def _gone(self) -> None:
        self._page, self._ready, self._wanted = None, anyio.Event(), anyio.Event()

    async def _launch(self, stack: AsyncExitStack, folder: str, port: int) -> Any:
        program = find_chromium(self._config)
        if program is None:
            raise ToolError(missing_browser(self._config) or "There is no Chromium.")
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
                # Chromium refuses its own sandbox to root.
                chromium_sandbox=os.geteuid() != 0,
                proxy={"server": f"http://127.0.0.1:{port}", "bypass": "<-loopback>"},
                args=[*ARGUMENTS, *self._arguments],
                accept_downloads=False,
                service_workers="block",
                # Nothing of the person's: neither keys nor their home.
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "HOME": folder, "TMPDIR": folder},
                ignore_https_errors="--ignore-certificate-errors" in self._arguments,
                timeout=self._config.timeout * 1000,
            )
            stack.push_async_callback(_shielded, context.close)
            context.set_default_timeout(self._config.timeout * 1000)
            await context.route("**/*", self._let_through)
            context.on("request", lambda request: self._want(request.url))  # Redirects are not routed.
            await context.route_web_socket("**/*", self._let_socket_through)
            context.on("close", lambda *_: self._end())
            page = context.pages[0] if context.pages else await context.new_page()
            page.on("dialog", lambda dialog: dialog.dismiss())
            return page
        except playwright_error as error:
            raise ToolError(f"The browser could not be started: {_first_line(error)}") from error

    async def _let_through(self, route: Any) -> None:
        """A page asks for something: the proxy hears of it before the browser connects."""
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

    def _end(self) -> None:
        self._closed.set()
        self._used.set()

    async def do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """`work` on the page; the browser is started where it does not run. One at a time."""
        async with self._lock:
            if self._page is None:
                if self._wanted is None:
                    raise ToolError("The browser is closed.")
                self._trouble, self._ready = None, anyio.Event()
                self._wanted.set()
                with anyio.move_on_after(START_TIMEOUT) as start:
                    await self._ready.wait()
                if start.cancelled_caught:
                    raise ToolError(f"The browser did not start within {START_TIMEOUT:g} s.", "timeout")
                if self._trouble is not None:
                    raise self._trouble
            self._used.set()
            refused = len(self._proxy.refused)
            playwright_error = load(PLAYWRIGHT_ERROR)
            try:
                with anyio.fail_after(self._config.timeout):
                    return await work(self._page)
            except TimeoutError as error:
                raise ToolError(f"The browser took longer than {self._config.timeout:g} s.", "timeout") from error
            except playwright_error as error:
                if len(self._proxy.refused) > refused:
                    raise ToolError(self._proxy.refused[-1], "policy_blocked") from error
                raise ToolError(f"The browser could not do it: {_first_line(error)}") from error

    def refused_since(self, count: int) -> list[str]:
        """What pages asked for and did not get, after the first `count`."""
        return self._proxy.refused[count:]

    @property
    def refusals(self) -> int:
        return len(self._proxy.refused)

    def stop(self) -> None:
        """Closes the browser; the next use starts a new one."""
        self._end()


async def _shielded(close: Callable[[], Awaitable[object]]) -> None:
    """Closing happens also when the session is cancelled, and never for long."""
    with anyio.move_on_after(5, shield=True):
        try:
            await close()
        except load(PLAYWRIGHT_ERROR) as error:
            log.debug("the browser was gone already: %s", error)


def _first_line(error: BaseException) -> str:
    """Playwright's messages go on with a log of calls, in colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return text.strip().partition("\n")[0][:500]
