"""The contract between the agent loop and a language model: messages in, model events out.

What lives here: the provider-neutral history (`Message`), the stream vocabulary (`ModelEvent`), `Provider`. What does
not: HTTP, vendor names in types, ACP types.

Promises every provider keeps (checked by `tests/llm/test_contract.py`):

* `stream()` yields deltas as they arrive; `ToolUse` events come whole (arguments complete), in the model's order,
  each with a non-empty id unique within the answer, whatever the server sent.
* The last event is `Finished`. There is exactly one; `UsageReport` precedes it if the server reported any usage.
* The only exception is `ProviderError` (and cancellation, which closes the connection at once).
* Text never holds lone surrogates.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec

# --- history -----------------------------------------------------------------------------------------------------


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    mime_type: str
    data: str
    """Base64, without a `data:` prefix."""


class AudioPart(msgspec.Struct, frozen=True, tag_field="type", tag="audio"):
    mime_type: str
    data: str
    """Base64."""


PDF = "application/pdf"


class DocumentPart(msgspec.Struct, frozen=True, tag_field="type", tag="document"):
    """A PDF."""

    data: str
    """Base64."""
    name: str = ""

    @property
    def mime_type(self) -> str:
        return PDF


Part = TextPart | ImagePart | AudioPart | DocumentPart


WRITTEN = "written_"
"""Beginning of the ids of calls that were found in the text of an answer."""


class ToolUse(msgspec.Struct, frozen=True):
    """A call requested by the model. `arguments` is the model's own JSON text, possibly invalid."""

    id: str
    name: str
    arguments: str

    @property
    def written(self) -> bool:
        """Whether it stood in the text of the answer, which may also show a call instead of making it."""
        return self.id.startswith(WRITTEN)


class UserMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="role", tag="user"):
    content: tuple[Part, ...]
    own: bool = False
    """Whether it has only words of the program, within a turn: it is no prompt."""


class AssistantMessage(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    text: str = ""
    tool_calls: tuple[ToolUse, ...] = ()
    thought: str = ""
    """The reasoning shown to the user; sent back only where an API requires it."""
    opaque: tuple[dict[str, Any], ...] = ()
    """Items that only the provider that created them understands (encrypted reasoning) and wants back unchanged."""


class ToolMessage(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    call_id: str
    """The `ToolUse.id` this message answers."""
    name: str
    content: tuple[Part, ...]


Message = UserMessage | AssistantMessage | ToolMessage

# --- request contents --------------------------------------------------------------------------------------------


class ToolDefinition(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of an object."""


ThoughtLevel = Literal["off", "low", "medium", "high"]


class ModelSettings(msgspec.Struct, frozen=True):
    model: str
    system: str = ""
    """The same for all projects, so that a server that keeps what it has read reads it once."""
    thought_level: ThoughtLevel | None = None
    """`None`: the server's default."""
    max_output_tokens: int | None = None
    fast: bool = False
    """Whether a faster answer is asked for, at its price."""
    cache_key: str = ""
    """Stable for a session: sent to providers that route prompt caches by key."""
    context: str = ""
    """Words of the program at the head of the conversation (`with_context`): what this session is about."""
    unsent: Callable[[], Sequence[ToolDefinition]] = tuple
    """Further tools and names that run when they are called, though the model is not told of them."""

    @property
    def chars(self) -> int:
        """Of what precedes the conversation."""
        return len(self.system) + len(self.context)

    @property
    def before(self) -> str:
        """All of it."""
        return f"{self.system}\n{self.context}" if self.context else self.system


def with_context(context: str, messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with the context at their head: in the first one if it is the user's, as no two of these may be
    adjacent."""
    if not context:
        return messages
    first = messages[0] if messages else None
    said = first.content if isinstance(first, UserMessage) else ()
    rest = messages[1:] if isinstance(first, UserMessage) else messages
    return [UserMessage((TextPart(context), *said)), *rest]


DEFAULT_CONTEXT_WINDOW = 128_000
"""Tokens, if neither the configuration nor the server says."""


class ModelInfo(msgspec.Struct, frozen=True):
    id: str
    context_window: int | None = None
    """Tokens."""
    accepts: tuple[str, ...] | None = None
    """Kinds of input besides text: `image`, `audio`, `document`. `None`: the server does not say."""
    tools: bool | None = None
    """Whether the server passes tools on to it; `None`: it does not say."""


# --- response events ---------------------------------------------------------------------------------------------


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ThoughtDelta(msgspec.Struct, frozen=True):
    text: str


class UsageReport(msgspec.Struct, frozen=True):
    """Tokens used by one model call. `input_tokens` includes those read from a cache or written to it, `output_tokens`
    reasoning tokens."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    """Of servers that charge for them."""
    cost: float | None = None
    """Dollars, if the server says what it charged."""

    def __add__(self, other: UsageReport) -> UsageReport:
        return UsageReport(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    def as_json(self) -> dict[str, int]:
        """As `usage` in a prompt's answer, in the terms of ACP's draft."""
        return {
            "totalTokens": self.input_tokens + self.output_tokens,
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "thoughtTokens": self.reasoning_tokens,
            "cachedReadTokens": self.cached_tokens,
            **({"cachedWriteTokens": self.cache_write_tokens} if self.cache_write_tokens else {}),
        }


FinishReason = Literal["stop", "tool_calls", "length", "refusal"]


RETRYING = "Retrying in "
"""How the notice of a wait for the server begins: it is no part of the conversation."""


class Notice(msgspec.Struct, frozen=True):
    """A sentence for the user, from the provider: it waits, or does without something. No part of the answer."""

    text: str


class Finished(msgspec.Struct, frozen=True):
    reason: FinishReason
    opaque: tuple[dict[str, Any], ...] = ()


ModelEvent = TextDelta | ThoughtDelta | ToolUse | UsageReport | Notice | Finished

# --- providers ---------------------------------------------------------------------------------------------------


class Answers(Protocol):
    """What answers requests to a model. Safe for several concurrent streams."""

    def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], settings: ModelSettings
    ) -> AsyncGenerator[ModelEvent, None]:
        """Runs one model call. An empty `tools` sends no `tools` field. Raises only `ProviderError`.

        Close the generator (`contextlib.aclosing`): that closes the connection immediately.
        """
        ...


class Provider(Answers, Protocol):
    """A language model server."""

    name: str

    async def models(self) -> list[ModelInfo]:
        """Returns the configured models, else the server's own list. Raises only `ProviderError`."""
        ...

    async def aclose(self) -> None:
        """Closes pooled connections. Idempotent."""
        ...


def last_words(messages: Sequence[Message]) -> str:
    """The last text of the model in a conversation; empty if there is none."""
    said = (message.text.strip() for message in reversed(messages) if isinstance(message, AssistantMessage))
    return next((text for text in said if text), "")
