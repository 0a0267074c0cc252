"""The lines of a recording: requests and events as JSON data, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from acp_agent.errors import ProviderError
from acp_agent.llm import base as llm
from acp_agent.llm.recordings.cleaning import Cleaner

VERSION = 1
Form = dict[str, Any]
"""A request: `model`, `settings`, `system`, `tools`, `messages`. `system` and `tools` are None if not known."""


def line_of(data: Form) -> bytes:
    """Lone surrogates become `?`."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def settings_form(settings: llm.ModelSettings) -> Form:
    """What a request has besides model and system; not `cache_key` and `unsent`, which do not change the answer."""
    said = {"thought_level": settings.thought_level, "max_output_tokens": settings.max_output_tokens}
    return {name: value for name, value in said.items() if value is not None}


def message_form(message: llm.Message) -> Form:
    return {name: value for name, value in msgspec.to_builtins(message).items() if value or name in ("role", "content")}


def tools_form(tools: Iterable[llm.ToolDefinition]) -> list[Form]:
    return [msgspec.to_builtins(tool) for tool in tools]


def request_form(
    messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings, cleaner: Cleaner
) -> Form:
    return {
        "model": settings.model,
        "settings": settings_form(settings),
        "system": cleaner.clean(settings.before),
        "tools": cleaner.clean(tools_form(tools)),
        "messages": cleaner.clean([message_form(message) for message in messages]),
    }


def event_forms(events: Sequence[tuple[float, llm.ModelEvent]], cleaner: Cleaner) -> list[Form]:
    """The deltas are cleaned as one text: what is in none of them may be in all of them together."""
    texts: dict[Any, Iterator[str]] = {
        kind: iter(cleaner.pieces([event.text for _, event in events if isinstance(event, kind)] or [""]))
        for kind in (llm.TextDelta, llm.ThoughtDelta)
    }
    return [{"t": round(at, 3), **_event_form(event, texts, cleaner)} for at, event in events]


def _event_form(event: llm.ModelEvent, texts: dict[Any, Iterator[str]], cleaner: Cleaner) -> Form:
    kind = next(name for name, kind in KINDS.items() if isinstance(event, kind))
    pieces = texts.get(type(event))
    return {kind: cleaner.clean(msgspec.to_builtins(event)) if pieces is None else next(pieces)}


KINDS: dict[str, Any] = {
    "text": llm.TextDelta,
    "thought": llm.ThoughtDelta,
    "call": llm.ToolUse,
    "usage": llm.UsageReport,
    "notice": llm.Notice,
    "finished": llm.Finished,
}


def event_of(form: Form) -> llm.ModelEvent:
    """Raises msgspec.ValidationError, KeyError."""
    kind = next((name for name in form if name in KINDS), "event")
    value = form[kind]
    event: llm.ModelEvent = msgspec.convert({"text": value} if isinstance(value, str) else value, KINDS[kind])
    return event


def error_form(error: ProviderError, cleaner: Cleaner) -> Form:
    more = {"status": error.status, "retry_after": error.retry_after}
    words = {"kind": error.kind, "message": cleaner.clean(str(error))}
    return words | {name: value for name, value in more.items() if value is not None}
