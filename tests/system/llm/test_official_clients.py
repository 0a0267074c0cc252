"""What the official clients read of our double, all of them: `tests/llm/official_clients.py`."""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import pytest

from acp_agent.testing.fake_model import Answer, Failure, FakeModel
from tests.llm import official_clients as official

Ask = Callable[[FakeModel], Awaitable[official.Seen]]
each_api = pytest.mark.parametrize(
    "ask", [official.chat, official.responses, official.messages, official.gemini, official.ollama]
)


@each_api
async def test_an_answer_with_a_call_is_read_as_it_was_said(ask: Ask) -> None:
    async with FakeModel([official.SAID]) as model:
        assert await ask(model) == official.READ


@each_api
@pytest.mark.parametrize(("status", "kind"), [
    (401, "AuthenticationError"), (429, "RateLimitError"), (500, "InternalServerError"), (400, "BadRequestError"),
])  # fmt: skip
async def test_an_error_is_the_one_that_its_status_says(ask: Ask, status: int, kind: str) -> None:
    body: Any = {"error": {"type": "some_error", "message": "in these words"}}
    error: type[Exception] = getattr(import_module("anthropic" if ask is official.messages else "openai"), kind)
    if ask is official.ollama:  # It has one for all.
        error, body = import_module("ollama").ResponseError, {"error": "in these words"}
    if ask is official.gemini:
        error = getattr(import_module("google.genai.errors"), "ServerError" if status == 500 else "ClientError")
        body = {"error": {"code": status, "message": "in these words", "status": "SOME_STATUS"}}
    async with FakeModel([Failure(status, body)]) as model:
        with pytest.raises(error, match="in these words"):
            await ask(model)


async def test_what_it_thinks_is_read_by_the_clients_that_show_it() -> None:
    thinking = Answer(thought=("Let me", " see."), text="Done.")
    async with FakeModel([thinking] * 3) as model:
        said = [{"role": "user", "content": official.ASKED}]
        async with official.of_ollama(model) as client:
            parts = await client.chat("fake-model", said, stream=True, think=True)
            assert "".join([part.message.thinking or "" async for part in parts]) == "Let me see."
        asked: Any = {"model": "fake-model", "max_tokens": 100, "messages": said}
        async with official.of_anthropic(model) as client, client.messages.stream(**asked) as stream:
            whole = await stream.get_final_message()
        assert [block.type for block in whole.content] == ["thinking", "text"]
        async with official.of_google(model) as client:
            answer = await client.models.generate_content(model="fake-model", contents=official.ASKED)
            parts = [(part.text, bool(part.thought)) for part in answer.candidates[0].content.parts]
        assert parts == [("Let me", True), (" see.", True), ("Done.", False)]


async def test_the_models_are_listed() -> None:
    async with FakeModel(models=("one", "two")) as model, official.of_openai(model) as client:
        assert [each.id async for each in await client.models.list()] == ["one", "two"]
