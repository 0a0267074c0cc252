"""What a session begins with. Light: it is there before asyncio is."""

from __future__ import annotations

from msgspec import Struct

from acp_agent.config.load import Config
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema import acp
from acp_agent.store.base import SessionRecord


class Opened(Struct, frozen=True):
    """What a session begins with."""

    record: SessionRecord
    config: Config
    roots: Roots
    models: tuple[str, ...]
    """The `provider/model`s that the configuration knows, the chosen one first."""
    mcp_servers: tuple[acp.McpServer, ...]
