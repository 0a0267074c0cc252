"""Which tools are available."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from acp_agent.loop.toolbox.absent import Absent
from acp_agent.loop.toolbox.extensions import Extensions
from acp_agent.loop.toolbox.mcp_tools import SessionServers
from acp_agent.loop.toolbox.offer import Offer
from acp_agent.loop.toolbox.relevance import Relevance
from acp_agent.tools.kit.registry import SessionRegistry

if TYPE_CHECKING:
    from acp_agent.loop.toolbox.session_plugins import SessionPlugins


class Toolbox:
    """Of one session, or (`only`) of a sub-agent in it."""

    def __init__(
        self,
        registry: SessionRegistry,
        offer: Offer,
        extensions: Extensions,
        servers: SessionServers,
        relevance: Relevance,
        plugins: SessionPlugins | None = None,
    ) -> None:
        self.registry = registry
        self.offer = offer
        self.extensions = extensions
        self.servers = servers
        self.relevance = relevance
        self.plugins = plugins

    def only(self, tools: frozenset[str], absent: Absent | None, more: Mapping[str, Mapping[str, Any]]) -> Toolbox:
        """The toolbox of a sub-agent: these tools, as far as they are available. `absent`, `more`: as of `Offer`."""
        offer = self.offer.only(tools, absent, more)
        return Toolbox(self.registry, offer, self.extensions, self.servers, self.relevance, self.plugins)
