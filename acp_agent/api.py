"""What other packages may build on.

Names in `__all__` stay and keep their meaning within one `API_VERSION`: the first number changes if something is taken
away or means something else, the second if something is added. Everything else of the package may change at any time.
Nothing is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_agent.lazy import load

if TYPE_CHECKING:
    from acp_agent.client import AcpClient as AcpClient
    from acp_agent.client import Files as Files
    from acp_agent.client import SpawnedAgent as SpawnedAgent
    from acp_agent.client import Terminals as Terminals
    from acp_agent.client import spawn_agent as spawn_agent
    from acp_agent.client.permissions import PermissionHandler as PermissionHandler
    from acp_agent.client.permissions import allow_always as allow_always
    from acp_agent.client.permissions import allow_once as allow_once
    from acp_agent.client.permissions import reject_always as reject_always
    from acp_agent.client.permissions import reject_once as reject_once
    from acp_agent.errors import AgentError as AgentError
    from acp_agent.errors import ToolError as ToolError
    from acp_agent.executors.default_signals import default_signals as default_signals
    from acp_agent.tools.kit.base import Params as Params
    from acp_agent.tools.kit.base import PathTool as PathTool
    from acp_agent.tools.kit.base import Tool as Tool
    from acp_agent.tools.kit.from_function import tool as tool
    from acp_agent.tools.kit.tool_context import Description as Description
    from acp_agent.tools.kit.tool_context import Preview as Preview
    from acp_agent.tools.kit.tool_context import ToolContext as ToolContext
    from acp_agent.tools.kit.tool_context import ToolResult as ToolResult

API_VERSION = (1, 1)

ROWS: dict[str, str] = {
    "AcpClient": "acp_agent.client.acp_client:AcpClient",
    "AgentError": "acp_agent.errors:AgentError",
    "Description": "acp_agent.tools.kit.tool_context:Description",
    "Files": "acp_agent.client.fs:Files",
    "Params": "acp_agent.tools.kit.base:Params",
    "PathTool": "acp_agent.tools.kit.base:PathTool",
    "PermissionHandler": "acp_agent.client.permissions:PermissionHandler",
    "Preview": "acp_agent.tools.kit.tool_context:Preview",
    "SpawnedAgent": "acp_agent.client.spawn:SpawnedAgent",
    "Terminals": "acp_agent.client.terminals:Terminals",
    "Tool": "acp_agent.tools.kit.base:Tool",
    "ToolContext": "acp_agent.tools.kit.tool_context:ToolContext",
    "ToolError": "acp_agent.errors:ToolError",
    "ToolResult": "acp_agent.tools.kit.tool_context:ToolResult",
    "allow_always": "acp_agent.client.permissions:allow_always",
    "allow_once": "acp_agent.client.permissions:allow_once",
    "default_signals": "acp_agent.executors.default_signals:default_signals",
    "reject_always": "acp_agent.client.permissions:reject_always",
    "reject_once": "acp_agent.client.permissions:reject_once",
    "spawn_agent": "acp_agent.client.spawn:spawn_agent",
    "tool": "acp_agent.tools.kit.from_function:tool",
}
"""Name -> where it is."""

__all__ = ["API_VERSION", *ROWS]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in ROWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(ROWS[name])


def __dir__() -> list[str]:
    return sorted(__all__)
