"""One turn: ask the model, run what it calls for, ask again, until it calls for nothing.

Emits ACP's own updates and returns a `StopReason`. Cancellation passes through; whatever it interrupts, the history is
left valid for the next prompt.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

import msgspec

from acp_agent.llm.base import (
    AssistantMessage,
    Finished,
    FinishReason,
    Message,
    ModelSettings,
    Provider,
    TextDelta,
    TextPart,
    ThoughtDelta,
    ToolDefinition,
    ToolMessage,
    ToolUse,
    UsageReport,
)
from acp_agent.loop.failures import DoomLoop
from acp_agent.loop.limits import CHARS_PER_TOKEN, characters
from acp_agent.schema.acp import AgentMessageChunk, AgentThoughtChunk, SessionUpdate, StopReason, TextContent

if TYPE_CHECKING:
    from acp_agent.loop.calls import RoundResult

__all__ = ["Turn", "TurnHost", "run_turn"]


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

    def context_full(self) -> str | None:
        """Words for the person, where the next request would not fit well."""
        ...

    def say(self, text: str) -> None:
        """A message of the agent's own."""
        ...


class Turn(msgspec.Struct):
    """What one model call gave."""

    message: AssistantMessage
    reason: FinishReason
    usage: UsageReport | None


RunCalls = Callable[[Sequence[ToolUse], Callable[[ToolMessage], None]], Awaitable["RoundResult"]]
"""Runs the calls of one message and hands over one result for each, in order, also when it is cancelled."""


async def run_turn(
    provider: Provider, host: TurnHost, run_calls: RunCalls, *, max_iterations: int, doom_loop: int
) -> StopReason:
    """Runs until the model is done, or a limit ends it (then the person is told which, but for the iterations, which
    the stop reason names). Raises ProviderError; what the model had said by then stays in the history."""
    circles = DoomLoop(doom_loop)
    for _ in range(max_iterations):
        if (words := host.context_full()) is not None:
            host.say(words)
            return "max_tokens"
        turn = await ask_model(provider, host)
        if turn.usage is None:
            turn.usage = _estimate(host, turn.message)
        host.report_usage(turn.usage)
        calls = turn.message.tool_calls
        if not calls:
            return ENDS.get(turn.reason, "end_turn")
        if (words := circles.asked(calls)) is not None:
            for call in calls:
                host.add(ToolMessage(call.id, call.name, (TextPart(words),)))
            host.say(words)
            return "max_turn_requests"
        results: list[ToolMessage] = []

        def add(result: ToolMessage, results: list[ToolMessage] = results) -> None:
            results.append(result)
            host.add(result)

        outcome = await run_calls(calls, add)
        if outcome.ends_turn:
            return "end_turn"
        if (words := circles.answered(results, progress=outcome.progress)) is not None:
            host.say(words)
            return "max_turn_requests"
    return "max_turn_requests"


ENDS: dict[FinishReason, StopReason] = {"length": "max_tokens", "refusal": "refusal"}


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
    told = len(host.settings().system) + sum(characters(earlier) for earlier in host.messages())
    return UsageReport(told // CHARS_PER_TOKEN, len(message.text) // CHARS_PER_TOKEN)
