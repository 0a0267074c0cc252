"""What users of the fake rely on; the providers' tests show that its events are realistic."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2

from acp_agent.llm.base import TextDelta
from acp_agent.testing.fake_model import Answer, Call, Failure, FakeModel, Reply, Usage

from .kit import collect, connected, failure, make, texts


async def test_a_used_up_script_answers_500_and_a_last_answer_may_repeat() -> None:
    async with connected("chat", ["only"], max_retries=0) as (provider, _):
        await collect(provider)
        assert "the script of FakeModel is used up" in str(await failure(provider))
    async with connected("chat", ["one", Answer(text="more", repeat=True)]) as (provider, _):
        assert [texts(await collect(provider)) for _ in range(4)] == [["one"], ["more"], ["more"], ["more"]]


async def test_requests_are_recorded_and_other_paths_not_found() -> None:
    async with connected("chat", ["ok"]) as (provider, model):
        await collect(provider)
        request = await model.wait_for_request(1)
        assert (request.method, request.path) == ("POST", "/v1/chat/completions")
        assert request.headers["content-type"] == "application/json"
        assert request.body["messages"] == [{"role": "user", "content": "hi"}]
    async with FakeModel() as model, httpx2.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{model.base_url}/nothing")).status_code == 404


async def test_it_serves_as_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps([{"deltas": 3, "delta_text": "x", "interval_ms": 1, "repeat": True}]), encoding="utf-8"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "acp_agent.testing.fake_model", str(script), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        base_url = (await process.stdout.readline()).decode().strip()
        for api in ("chat", "messages", "responses"):
            provider = make(api, base_url)
            assert [event for event in await collect(provider) if isinstance(event, TextDelta)] == [TextDelta("x")] * 3
            await provider.aclose()
    finally:
        process.kill()
        await process.wait()


async def gemini(model: FakeModel, method: str, **query: str) -> Any:
    """The JSON of each event, or of the whole answer."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        url = f"{model.base_url.removesuffix('/v1')}/v1beta/models/gemini-9:{method}"
        answered = await client.post(url, json={"contents": []}, params=query)
    if not query or answered.status_code != 200:
        return answered.json()
    return [json.loads(event.removeprefix("data: ")) for event in answered.text.strip().split("\r\n\r\n")]


async def test_geminis_api_is_served() -> None:
    call = Call("run", {"command": "ls"})
    said = Answer(thought="Hm.", text=("Hel", "lo"), tool_calls=(call,), usage=Usage(10, 5, 4, 2))
    script: list[Reply | str] = [said, said, Answer(text="x", finish="length"), Failure(429, {"error": {"code": 429}})]
    async with FakeModel(script) as model:
        events = await gemini(model, "streamGenerateContent", alt="sse")
        function = {"id": "call_1_0", "name": "run", "args": {"command": "ls"}}
        assert [event["candidates"][0]["content"]["parts"] for event in events] == [
            [{"text": "Hm.", "thought": True}], [{"text": "Hel"}], [{"text": "lo"}],
            [{"functionCall": function, "thoughtSignature": "c2ln"}], [],
        ]  # fmt: skip
        assert events[-1]["candidates"][0]["finishReason"] == "STOP"
        usage = {"promptTokenCount": 10, "cachedContentTokenCount": 4, "candidatesTokenCount": 3}
        assert events[-1]["usageMetadata"] == {**usage, "thoughtsTokenCount": 2, "totalTokenCount": 15}
        whole = await gemini(model, "generateContent")
        assert len(whole["candidates"][0]["content"]["parts"]) == 4
        assert whole["usageMetadata"] == events[-1]["usageMetadata"]
        events = await gemini(model, "streamGenerateContent", alt="sse")
        assert events[-1]["candidates"][0]["finishReason"] == "MAX_TOKENS"
        assert await gemini(model, "streamGenerateContent", alt="sse") == {"error": {"code": 429}}
        assert (await gemini(model, "countTokens"))["totalTokens"] > 0 and len(model.requests) == 4
