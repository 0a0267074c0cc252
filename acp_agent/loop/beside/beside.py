"""Runs MCP servers, schedules and the browser next to the turns of a session, until it is closed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from acp_agent.loop.beside.scheduler import Scheduler
from acp_agent.loop.toolbox.mcp_tools import SessionServers
from acp_agent.tools.net.web_access import WebAccess


class Beside:
    """`scheduler`: `None` if schedules are turned off. `network`: serves the connections of commands."""

    def __init__(
        self,
        servers: SessionServers,
        scheduler: Scheduler | None,
        web: WebAccess,
        network: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._servers = servers
        self._scheduler = scheduler
        self._web = web
        self._network = network
        self._scope = anyio.CancelScope()

    async def live(self, *, in_part: bool = False) -> None:
        """`in_part`: only for a sub-agent, without servers and schedules."""
        with self._scope:
            async with anyio.create_task_group() as tasks:
                if not in_part:
                    tasks.start_soon(self._servers.run)
                if self._scheduler is not None and not in_part:
                    tasks.start_soon(self._scheduler.live)
                tasks.start_soon(self._web.live)
                tasks.start_soon(self._network)

    async def close(self) -> None:
        await self._servers.close()
        self._scope.cancel()
