"""Our double of the model servers, read by the official clients of OpenAI, Anthropic, Google and Ollama: independent
implementations, so that a provider of ours and the double cannot be wrong in the same way."""

import json
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel, Usage

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
ASKED = "Read a file."
SAID = Answer(text=("I look", " at it."), tool_calls=(Call("read", {"path": "a b.txt"}),), usage=Usage(11, 7))


def of_openai(model: FakeModel) -> "AsyncOpenAI":
    """Imported here, as the other: three seconds for each process that collects the tests."""
    made: AsyncOpenAI = import_module("openai").AsyncOpenAI(base_url=model.base_url, api_key="key", max_retries=0)
    return made


def of_anthropic(model: FakeModel) -> "AsyncAnthropic":
    url = model.base_url.removesuffix("/v1")
    made: AsyncAnthropic = import_module("anthropic").AsyncAnthropic(base_url=url, api_key="key", max_retries=0)
    return made


def of_ollama(model: FakeModel) -> Any:
    return import_module("ollama").AsyncClient(host=model.base_url.removesuffix("/v1"))


def of_google(model: FakeModel) -> Any:
    genai = import_module("google.genai")
    return genai.Client(api_key="key", http_options={"base_url": model.base_url.removesuffix("/v1")}).aio


Seen = tuple[str, list[tuple[str, Any]], tuple[int, int]]
"""The text, the calls with their arguments, and the tokens of input and output."""


async def chat(model: FakeModel) -> Seen:
    tool: Any = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA}}
    async with (
        of_openai(model) as client,
        client.chat.completions.stream(
            model="fake-model", messages=[{"role": "user", "content": ASKED}], tools=[tool],
            stream_options={"include_usage": True},
        ) as stream,
    ):  # fmt: skip
        whole = await stream.get_final_completion()
    (choice,), usage = whole.choices, whole.usage
    assert choice.finish_reason == "tool_calls" and usage is not None
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or ()]
    return choice.message.content or "", calls, (usage.prompt_tokens, usage.completion_tokens)


async def responses(model: FakeModel) -> Seen:
    tool: Any = {"type": "function", "name": "read", "description": "Reads.", "parameters": SCHEMA, "strict": False}
    async with (
        of_openai(model) as client,
        client.responses.stream(model="fake-model", input=ASKED, tools=[tool], store=False) as stream,
    ):
        whole = await stream.get_final_response()
    assert whole.status == "completed" and whole.usage is not None
    calls = [(item.name, json.loads(item.arguments)) for item in whole.output if item.type == "function_call"]
    return whole.output_text, calls, (whole.usage.input_tokens, whole.usage.output_tokens)


async def messages(model: FakeModel) -> Seen:
    tool: Any = {"name": "read", "description": "Reads.", "input_schema": SCHEMA}
    said: Any = [{"role": "user", "content": ASKED}]
    async with (
        of_anthropic(model) as client,
        client.messages.stream(model="fake-model", max_tokens=100, messages=said, tools=[tool]) as stream,
    ):
        whole = await stream.get_final_message()
    assert whole.stop_reason == "tool_use"
    text = "".join(block.text for block in whole.content if block.type == "text")
    calls = [(block.name, block.input) for block in whole.content if block.type == "tool_use"]
    return text, calls, (whole.usage.input_tokens, whole.usage.output_tokens)


async def ollama(model: FakeModel) -> Seen:
    tool: Any = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA}}
    text, calls, usage, ended = "", [], (0, 0), False
    said = [{"role": "user", "content": ASKED}]
    async with of_ollama(model) as client:
        async for part in await client.chat(model="fake-model", messages=said, tools=[tool], stream=True):
            text += part.message.content or ""
            calls += [(each.function.name, dict(each.function.arguments)) for each in part.message.tool_calls or ()]
            if part.done:
                ended, usage = True, (part.prompt_eval_count or 0, part.eval_count or 0)
    assert ended
    return text, calls, usage


async def gemini(model: FakeModel) -> Seen:
    tool = {"function_declarations": [{"name": "read", "description": "Reads.", "parameters": SCHEMA}]}
    text, calls, usage, ended = "", [], (0, 0), None
    async with of_google(model) as client:
        asked = {"model": "fake-model", "contents": ASKED, "config": {"tools": [tool]}}
        async for part in await client.models.generate_content_stream(**asked):
            (one,) = part.candidates
            ended = one.finish_reason or ended
            text += "".join(each.text for each in one.content.parts if each.text and not each.thought)
            calls += [(each.name, dict(each.args)) for each in part.function_calls or ()]
            if (counted := part.usage_metadata) is not None:
                usage = counted.prompt_token_count, counted.candidates_token_count
    assert ended is not None and ended.name == "STOP"
    return text, calls, usage


Ask = Callable[[FakeModel], Awaitable[Seen]]
each_api = pytest.mark.parametrize("ask", [chat, responses, messages, gemini, ollama])


@each_api
async def test_an_answer_with_a_call_is_read_as_it_was_said(ask: Ask) -> None:
    async with FakeModel([SAID]) as model:
        assert await ask(model) == ("I look at it.", [("read", {"path": "a b.txt"})], (11, 7))


@each_api
@pytest.mark.parametrize(("status", "kind"), [
    (401, "AuthenticationError"), (429, "RateLimitError"), (500, "InternalServerError"), (400, "BadRequestError"),
])  # fmt: skip
async def test_an_error_is_the_one_that_its_status_says(ask: Ask, status: int, kind: str) -> None:
    body: Any = {"error": {"type": "some_error", "message": "in these words"}}
    error: type[Exception] = getattr(import_module("anthropic" if ask is messages else "openai"), kind)
    if ask is ollama:  # It has one for all.
        error, body = import_module("ollama").ResponseError, {"error": "in these words"}
    if ask is gemini:
        error = getattr(import_module("google.genai.errors"), "ServerError" if status == 500 else "ClientError")
        body = {"error": {"code": status, "message": "in these words", "status": "SOME_STATUS"}}
    async with FakeModel([Failure(status, body)]) as model:
        with pytest.raises(error, match="in these words"):
            await ask(model)


async def test_what_it_thinks_is_read_by_the_clients_that_show_it() -> None:
    thinking = Answer(thought=("Let me", " see."), text="Done.")
    async with FakeModel([thinking] * 3) as model:
        said = [{"role": "user", "content": ASKED}]
        async with of_ollama(model) as client:
            parts = await client.chat("fake-model", said, stream=True, think=True)
            assert "".join([part.message.thinking or "" async for part in parts]) == "Let me see."
        asked: Any = {"model": "fake-model", "max_tokens": 100, "messages": said}
        async with of_anthropic(model) as client, client.messages.stream(**asked) as stream:
            whole = await stream.get_final_message()
        assert [block.type for block in whole.content] == ["thinking", "text"]
        async with of_google(model) as client:
            answer = await client.models.generate_content(model="fake-model", contents=ASKED)
            parts = [(part.text, bool(part.thought)) for part in answer.candidates[0].content.parts]
        assert parts == [("Let me", True), (" see.", True), ("Done.", False)]


async def test_the_models_are_listed() -> None:
    async with FakeModel(models=("one", "two")) as model, of_openai(model) as client:
        assert [each.id async for each in await client.models.list()] == ["one", "two"]
