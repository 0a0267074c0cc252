"""MCP servers as a session runs them, with what was reported to it."""

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from acp_agent.mcp.base import KeeperSettings, McpResult, ServerSpec
from acp_agent.mcp.mcp_servers import McpServers

BOUND = 60.0
HERE = Path(__file__).parent


def raw(mode: str = "good", notes: Path | str = "", name: str = "raw", **changed: Any) -> ServerSpec:
    args = ("-S", str(HERE / "raw_server.py"), mode, str(notes))
    return ServerSpec(**{"name": name, "transport": "stdio", "command": sys.executable, "args": args, **changed})


@dataclass
class Kept:
    servers: McpServers = field(init=False)
    call_timeout: float = 15.0
    changes: int = 0
    troubles: list[tuple[str, str]] = field(default_factory=list)
    _news: anyio.Event = field(default_factory=anyio.Event)

    def changed(self) -> None:
        self.changes += 1
        self._tell()

    def trouble(self, name: str, sentence: str) -> None:
        self.troubles.append((name, sentence))
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def until(self, happened: Any) -> None:
        """Waits until `happened()`; it is asked again at each news."""
        while not happened():
            await self._news.wait()

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.servers.tools()]

    async def connected(self, count: int = 1) -> None:
        await self.until(lambda: sum(state.state == "ready" for state in self.servers.states()) == count)

    async def text(self, tool: str, server: str = "raw", **arguments: Any) -> str:
        return (await self.call(server, tool, arguments)).text

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any]) -> McpResult:
        call = await self.servers.start(server, tool, arguments)
        try:
            return await call.result(self.call_timeout)
        finally:
            call.cancel()


@asynccontextmanager
async def kept(*specs: ServerSpec, wait: bool = True, **changed: Any) -> AsyncIterator[Kept]:
    made = Kept()
    programs = changed.pop("programs", None)
    made.call_timeout = changed.get("call_timeout", made.call_timeout)
    settings: dict[str, Any] = {
        "folders": (HERE,), "connect_timeout": 15.0, "call_timeout": made.call_timeout, "max_result_bytes": 100_000,
        "environ": os.environ, **changed,
    }  # fmt: skip
    made.servers = McpServers(
        specs,
        KeeperSettings(as_trusted=lambda spec: spec, on_change=made.changed, on_trouble=made.trouble, **settings),
        programs,
    )
    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.servers.run)
            try:
                if wait:
                    await made.connected(len(specs))
                yield made
            finally:
                with anyio.CancelScope(shield=True):
                    await made.servers.close()


async def noted(file: Path, words: str) -> list[str]:
    """The lines of the notes that start with `words`, once there is one."""
    while True:
        lines = file.read_text().splitlines() if file.exists() else []
        found = [line.removeprefix(words).strip() for line in lines if line.startswith(words)]
        if found:
            return found
        await anyio.sleep(0.01)


def environment(**changed: str) -> Mapping[str, str]:
    return {"PATH": os.environ["PATH"], **changed}
