"""Redacts all messages to the client, the model and the store.

What is executed stays unchanged: a command line, a file's new text, a tool's arguments. Base64 of images and audio is
not searched, nor what a provider encrypted; reasoning that it signed must not be changed, so it is left out whole.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from acp_agent.credentials.redactor import Redactor
from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm.base import AssistantMessage, Message, TextPart, ToolMessage, ToolUse, UserMessage
from acp_agent.protocol.codec import encode
from acp_agent.schema.acp import AudioContent, BlobResourceContents, ImageContent

T = TypeVar("T")

BINARY = {ImageContent: "data", AudioContent: "data", BlobResourceContents: "blob"}
"""Base64, which is not searched."""


class Redaction:
    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        self.text = redactor.redact
        self.stream = redactor.stream

    def struct(self, value: T) -> T:
        """Redacts a protocol message; returns the same object if there was nothing to redact."""
        if not self._holds_any(encode(value).decode("utf-8", "replace")):
            return value
        cleaned: T = self._walk(value)
        return cleaned

    def _holds_any(self, json_text: str) -> bool:
        return self.redactor.redact(json_text) != json_text

    def _walk(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case msgspec.Struct():
                skip = BINARY.get(type(value), "")
                changed = {
                    name: new
                    for name in value.__struct_fields__
                    if name != skip and (new := self._walk(old := getattr(value, name))) is not old
                }
                return msgspec.structs.replace(value, **changed) if changed else value
            case list():
                new_items = [self._walk(item) for item in value]
                return value if all(a is b for a, b in zip(new_items, value, strict=True)) else new_items
            case dict() | tuple():  # JSON: whatever a tool was given, or gave.
                return self.redactor.value(value)
        return value

    def message(self, message: Message) -> Message:
        """Cleans a message to or from the model."""
        match message:
            case UserMessage(content):
                return UserMessage(tuple(self._part(part) for part in content), message.own)
            case ToolMessage(call_id, name, content):
                return ToolMessage(self.text(call_id), self.text(name), tuple(self._part(part) for part in content))
            case AssistantMessage():
                return msgspec.structs.replace(
                    message,
                    text=self.text(message.text),
                    thought=self.text(message.thought),
                    tool_calls=tuple(self._use(call) for call in message.tool_calls),
                    opaque=tuple(item for item in message.opaque if not self._told_in(item)),
                )

    def _told_in(self, value: object) -> bool:
        """Whether readable text has something to redact: text with spaces, unlike signatures and encrypted data."""
        match value:
            case str():
                return " " in value and self.text(value) != value
            case dict():
                return any(self._told_in(each) for each in value.values())
            case list() | tuple():
                return any(self._told_in(each) for each in value)
        return False

    def _part(self, part: Any) -> Any:
        return TextPart(self.text(part.text)) if isinstance(part, TextPart) else part

    def _use(self, call: ToolUse) -> ToolUse:
        """The arguments of a call stay the JSON they are."""
        if (plain := (self.text(call.id), self.text(call.name))) != (call.id, call.name):
            call = ToolUse(*plain, call.arguments)
        if not self._holds_any(call.arguments):
            return call
        try:
            before = read_loose_json(call.arguments)
        except ValueError:
            return ToolUse(call.id, call.name, self.text(call.arguments))
        after = self.redactor.value(before)
        return call if after == before else ToolUse(call.id, call.name, json.dumps(after, ensure_ascii=False))
