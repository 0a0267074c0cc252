"""Shared by the tests of providers: a provider talking to a scripted model over a real socket."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec

from acp_agent.config.model import ProviderOptions
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.errors import ProviderError
from acp_agent.lazy import load
from acp_agent.llm import base as llm
from acp_agent.llm.scripted import ScriptedProvider
from acp_agent.testing.fake_answers import Wire
from acp_agent.testing.fake_model import Answer, FakeModel, Script

Api = str
WIRES: dict[Api, Wire] = {api: load(row.fake)() for api, row in WIRE_APIS.items() if row.fake}
"""The APIs that `FakeModel` speaks, and what their contract leaves out."""

USER = llm.UserMessage((llm.TextPart("hi"),))
SETTINGS = llm.ModelSettings(model="fake-model")
TOOL = llm.ToolDefinition("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
BOUND = 60.0
"""Seconds after which a test that waits has failed."""


def make(api: Api, base_url: str, **changes: Any) -> llm.Provider:
    """A provider whose retries take next to no time."""
    settings: dict[str, Any] = {"name": "fake", "base_url": base_url, "api_key": "sk-test", "retry_base_delay": 0.001}
    return WIRE_APIS[api].load()(ProviderOptions(**(settings | changes)))


@asynccontextmanager
async def connected(api: Api, script: Script, **changes: Any) -> AsyncIterator[tuple[llm.Provider, FakeModel]]:
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
            "text": answer.text, "thought": answer.thought,
            "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in answer.tool_calls],
            "usage": answer.usage, **({} if answer.finish == "auto" else {"finish": answer.finish}),
        }
        for answer in answers
    ]  # fmt: skip
    path.write_bytes(msgspec.json.encode(script))
    return ScriptedProvider(ProviderOptions(name="script", script=str(path)))


async def collect(
    provider: llm.Provider, messages: Sequence[llm.Message] = (USER,), tools: Sequence[llm.ToolDefinition] = (),
    settings: llm.ModelSettings = SETTINGS,
) -> list[llm.ModelEvent]:  # fmt: skip
    return [event async for event in provider.stream(messages, tools, settings)]


async def listed(api: Api, models: Any, **changes: Any) -> list[llm.ModelInfo]:
    """What a provider says of the models that a server lists."""
    async with FakeModel(models=models) as model:
        provider = make(api, model.base_url, **changes)
        try:
            with anyio.fail_after(BOUND):
                return await provider.models()
        finally:
            await provider.aclose()


async def failure(provider: llm.Provider, seen: list[llm.ModelEvent] | None = None) -> ProviderError:
    """The error that a stream ends in; the events before it go to `seen`."""
    try:
        async for event in provider.stream((USER,), (), SETTINGS):
            if seen is not None:
                seen.append(event)
    except ProviderError as error:
        return error
    raise AssertionError("the stream ended without an error")


def texts(events: Sequence[llm.ModelEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, llm.TextDelta)]


def thoughts(events: Sequence[llm.ModelEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, llm.ThoughtDelta)]


def calls(events: Sequence[llm.ModelEvent]) -> list[llm.ToolUse]:
    return [event for event in events if isinstance(event, llm.ToolUse)]


TOOL_SENT: dict[str, Any] = {
    "type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": TOOL.parameters},
}  # fmt: skip
"""`TOOL` in the APIs that are like OpenAI's."""


def turn(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def text_block(text: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": text}


async def check_failure(api: Api, reply: Any, kind: str, words: str) -> list[llm.ModelEvent]:
    """This reply is an error of this kind with these words. The events that came before it."""
    seen: list[llm.ModelEvent] = []
    async with connected(api, [reply], max_retries=0) as (provider, _):
        error = await failure(provider, seen)
    assert error.kind == kind, error
    assert words in str(error)
    return seen
