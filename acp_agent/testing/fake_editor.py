"""`FakeEditor`: a scripted editor for tests, over the real protocol.

    async with FakeEditor(transport, permissions=[reject_once]) as editor:
        await editor.start()
        await editor.new_session(tmp_path)
        answer = await editor.prompt("fix it")
        assert answer.stop_reason == "end_turn"
        assert editor.text() == "Done."

It is `AcpClient` with a memory: every line of both directions is in `transcript`, and every line is checked (see
`checks`); leaving the block fails the test when one was wrong. It can be every editor there is: what it offers, how its
person answers, and how it misbehaves are arguments.

The test kit may import `acp_agent.client`: the one exception from the rule that wings never import each other.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakSet

import anyio

from acp_agent.client.acp_client import AcpClient, ElicitationAnswer
from acp_agent.client.background import Background
from acp_agent.client.files import Files
from acp_agent.client.permissions import Permissions, allow_once
from acp_agent.client.process import AgentProcess, agent_process
from acp_agent.client.terminals import Terminals
from acp_agent.errors import ResourceNotFound, RpcError
from acp_agent.protocol.transports import Transport
from acp_agent.schema.acp import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AuthCapabilities,
    BooleanConfigOptionCapabilities,
    CancelledPermissionOutcome,
    ClientCapabilities,
    ClientSessionCapabilities,
    CompactionCapabilities,
    ContentBlock,
    ContentChunk,
    CreateElicitationRequest,
    CreateElicitationResponse,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    ElicitationUrlCapabilities,
    FileSystemCapabilities,
    Implementation,
    InitializeResponse,
    KillTerminalRequest,
    KillTerminalResponse,
    LoadSessionResponse,
    McpServer,
    NewSessionResponse,
    NoticeCapabilities,
    PromptResponse,
    ReadTextFileRequest,
    ReadTextFileResponse,
    RequestPermissionOutcome,
    RequestPermissionRequest,
    ResumeSessionResponse,
    SessionConfigOptionsCapabilities,
    SessionUpdate,
    TextContent,
    ToolCall,
    ToolCallUpdate,
    WaitForTerminalExitRequest,
    WaitForTerminalExitResponse,
    WriteTextFileRequest,
    WriteTextFileResponse,
)
from acp_agent.schema.decode import decode_result
from acp_agent.testing.checks import Direction, WireChecks

__all__ = [
    "AnswersError",
    "AnswersGarbage",
    "AnswersLate",
    "FakeEditor",
    "Line",
    "Misbehaviour",
    "NeverAnswers",
    "ToolCallState",
    "Turn",
    "live_editors",
]

WAIT_SECONDS = 10.0
"""How long the waiting helpers wait before they fail the test."""

_Update = TypeVar("_Update")


# --- misbehaviour ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NeverAnswers:
    """The request hangs until it is cancelled."""


@dataclass(frozen=True)
class AnswersError:
    code: int = -32603
    message: str = "the editor is out of order"
    data: Any = None


@dataclass(frozen=True)
class AnswersGarbage:
    """The answer is `result`, whatever the method."""

    result: Any = "garbage"


@dataclass(frozen=True)
class AnswersLate:
    """The request is served once the test sets `release`."""

    release: anyio.Event = field(default_factory=anyio.Event)


Misbehaviour = NeverAnswers | AnswersError | AnswersGarbage | AnswersLate


# --- what is recorded --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One line on the wire. `message` is its JSON, or the text itself where it is none."""

    direction: Direction
    message: Any

    def __str__(self) -> str:
        arrow = "->" if self.direction == "to_agent" else "<-"
        return f"{arrow} {json.dumps(self.message, ensure_ascii=False)}"


@dataclass
class ToolCallState:
    """A tool call as the person sees it by now: its announcement with every update merged in."""

    id: str
    fields: dict[str, Any]
    """The latest value of each field that was reported, in snake_case, as Structs."""
    statuses: list[str]
    """Each status reported, in order; an announcement without one counts as pending."""

    @property
    def status(self) -> str:
        return self.statuses[-1]

    @property
    def title(self) -> str:
        return str(self.fields.get("title", ""))

    @property
    def name(self) -> str | None:
        return self.fields.get("name")

    @property
    def kind(self) -> str:
        return str(self.fields.get("kind", "other"))

    @property
    def content(self) -> list[Any]:
        return self.fields.get("content") or []

    @property
    def locations(self) -> list[Any]:
        return self.fields.get("locations") or []

    @property
    def raw_input(self) -> Any:
        return self.fields.get("raw_input")

    @property
    def raw_output(self) -> Any:
        return self.fields.get("raw_output")

    @property
    def meta(self) -> dict[str, Any]:
        return self.fields.get("meta") or {}

    def text(self) -> str:
        """The text blocks of its content, joined by line feeds."""
        blocks = (item.content for item in self.content if hasattr(item, "content"))
        return "\n".join(block.text for block in blocks if isinstance(block, TextContent))

    def assert_finished(self, status: str | None = None) -> None:
        """Its life was legal: pending, in_progress, then completed or failed, each at most once; and it has ended.

        A call may end without ever running (rejected, cancelled), and a replayed one begins with its end.
        """
        legal = ("pending", "in_progress")
        assert self.status in ("completed", "failed"), f"tool call {self.id} has not ended: {self.statuses}"
        before = self.statuses[:-1]
        assert before == [step for step in legal if step in before], f"tool call {self.id}: {self.statuses}"
        assert status in (None, self.status), f"tool call {self.id} is {self.status}, not {status}: {self.text()}"


class Turn:
    """A prompt that runs while the test does something else."""

    def __init__(self) -> None:
        self._ended = anyio.Event()
        self._answer: PromptResponse | None = None
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    async def response(self) -> PromptResponse:
        """Its answer; raises what `AcpClient.prompt` raised."""
        with anyio.fail_after(WAIT_SECONDS):
            await self._ended.wait()
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer

    async def run(self, prompt: Callable[[], Any]) -> None:
        try:
            self._answer = await prompt()
        except (RuntimeError, ValueError, OSError, *TURN_ERRORS) as error:
            self._error = error
        finally:
            self._ended.set()
