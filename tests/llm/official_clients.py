"""Our double of the model servers, read by the official clients of OpenAI, Anthropic, Google and Ollama: independent
implementations, so that a provider of ours and the double cannot be wrong in the same way."""

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from acp_agent.testing.fake_model import Answer, Call, FakeModel, Usage

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
READ: Seen = ("I look at it.", [("read", {"path": "a b.txt"})], (11, 7))
"""What each has to read of `SAID`."""


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
