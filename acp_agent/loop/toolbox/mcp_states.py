"""`/mcp`: the servers of the session, what they said and offer, and restarting one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acp_agent.mcp.base import McpError

if TYPE_CHECKING:
    from acp_agent.loop.toolbox.mcp_tools import SessionServers
    from acp_agent.mcp.mcp_servers import McpServers, ServerState

SHOWN = 3
"""Lines of the log with the states."""
LOGGED = 50
NONE = (
    "There are no MCP servers. `acp-coder mcp add NAME -- COMMAND` in a terminal adds one of yours; a trusted folder "
    "may have `.mcp.json` (`/trust`)."
)
USAGE = (
    "`/mcp log NAME`, `/mcp tools NAME` and `/mcp restart NAME` show more of one, or connect it anew; "
    "`/mcp login NAME` logs in."
)


async def mcp_command(servers: SessionServers, rest: str, notify: Callable[[str, str], None]) -> str:
    verb, _, name = rest.partition(" ")
    name = name.strip()
    connected = servers.connected
    if connected is None:
        return NONE
    if not verb:
        return "\n".join(["MCP servers:", *(_line(connected, state) for state in connected.states()), "", USAGE])
    if verb not in ("log", "tools", "restart", "login") or not name:
        return USAGE
    try:
        if verb == "log":
            lines = connected.log(name)[-LOGGED:]
            return "\n".join(f"    {line}" for line in lines) or f"`{name}` has said nothing."
        if verb == "tools":
            tools = [
                f"- `{tool}`{'' if allowed else ' (not offered)'}" for tool, allowed in connected.offered(name).items()
            ]
            return "\n".join(tools) or f"`{name}` has no tools now."
        await (servers.login(name) if verb == "login" else connected.restart(name))
        if verb == "login":
            notify("auth_success", f"You are logged in at the MCP server {name}")
    except McpError as error:
        return f"Not done: {error}. `/mcp` lists the servers."
    await servers.ready()
    return "\n".join(_line(connected, state) for state in connected.states() if state.name == name)


def _line(connected: McpServers, state: ServerState) -> str:
    left_out = sum(not allowed for allowed in connected.offered(state.name).values())
    words = [f"{state.tools} tools", *([f"{left_out} not offered"] if left_out else []), f"{state.prompts} prompts"]
    more = f" ({', '.join(words)})" if state.state == "ready" else f": {state.words}" if state.words else ""
    log = "".join(f"\n    {line}" for line in connected.log(state.name)[-SHOWN:])
    return f"- `{state.name}`: {state.state}{more}{log}"
