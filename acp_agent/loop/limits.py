"""Limits of a turn and of a session, and the words in which a person hears of them."""

from __future__ import annotations

from collections.abc import Sequence

from acp_agent.errors import ToolError
from acp_agent.llm.base import AssistantMessage, Message, TextPart

__all__ = ["CHARS_PER_TOKEN", "CallQuota", "characters", "context_estimate", "context_full", "context_words"]

CHARS_PER_TOKEN = 4
"""A guess, for text no server has counted yet."""


class CallQuota:
    """How often a session may call tools, until `/clear`. One message's calls count once, however many they are.

    `used` is what the history says: sessions survive restarts, and so does what they have used. `limit` 0: no limit.
    """

    def __init__(self, limit: int, used: int = 0) -> None:
        self._limit = limit
        self.used = used

    def take(self) -> ToolError | None:
        if self._limit and self.used >= self._limit:
            return ToolError(
                f"quota_blocked: this session has used its {self._limit} tool calls "
                "(`tools.max_tool_calls_per_session`). Nothing was run.",
                "policy_blocked",
                suggestion="Say what you have found so far and what is left. The person can start anew with /clear.",
            )
        self.used += 1
        return None

    def reset(self) -> None:
        self.used = 0

    @staticmethod
    def used_by(messages: Sequence[Message]) -> int:
        return sum(isinstance(message, AssistantMessage) and bool(message.tool_calls) for message in messages)


def characters(message: Message) -> int:
    """A rough size: the characters of all text."""
    if isinstance(message, AssistantMessage):
        return len(message.text) + sum(len(call.arguments) + len(call.name) for call in message.tool_calls)
    return sum(len(part.text) for part in message.content if isinstance(part, TextPart))


def context_estimate(messages: Sequence[Message], counted: int, system_chars: int) -> int:
    """Tokens the next request will have: what the server `counted` up to its last answer, and a guess for what came
    after. With nothing counted, all is guessed."""
    after: list[Message] = []
    for message in reversed(messages):
        if counted and isinstance(message, AssistantMessage):
            break
        after.append(message)
    guessed = sum(characters(message) for message in after)
    return counted + (guessed if counted else guessed + system_chars) // CHARS_PER_TOKEN


def context_full(
    messages: Sequence[Message], counted: int, system_chars: int, window: int | None, budget: float
) -> str | None:
    """Words for the person, where the next request would not fit well; a window nobody told of stops nothing."""
    if window is None:
        return None
    return context_words(context_estimate(messages, counted, system_chars), window, budget)


def context_words(tokens: int, window: int, budget: float) -> str | None:
    """What the person is told where a turn must stop for lack of room."""
    if tokens <= window * budget:
        return None
    return (
        f"The model's context is full to {100 * tokens / window:.0f} % (about {tokens} of {window} tokens; turns stop "
        f"at {100 * budget:.0f} %), so the turn was stopped here. `/compact` replaces the conversation by a summary, "
        "`/clear` lets the model forget it."
    )
