"""The agent as a child process over real pipes: its stdin and stdout are the wire, its stderr is kept for a person."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process

from acp_agent.client.acp_client import AcpClient
from acp_agent.client.tasks import Background
from acp_agent.errors import AgentError
from acp_agent.protocol.transports import FdTransport, Transport

STDERR_BYTES = 64 * 1024
"""How much of the end of the agent's stderr is kept."""

EXIT_SECONDS = 3.0
"""How long the agent may take to end after its stdin has ended."""


class AgentProcess:
    """A running agent. `transport` is the client's end of the wire."""

    def __init__(self, process: Process, transport: FdTransport, stdin_fd: int, stderr_fd: int) -> None:
        self.transport = transport
        self._stdin_fd: int | None = stdin_fd
        self._process = process
        self._stderr_fd = stderr_fd
        self._stderr_ended = False
        self._stderr = bytearray()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """`None` while it runs; negative when a signal ended it."""
        return self._process.returncode

    @property
    def stderr(self) -> str:
        """The end of what it wrote to stderr so far."""
        self._take_stderr()
        return self._stderr.decode("utf-8", "replace")

    async def wait(self) -> int:
        return await self._process.wait()

    async def keep_stderr(self) -> None:
        """Reads until nobody writes any more: an agent must not stall on a full stderr."""
        while not self._stderr_ended:
            await anyio.wait_readable(self._stderr_fd)
            self._take_stderr()

    def _take_stderr(self) -> None:
        while not self._stderr_ended:
            try:
                data = os.read(self._stderr_fd, STDERR_BYTES)
            except BlockingIOError:
                return
            self._stderr_ended = not data
            self._stderr += data
            del self._stderr[:-STDERR_BYTES]

    def close_stdin(self) -> None:
        """Ends the agent's input, and with it our end of the wire. Idempotent."""
        self.transport.close()
        if self._stdin_fd is not None:
            os.close(self._stdin_fd)
            self._stdin_fd = None

    async def end(self) -> None:
        """Ends the agent's input and waits, bounded, for it to go; then kills it and its children."""
        self.close_stdin()
        with anyio.move_on_after(EXIT_SECONDS):
            await self._process.wait()
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # It ended meanwhile.
        await self._process.wait()

    def forget_stderr(self) -> None:
        """Keeps what there is; the descriptor may be closed."""
        self._take_stderr()
        self._stderr_ended = True


@dataclass(frozen=True)
class SpawnedAgent:
    client: AcpClient
    process: AgentProcess


@asynccontextmanager
async def agent_process(
    argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[AgentProcess]:
    """Starts `argv`; on the way out ends its stdin, waits bounded, kills. `env` is the whole environment.

    Raises AgentError when it cannot be started.
    """
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    our_err, their_err = os.pipe()
    theirs = (their_in, their_out, their_err)
    open_fds = {our_out, our_in, our_err}
    try:
        try:
            process = await anyio.open_process(
                argv, stdin=their_in, stdout=their_out, stderr=their_err, cwd=cwd, env=env, start_new_session=True
            )
        except OSError as error:
            raise AgentError(f"cannot start {argv[0]}: {error}") from error
        finally:
            for fd in theirs:
                os.close(fd)
        os.set_blocking(our_err, False)
        agent = AgentProcess(process, FdTransport(our_in, our_out, ends_on_hangup=False), our_out, our_err)
        open_fds.discard(our_out)
        async with Background() as background:
            background.start(agent.keep_stderr)
            try:
                yield agent
            finally:
                with anyio.CancelScope(shield=True):
                    await agent.end()
                agent.forget_stderr()
                background.cancel()
    finally:
        for fd in open_fds:
            os.close(fd)


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
