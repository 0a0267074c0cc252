"""The web as the tools of one session have it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from acp_agent.tools.net.browser_session import BrowserSession
from acp_agent.tools.net.web_client import GuardedClient


class WebAccess(Struct, frozen=True):
    client: GuardedClient
    browser: BrowserSession
    environ: Mapping[str, str]
    """Where the keys of search services are found."""
