"""One turn: ask the model, run what it calls for, ask again, until it calls for nothing.

Emits ACP's own updates and returns a `StopReason`. Cancellation passes through; whatever it interrupts, the history is
left valid for the next prompt.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Protocol

import msgspec

from acp_agent.llm.base import (
    AssistantMessage,
    Finished,
    FinishReason,
    Message,
    ModelSettings,
    Provider,
    TextDelta,
    ThoughtDelta,
    ToolDefinition,
    ToolMessage,
    ToolUse,
    UsageReport,
)
from acp_agent.schema.acp import AgentMessageChunk, AgentThoughtChunk, SessionUpdate, StopReason, TextContent

__all__ = ["Turn", "TurnHost", "run_turn"]

CHARS_PER_TOKEN = 4
"""For servers that report no usage."""


class TurnHost(Protocol):
    """What a turn needs of its session."""

    def messages(self) -> Sequence[Message]: ...

    def add(self, message: Message) -> None:
        """Appends to the history, on disk too."""
        ...

    def emit(self, update: SessionUpdate) -> None: ...

    async def drain(self) -> None:
        """Waits while the client reads too slowly."""
        ...

    def tools(self) -> Sequence[ToolDefinition]:
        """The tools of the mode in force now."""
        ...

    def settings(self) -> ModelSettings: ...

    def report_usage(self, usage: UsageReport) -> None: ...


class Turn(msgspec.Struct):
    """What one model call gave."""

    message: AssistantMessage
    reason: FinishReason
    usage: UsageReport | None


RunCalls = Callable[[Sequence[ToolUse], Callable[[ToolMessage], None]], Awaitable[None]]
"""Runs the calls of one message and hands over one result for each, in order, also when it is cancelled."""


async def run_turn(provider: Provider, host: TurnHost, run_calls: RunCalls, *, max_iterations: int) -> StopReason:
    """Runs until the model is done. Raises ProviderError; what the model had said by then stays in the history."""
    for _ in range(max_iterations):
        turn = await ask_model(provider, host)
        if turn.usage is None:
            turn.usage = _estimate(host, turn.message)
        host.report_usage(turn.usage)
        if turn.message.tool_calls:
            await run_calls(turn.message.tool_calls, host.add)
        elif turn.reason == "length":
            return "max_tokens"
        elif turn.reason == "refusal":
            return "refusal"
        else:
            return "end_turn"
    return "max_turn_requests"


async def ask_model(provider: Provider, host: TurnHost) -> Turn:
    """One model call, streamed to the person; its message is added to the history, also when it is cut short."""
    said: list[str] = []
    thought: list[str] = []
    calls: list[ToolUse] = []
    usage: UsageReport | None = None
    finished: Finished | None = None
    message_id, thought_id = str(uuid.uuid4()), str(uuid.uuid4())
    try:
        async with aclosing(provider.stream(host.messages(), host.tools(), host.settings())) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        said.append(text)
                        host.emit(AgentMessageChunk(content=TextContent(text=text), message_id=message_id))
                        await host.drain()
                    case ThoughtDelta(text):
                        thought.append(text)
                        host.emit(AgentThoughtChunk(content=TextContent(text=text), message_id=thought_id))
                        await host.drain()
                    case ToolUse():
                        calls.append(event)
                    case UsageReport():
                        usage = event
                    case Finished():
                        finished = event
    finally:
        message = AssistantMessage(
            text="".join(said),
            # Calls of an answer that was cut short are never run, so they are not kept either.
            tool_calls=tuple(calls) if finished is not None else (),
            thought="".join(thought),
            opaque=finished.opaque if finished is not None else (),
        )
        host.add(message)
    return Turn(message, finished.reason if finished is not None else "stop", usage)


def _estimate(host: TurnHost, message: AssistantMessage) -> UsageReport:
    """A guess from characters, where the server tells nothing."""
    told = len(host.settings().system)
    for earlier in host.messages():
        if isinstance(earlier, AssistantMessage):
            told += len(earlier.text)
        else:
            told += sum(len(part.text) for part in earlier.content if hasattr(part, "text"))
    return UsageReport(told // CHARS_PER_TOKEN, len(message.text) // CHARS_PER_TOKEN)
