"""How many tokens a request has: estimated here in advance, counted by the server afterwards.

Each session has one estimator: it measures text in characters and learns from the server's counts how many characters
make a token, for each model. Nothing else in the program estimates tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

from acp_agent.llm.base import AssistantMessage, Message, TextPart, ToolDefinition

CHARS_PER_TOKEN = 4.0
"""Until a server has counted."""

MEDIA_CHARS = 4_000
"""An image or audio counts as this much text."""

MESSAGE_CHARS = 16
"""The size of a message besides its text."""

SMALLEST_SAMPLE = 400
"""Characters of a request from which its count is used."""

FEWEST_CHARS, MOST_CHARS = 1.0, 8.0
"""Plausible characters per token."""

LEARNING = 0.5
"""Weight of the newest count."""


def characters(message: Message) -> int:
    """The size of a message: the characters of its text, or an equivalent for other content."""
    if isinstance(message, AssistantMessage):
        size = len(message.text) + sum(len(call.arguments) + len(call.name) for call in message.tool_calls)
        return size + MESSAGE_CHARS
    parts = sum(len(part.text) if isinstance(part, TextPart) else MEDIA_CHARS for part in message.content)
    return parts + MESSAGE_CHARS


def definition_chars(definitions: Sequence[ToolDefinition]) -> int:
    """The size of the tools of a request."""
    return len(msgspec.json.encode(definitions)) if definitions else 0


class TokenEstimator(Struct):
    """Of one session."""

    _ratios: dict[str, float] = field(default_factory=dict)

    def observe(self, model: str, chars: int, tokens: int) -> None:
        """A server counted `tokens` for a request of `chars` characters."""
        if chars < SMALLEST_SAMPLE or tokens <= 0:
            return
        seen = min(max(chars / tokens, FEWEST_CHARS), MOST_CHARS)
        known = self._ratios.get(model)
        self._ratios[model] = seen if known is None else known + LEARNING * (seen - known)

    def refused(self, model: str, chars: int, tokens: int) -> None:
        """A server found at least `tokens` in a request of `chars` characters: this overrides the average."""
        seen = max(chars / max(tokens, 1), FEWEST_CHARS)
        self._ratios[model] = min(seen, self.chars_per_token(model))

    def chars_per_token(self, model: str) -> float:
        return self._ratios.get(model, CHARS_PER_TOKEN)

    def tokens(self, model: str, chars: int) -> int:
        return round(chars / self.chars_per_token(model))

    def chars(self, model: str, tokens: float) -> int:
        """The amount of text for this many tokens."""
        return int(tokens * self.chars_per_token(model))
