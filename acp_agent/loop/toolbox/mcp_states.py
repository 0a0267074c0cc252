"""`/mcp`: the servers of the session, what they said and offer; chooses their tools, restarts one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acp_agent.mcp.base import McpError
from acp_agent.mcp.content import one_line

if TYPE_CHECKING:
    from acp_agent.loop.toolbox.mcp_tools import SessionServers
    from acp_agent.mcp.mcp_servers import McpServers, ServerState

SHOWN = 3
"""Lines of the log with the states."""
LOGGED = 50
LISTED = 100
"""Resources."""
NONE = (
    "There are no MCP servers. `acp-coder mcp add NAME -- COMMAND` in a terminal adds one of yours; a trusted folder "
    "may have `.mcp.json` (`/trust`)."
)
USAGE = (
    "`/mcp log NAME`, `/mcp tools NAME` and `/mcp resources NAME` show more of one, `/mcp restart NAME` connects it "
    "anew, `/mcp login NAME` logs in. `/mcp enable NAME TOOL` and `/mcp disable NAME TOOL` say what the model gets in "
    "this session (`*` stands for any characters)."
)
VERBS = ("log", "tools", "resources", "restart", "login", "enable", "disable")


async def mcp_command(servers: SessionServers, rest: str, notify: Callable[[str, str], None]) -> str:
    verb, name, tool = [*rest.split(), "", "", ""][:3]
    connected = servers.connected
    if connected is None:
        return NONE
    if not verb:
        return "\n".join(["MCP servers:", *(_line(connected, state) for state in connected.states()), "", USAGE])
    if verb not in VERBS or not name or (verb in ("enable", "disable")) != bool(tool):
        return USAGE
    try:
        if verb == "log":
            lines = connected.log(name)
            if (before := len(lines) - LOGGED) > 0:
                lines = [f"[{before} lines before these]", *lines[-LOGGED:]]
            return "\n".join(f"    {line}" for line in lines) or f"`{name}` has said nothing."
        if verb == "tools":
            tools = [
                f"- `{tool}`{'' if allowed else ' (not offered)'}" for tool, allowed in connected.offered(name).items()
            ]
            return "\n".join(tools) or f"`{name}` has no tools now."
        if verb == "resources":
            found = [
                f"- `@{name}:{one_line(uri, 300)}`: {one_line(words, 100)}"
                for uri, words in await connected.resources(name)
            ]
            more = [f"- {len(found) - LISTED} more"] if len(found) > LISTED else []
            return "\n".join(found[:LISTED] + more) or f"`{name}` lists no resources."
        if tool:
            chosen = connected.choose(name, tool, verb == "enable")
            listed = ", ".join(f"`{each}`" for each in chosen) or f"no tool of `{name}` is called so"
            return f"{'Offered' if verb == 'enable' else 'No longer offered'} in this session: {listed}."
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
