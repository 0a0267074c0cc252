"""Shared by the tests of providers: a provider talking to a scripted model over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec

from acp_agent.errors import ProviderError
from acp_agent.lazy import load
from acp_agent.llm.base import (
    PROVIDERS,
    Message,
    ModelEvent,
    ModelInfo,
    ModelSettings,
    Provider,
    ProviderOptions,
    TextDelta,
    TextPart,
    ThoughtDelta,
    ToolDefinition,
    ToolUse,
    UserMessage,
)
from acp_agent.llm.scripted import ScriptedProvider
from acp_agent.testing.fake_model import Answer, FakeModel, Script

Api = Literal["bedrock", "chat", "messages", "ollama", "responses"]

USER = UserMessage((TextPart("hi"),))
SETTINGS = ModelSettings(model="fake-model")
TOOL = ToolDefinition("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
BOUND = 20.0
"""Seconds after which a test that waits has failed."""


def make(api: Api, base_url: str, **changes: Any) -> Provider:
    """A provider whose retries take next to no time."""
    settings: dict[str, Any] = {"name": "fake", "base_url": base_url, "api_key": "sk-test", "retry_base_delay": 0.001}
    options = ProviderOptions(**(settings | changes))
    return load(PROVIDERS[api])(options)


@asynccontextmanager
async def connected(api: Api, script: Script, **changes: Any) -> AsyncIterator[tuple[Provider, FakeModel]]:
    async with FakeModel(script) as model:
        provider = make(api, model.base_url, **changes)
        try:
            with anyio.fail_after(BOUND):
                yield provider, model
        finally:
            await provider.aclose()


def scripted(path: Path, answers: Sequence[Answer]) -> ScriptedProvider:
    """The same answers, from a file."""
    script = [
        {
            "text": answer.text,
            "thought": answer.thought,
            "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls],
            "usage": answer.usage,
            **({} if answer.finish == "auto" else {"finish": answer.finish}),
        }
        for answer in answers
    ]
    path.write_bytes(msgspec.json.encode(script))
    return ScriptedProvider(ProviderOptions(name="script", script=str(path)))


async def collect(
    provider: Provider,
    messages: Sequence[Message] = (USER,),
    tools: Sequence[ToolDefinition] = (),
    settings: ModelSettings = SETTINGS,
) -> list[ModelEvent]:
    return [event async for event in provider.stream(messages, tools, settings)]


async def listed(api: Api, models: Any, **changes: Any) -> list[ModelInfo]:
    """What a provider says of the models that a server lists."""
    async with FakeModel(models=models) as model:
        provider = make(api, model.base_url, **changes)
        try:
            with anyio.fail_after(BOUND):
                return await provider.models()
        finally:
            await provider.aclose()


async def failure(provider: Provider, seen: list[ModelEvent] | None = None) -> ProviderError:
    """The error that a stream ends in; the events before it go to `seen`."""
    try:
        async for event in provider.stream((USER,), (), SETTINGS):
            if seen is not None:
                seen.append(event)
    except ProviderError as error:
        return error
    raise AssertionError("the stream ended without an error")


def texts(events: Sequence[ModelEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


def thoughts(events: Sequence[ModelEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, ThoughtDelta)]


def calls(events: Sequence[ModelEvent]) -> list[ToolUse]:
    return [event for event in events if isinstance(event, ToolUse)]


# --- what is on the wire -----------------------------------------------------------------------------------------

TOOL_SENT = {
    "type": "function",
    "function": {"name": "read", "description": "Reads a file.", "parameters": TOOL.parameters},
}
"""`TOOL` in the APIs that are like OpenAI's."""


def turn(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def text_block(text: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": text}


async def check_failure(api: Api, reply: Any, kind: str, words: str) -> list[ModelEvent]:
    """This reply is an error of this kind with these words. The events that came before it."""
    seen: list[ModelEvent] = []
    async with connected(api, [reply], max_retries=0) as (provider, _):
        error = await failure(provider, seen)
    assert error.kind == kind, error
    assert words in str(error)
    return seen
