"""Measures compaction of a long conversation, without the model's own summary: for scripts/bench.py."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import anyio

from acp_agent.config.compaction_settings import CompactionConfig
from acp_agent.llm.base import (
    AssistantMessage,
    Message,
    ModelEvent,
    ModelInfo,
    ModelSettings,
    TextDelta,
    TextPart,
    ToolDefinition,
    ToolMessage,
    ToolUse,
    UserMessage,
)
from acp_agent.loop.memory.compaction import Compacted, summarise
from acp_agent.loop.memory.history import History
from acp_agent.loop.memory.room import Asked, Room
from acp_agent.protocol.codec import encode
from acp_agent.tools.kit.registry import builtin_registry

__all__ = ["compaction", "long_conversation"]

WINDOW = 60_000
"""Tokens: so few that shortening old results is not enough, and the model is asked for a summary."""


class _Summariser:
    """A model that returns a summary immediately."""

    name = "summariser"

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], settings: ModelSettings
    ) -> AsyncGenerator[ModelEvent, None]:
        yield TextDelta("They looked for the fault, and found it in the parser. " * 40)

    async def models(self) -> list[ModelInfo]:
        return []

    async def aclose(self) -> None:
        return None


@dataclass
class _Desk:
    """A history, and the bytes written to the database when it is replaced."""

    history: History
    done: Compacted | None = None
    stored: bytes = field(default=b"")

    def messages(self) -> Sequence[Message]:
        return self.history.messages

    def begin(self) -> None:
        pass

    def replace(self, done: Compacted, before: int, after: int) -> None:
        self.history.replace(done.messages)
        self.stored = encode(self.history.messages)
        self.done = done

    def gave_up(self, *, cancelled: bool = False) -> None:
        pass


def long_conversation(messages: int = 500) -> list[Message]:
    """A prompt, two rounds of calls and an answer, repeated: 4,000 characters per result, 400 per answer."""
    said: list[Message] = []
    for number in range(messages // 6 + 1):
        said.append(UserMessage((TextPart(f"Prompt {number}: " + "please fix what is wrong there. " * 6),)))
        for half in "ab":
            use = ToolUse(f"call-{number}{half}", "bash", '{"command": "make -j2 && ls -l build/objects"}')
            said.append(AssistantMessage("", (use,)))
            said.append(ToolMessage(use.id, "bash", (TextPart(f"build/objects/part_{number}.o: done\n" * 120),)))
        said.append(AssistantMessage("It was in the parser, which read one word too far. " * 8))
    return said[:messages]


def compaction() -> float:
    """Milliseconds to compact a conversation of 500 messages, without the model. Raises RuntimeError if there was no
    summary, or the result does not fit."""
    desk = _Desk(History(long_conversation()))
    if len(desk.history) != 500:
        raise RuntimeError(f"{len(desk.history)} messages")
    tools = [entry.definition for entry in builtin_registry().entries()]
    settings = ModelSettings(model="fake-model", system="x" * 4000)
    asked = Asked("fake-model", settings, tools, WINDOW)
    room = Room(CompactionConfig(), 0.8)

    async def summary(messages: Sequence[Message]) -> str:
        return (await summarise(_Summariser(), messages, settings))[0]

    async def fit() -> float:
        begun = time.perf_counter()
        words = await room.fit(desk, asked, lambda: summary)
        took = (time.perf_counter() - begun) * 1000
        if words is not None or desk.done is None or not desk.done.summarised or not desk.done.shortened:
            raise RuntimeError(f"no summary: {words or desk.done}")
        return took

    return anyio.run(fit)
