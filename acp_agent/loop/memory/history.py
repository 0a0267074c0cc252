"""The conversation as sent to the model, always in a form every model accepts.

Rules: each call of an assistant message has exactly one answer, directly after it; no two user messages are adjacent;
an assistant message is never empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from acp_agent.llm.base import AssistantMessage, Message, TextPart, ToolMessage, ToolUse, UserMessage
from acp_agent.loop.memory.token_counts import characters
from acp_agent.store.base import read_stored

INTERRUPTED = "The call was interrupted before it had a result. It is unknown whether it had an effect."

_one: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_many: msgspec.json.Decoder[list[Message]] = msgspec.json.Decoder(list[Message])


class History:
    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = []
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        """Appends, keeping the rules even for a log truncated by a crash: adjacent user messages are joined, open calls
        are answered first, an answer to no open call is dropped."""
        open_ = self.unanswered()
        if isinstance(message, ToolMessage):
            if any(call.id == message.call_id for call in open_):
                self._messages.append(message)
            return
        self._messages.extend(_interrupted(call, INTERRUPTED) for call in open_)
        last = self._messages[-1] if self._messages else None
        if isinstance(message, UserMessage) and isinstance(last, UserMessage):
            self._messages[-1] = UserMessage((*last.content, *message.content), last.own and message.own)
        elif not (isinstance(message, AssistantMessage) and not (message.text or message.tool_calls)):
            self._messages.append(message)

    def replace(self, messages: Iterable[Message]) -> None:
        self._messages = []
        for message in messages:
            self.add(message)

    @property
    def messages(self) -> Sequence[Message]:
        return self._messages

    def __len__(self) -> int:
        return len(self._messages)

    def unanswered(self) -> list[ToolUse]:
        """The calls of the last assistant message that have no answer yet."""
        answered: set[str] = set()
        for message in reversed(self._messages):
            if isinstance(message, ToolMessage):
                answered.add(message.call_id)
            elif isinstance(message, AssistantMessage):
                return [call for call in message.tool_calls if call.id not in answered]
            else:
                break
        return []

    def close_calls(self, text: str = INTERRUPTED) -> list[ToolMessage]:
        """Answers every open call with `text`; returns the answers that were added."""
        added = [_interrupted(call, text) for call in self.unanswered()]
        for message in added:
            self.add(message)
        return added

    def characters(self) -> int:
        """Its size (`tokens`)."""
        return sum(characters(message) for message in self._messages)


def _interrupted(call: ToolUse, text: str) -> ToolMessage:
    return ToolMessage(call.id, call.name, (TextPart(text),))


def decode_message(data: bytes) -> Message:
    """Raises StoreError if it is damaged."""
    return read_stored(data, decoder=_one)


def decode_messages(data: bytes) -> Iterator[Message]:
    """Raises StoreError if it is damaged."""
    yield from read_stored(data, decoder=_many)
