"""The web access of one session's tools. Client and browser are created on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from acp_agent.config.model import ToolsConfig
from acp_agent.lazy import load

if TYPE_CHECKING:
    from acp_agent.tools.net.browser_session import BrowserSession
    from acp_agent.tools.net.web_client import GuardedClient

CLIENT = "acp_agent.tools.net.web_client:GuardedClient"
BROWSER = "acp_agent.tools.net.browser_session:BrowserSession"


class WebAccess:
    def __init__(
        self,
        config: ToolsConfig,
        environ: Mapping[str, str],
        folders: Sequence[Path] = (),
        refuses: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        """`folders`: the session's. `refuses`: why nothing may connect to a host; empty if it may."""
        self._refuses = refuses
        self._folders = folders
        self._config = config
        self.environ = environ
        """Contains the keys of search services."""
        self._browses = anyio.Event()

    @cached_property
    def client(self) -> GuardedClient:
        client: GuardedClient = load(CLIENT)(self._config.web)
        return client

    @cached_property
    def browser(self) -> BrowserSession:
        browser: BrowserSession = load(BROWSER)(
            self.client,
            self._config.browser,
            proxy=self._config.web.proxy,
            folders=self._folders,
            refuses=self._refuses,
        )
        self._browses.set()
        return browser

    async def live(self) -> None:
        """Owns the browser, once there is one, until cancelled."""
        await self._browses.wait()
        await self.browser.live()
