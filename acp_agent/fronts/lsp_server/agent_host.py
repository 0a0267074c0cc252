"""The agent's process: started when first needed, restarted after a crash, ended with the editor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.abc

from acp_agent.client.acp_client import AcpClient
from acp_agent.client.spawn import AgentProcess, spawn_agent
from acp_agent.errors import AgentError, ConnectionClosed, PeerError
from acp_agent.protocol.transports import Transport
from acp_agent.schema.acp import InitializeResponse

log = logging.getLogger(__name__)

LAST_WORDS = 5
"""Last lines of its stderr that are reported when it has died."""

DEATH_SECONDS = 1.0
"""How long to wait for an agent's exit status after its pipe has ended."""


class RunningAgent:
    def __init__(self, client: AcpClient, process: AgentProcess, initialized: InitializeResponse) -> None:
        self.client = client
        self.process = process
        self.capabilities = initialized.agent_capabilities
        self.name = initialized.agent_info.name if initialized.agent_info is not None else "the agent"


class AgentHost:
    """`tasks` owns the agent's process; cancelling it ends the agent and everything it started."""

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        connect: Callable[[Transport], AcpClient],
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        self._argv = argv
        self._environ = environ
        self._connect = connect
        self._tasks = tasks
        self._starting = anyio.Lock()
        self._running: RunningAgent | None = None
        self._life: anyio.CancelScope | None = None
        self._last: AgentProcess | None = None
        self._alive = 0
        self._ended = anyio.Event()

    @property
    def running(self) -> RunningAgent | None:
        """The agent, while it is alive."""
        if self._running is not None and self._running.process.returncode is not None:
            self._running = None
        return self._running

    async def start(self, cwd: Path) -> RunningAgent:
        """Returns the running agent, else a new one, started in `cwd`. Raises AgentError with a sentence."""
        async with self._starting:
            if self.running is not None:
                return self.running
            begun = anyio.Event()
            failures: list[AgentError] = []
            self._tasks.start_soon(self._live, cwd, begun, failures)
            try:
                await begun.wait()
            except BaseException:
                self.end()
                raise
            if self._running is None:
                raise failures[0] if failures else AgentError("the agent exited immediately")
            return self._running

    def end(self) -> None:
        """Ends the agent, if one is running."""
        self._running = None
        if self._life is not None:
            self._life.cancel()

    async def gone(self) -> None:
        """Waits until no agent is left."""
        while self._alive:
            await self._ended.wait()

    async def words(self, error: AgentError) -> str:
        """Describes an agent's `error` for a user; if the agent has died, with its last output."""
        if isinstance(error, PeerError):
            return error.message
        if not isinstance(error, ConnectionClosed) or self._last is None:
            return str(error)
        with anyio.move_on_after(DEATH_SECONDS):
            await self._last.wait()
        return _died(self._last, self._argv)

    async def _live(self, cwd: Path, begun: anyio.Event, failures: list[AgentError]) -> None:
        ended: AgentProcess | None = None
        self._alive += 1
        try:
            with anyio.CancelScope() as self._life:
                async with spawn_agent(self._argv, cwd=cwd, env=self._environ, connect=self._connect) as agent:
                    ended = self._last = agent.process
                    initialized = await agent.client.initialize()
                    self._running = RunningAgent(agent.client, agent.process, initialized)
                    begun.set()
                    await agent.process.wait()
        except ConnectionClosed as error:
            failures.append(error if ended is None else AgentError(_died(ended, self._argv)))
        except AgentError as error:
            failures.append(error)
            log.warning("the agent could not be started: %s", error)
        finally:
            begun.set()
            self._alive -= 1
            self._ended.set()
            self._ended = anyio.Event()


def _died(process: AgentProcess, argv: Sequence[str]) -> str:
    code = process.returncode
    how = "exited" if code is None else f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"
    said = [line for line in process.stderr.strip().splitlines() if line.strip()][-LAST_WORDS:]
    words = "; ".join(said) or "it printed nothing to stderr"
    return f"the agent {how} ({Path(argv[0]).name}): {words}. The next command restarts it."
