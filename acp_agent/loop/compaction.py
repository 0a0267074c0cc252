"""Making a conversation shorter: the model writes what matters, and that takes the place of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from importlib.resources import files

from acp_agent.llm.base import (
    AssistantMessage,
    Message,
    ModelSettings,
    Provider,
    TextDelta,
    TextPart,
    UsageReport,
    UserMessage,
)
from acp_agent.loop.history import History

__all__ = ["summarise", "summary_messages"]

ACKNOWLEDGED = "I have read the summary and go on from there."


async def summarise(
    provider: Provider, messages: Sequence[Message], settings: ModelSettings
) -> tuple[str, UsageReport | None]:
    """The model's own summary of the conversation. Raises ProviderError."""
    request = files("acp_agent.loop").joinpath("compaction.md").read_text(encoding="utf-8")
    asked = History(messages)
    asked.close_calls()
    asked.add(UserMessage((TextPart(request),)))
    said: list[str] = []
    usage: UsageReport | None = None
    async with aclosing(provider.stream(asked.messages, (), settings)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                said.append(event.text)
            elif isinstance(event, UsageReport):
                usage = event
    return "".join(said).strip(), usage


def summary_messages(summary: str) -> list[Message]:
    """What the history becomes."""
    return [
        UserMessage((TextPart(f"Summary of our conversation so far:\n\n{summary}"),)),
        AssistantMessage(ACKNOWLEDGED),
    ]
