"""A client using the official Python SDK: answers for the user, records what the SDK decoded."""

import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import anyio
from acp import schema

__all__ = ["SdkClient"]

SECONDS = 60


class SdkClient:
    """Reads give `buffers` before the disk; commands run to their end when their terminal is created."""

    def __init__(self, *, allow: bool = True) -> None:
        self.updates: list[Any] = []
        self.asked: list[tuple[schema.ToolCallUpdate, list[schema.PermissionOption]]] = []
        self.buffers: dict[str, str] = {}
        self.reads: list[str] = []
        self.writes: list[tuple[str, str]] = []
        self.commands: list[list[str]] = []
        self.released: list[str] = []
        self.agent: acp.Agent
        self.initialized: schema.InitializeResponse
        self._kind = "allow_once" if allow else "reject_once"
        self._done: list[subprocess.CompletedProcess[str]] = []
        self._changed = anyio.Event()

    @asynccontextmanager
    async def connected(self, command: str, env: Mapping[str, str]) -> AsyncIterator[acp.Agent]:
        """The agent as a child process that has answered `initialize`."""
        with anyio.fail_after(SECONDS):
            async with acp.spawn_agent_process(self, command, env=env) as (self.agent, _):  # type: ignore[arg-type]
                files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
                self.initialized = await self.agent.initialize(
                    protocol_version=acp.PROTOCOL_VERSION,
                    client_capabilities=schema.ClientCapabilities(fs=files, terminal=True),
                    client_info=schema.Implementation(name="sdk-client", version="1"),
                )
                yield self.agent

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits until `holds` is true; looks after each update."""
        with anyio.fail_after(SECONDS):
            while not holds():
                await self._changed.wait()
                self._changed = anyio.Event()

    # --- what the agent asks ---------------------------------------------------------------------------------------

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self._changed.set()

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append((tool_call, options))
        chosen = next(option for option in options if option.kind == self._kind)
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> schema.ReadTextFileResponse:
        self.reads.append(path)
        try:
            text = self.buffers[path] if path in self.buffers else Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise acp.RequestError.resource_not_found(path) from None
        lines = text.splitlines(keepends=True)[(line or 1) - 1 :]
        return schema.ReadTextFileResponse(content="".join(lines if limit is None else lines[:limit]))

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> None:
        self.writes.append((path, content))
        self.buffers.pop(path, None)
        Path(path).write_text(content, encoding="utf-8")

    async def create_terminal(
        self, session_id: str, command: str, args: list[str] | None = None, env: list[schema.EnvVariable] | None = None,
        cwd: str | None = None, output_byte_limit: int | None = None, **_: Any,
    ) -> schema.CreateTerminalResponse:  # fmt: skip
        self.commands.append([command, *(args or [])])
        done = await anyio.run_process(
            self.commands[-1], cwd=cwd, env={variable.name: variable.value for variable in env or []} or None,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        self._done.append(subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode()))
        return schema.CreateTerminalResponse(terminal_id=str(len(self._done) - 1))

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> schema.TerminalOutputResponse:
        done = self._done[int(terminal_id)]
        status = schema.TerminalExitStatus(exit_code=done.returncode)
        return schema.TerminalOutputResponse(output=done.stdout, truncated=False, exit_status=status)

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.WaitForTerminalExitResponse:
        return schema.WaitForTerminalExitResponse(exit_code=self._done[int(terminal_id)].returncode)

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        self.released.append(terminal_id)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        return None

    # --- what came -------------------------------------------------------------------------------------------------

    def text(self, kind: type[Any] = schema.AgentMessageChunk) -> str:
        """The chunks of one kind, joined."""
        return "".join(update.content.text for update in self.updates if isinstance(update, kind))

    def tools(self) -> dict[str, list[Any]]:
        """What was said of each tool call, in order, by its id."""
        found: dict[str, list[Any]] = {}
        for update in self.updates:
            if isinstance(update, schema.ToolCallStart | schema.ToolCallProgress):
                found.setdefault(update.tool_call_id, []).append(update)
        return found
