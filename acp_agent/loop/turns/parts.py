"""The parts of a session: what its turns need besides the conversation itself. `build` creates them."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
from msgspec import Struct

from acp_agent.loop.beside.scheduler import Scheduler
from acp_agent.loop.calls.runner import Calls
from acp_agent.loop.commands import Commands
from acp_agent.loop.journal import Journal
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.model.ready_model import SessionModels
from acp_agent.loop.shell.session_shell import Shell
from acp_agent.loop.shell.workspaces import Project
from acp_agent.loop.toolbox.mcp_tools import SessionServers
from acp_agent.loop.toolbox.toolbox import Toolbox
from acp_agent.loop.turns.context_use import ContextUse
from acp_agent.loop.turns.session_prompts import Prompts
from acp_agent.loop.turns.session_turns import Turns
from acp_agent.loop.turns.suggestions import Suggestions
from acp_agent.tools.net.web_access import WebAccess


class Beside:
    """MCP servers, schedules, the browser and suggestions, which run next to the turns until it is closed.
    `scheduler`: `None` if schedules are turned off."""

    def __init__(
        self, servers: SessionServers, scheduler: Scheduler | None, web: WebAccess, suggestions: Suggestions
    ) -> None:
        self.suggestions = suggestions
        self._servers = servers
        self._scheduler = scheduler
        self._web = web
        self._scope = anyio.CancelScope()

    async def live(self) -> None:
        with self._scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._servers.run)
                if self._scheduler is not None:
                    tasks.start_soon(self._scheduler.live)
                tasks.start_soon(self._web.live)
                tasks.start_soon(self.suggestions.live)

    async def close(self) -> None:
        self.suggestions.withdraw()
        await self._servers.close()
        self._scope.cancel()


class Parts(Struct, frozen=True):
    toolbox: Toolbox
    calls: Calls
    shell: Shell
    memory: Memory
    """The four owners; the following parts use them."""
    models: SessionModels
    journal: Journal
    commands: Commands
    prompts: Prompts
    turns: Turns
    context: ContextUse
    beside: Beside

    @property
    def project(self) -> Project:
        return self.shell.project

    async def close(self) -> None:
        """Ends what the session left running; all of it, also if one of them cannot be ended."""
        async with AsyncExitStack() as ends:  # The last first.
            for part in (self.shell.workspaces, self.shell.hooks, self.beside, self.shell.runs):
                ends.push_async_callback(part.close)
