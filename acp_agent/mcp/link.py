"""State shared by the keeper of a server (`mcp_servers`) and its connection (`mcp_client`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from acp_agent.child import User
from acp_agent.disk import Entered
from acp_agent.mcp.base import Answers, McpError, McpErrorCode, ServerSpec
from acp_agent.mcp.stdio_server import StdioServer

ROOM = 1024 * 1024
"""Bytes of a message besides its content."""


class Link(msgspec.Struct, eq=False):
    """One connection, from its first attempt to its end."""

    spec: ServerSpec
    folders: tuple[Path, ...]
    """The first is the server's."""
    entered: Entered
    environ: Mapping[str, str]
    user: Callable[[], User | None]
    """The user that the server's process runs as. May raise ExecutorError."""
    max_bytes: int
    """Maximum size of a result."""
    on_end: Callable[[], None]
    """Set when the server is gone."""
    on_lists: Callable[[], None]
    """Set when its tools or prompts may have changed."""
    log: Callable[[str], None]
    """Gets each line that the server says."""
    answers: Answers = Answers()
    process: StdioServer | None = None
    lost: McpError | None = None
    """Why the server is gone."""

    @property
    def longest_message(self) -> int:
        """In bytes; a longer message ends the connection. JSON and base64 make a result larger in transit."""
        return 2 * self.max_bytes + ROOM

    def lose(self, why: McpError) -> None:
        """Marks the connection as lost; the first reason counts."""
        if self.lost is None:
            self.lost = why
            self.on_end()

    def ended(self) -> None:
        """Called when its message stream has ended."""
        if self.process is None:
            self.lose(McpError("transient", "it closed the connection"))
        else:
            # An oversized message will be oversized again: use no code that says "try again".
            code: McpErrorCode = "policy_blocked" if self.process.too_long else "transient"
            self.lose(McpError(code, self.process.end_words()))
