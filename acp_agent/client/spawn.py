"""The agent as a child process over real pipes: stdin and stdout carry the protocol, stderr is kept for the user."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from acp_agent.child import Child
from acp_agent.client.acp_client import AcpClient
from acp_agent.client.tasks import Background
from acp_agent.errors import AgentError
from acp_agent.protocol.transports import FdTransport, Transport

EXIT_SECONDS = 3.0
"""Seconds the agent may take to exit after its stdin was closed."""


class AgentProcess(Child):
    """A running agent. `transport` is the client's end of the wire."""

    terminate = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.leave = EXIT_SECONDS
        self.transport = FdTransport(self._stdout.fileno(), self._stdin.fileno(), ends_on_hangup=False)

    def close_stdin(self) -> None:
        """Closes the agent's stdin and our end of the connection."""
        self.transport.close()
        super().close_stdin()


class SpawnedAgent(Struct, frozen=True):
    client: AcpClient
    process: AgentProcess


@asynccontextmanager
async def agent_process(
    argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[AgentProcess]:
    """Starts `argv`; on exit closes its stdin, waits briefly, then kills it.

    `env` is the complete environment. Raises AgentError if it cannot be started.
    """
    try:
        agent = AgentProcess.start("the agent", argv, cwd=cwd, env=env)
    except OSError as error:
        raise AgentError(f"cannot start {argv[0]}: {error}") from error
    try:
        async with Background() as background:
            background.start(agent.watch_stderr)
            try:
                yield agent
            finally:
                with anyio.CancelScope(shield=True):
                    await agent.end()
                background.cancel()
    finally:
        agent.close()


@asynccontextmanager
async def spawn_agent(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    connect: Callable[[Transport], AcpClient] = AcpClient,
) -> AsyncIterator[SpawnedAgent]:
    """Starts `argv` and serves an `AcpClient`, made by `connect`, on its pipes."""
    async with agent_process(argv, cwd=cwd, env=env) as process, connect(process.transport) as client:
        yield SpawnedAgent(client, process)
