"""Turns with a server that speaks Anthropic's Messages API."""

import base64
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from acp_agent.schema.acp import BlobResourceContents, EmbeddedResource, TextContent
from acp_agent.testing.fake_messages import Messages, PromptCache, blocks_of

from .kit import Answer, Call, Rig, agent_rig, bash, rig, went

CLAUDE = '[providers.default]\napi = "messages"\nmodels = ["claude-opus-5"]\n'
MODEL = {"OPENAI_MODEL": "claude-opus-5"}


def plain(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in block.items() if key != "cache_control"} for block in blocks_of(body)]


async def long_turn(r: Rig, cache: PromptCache, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    counted: list[tuple[int, int, int]] = []
    count = cache.count

    def noted(body: dict[str, Any]) -> tuple[int, int, int]:
        counted.append(count(body))
        return counted[-1]

    monkeypatch.setattr(cache, "count", noted)
    r.model.speaking(Messages).cache = cache
    assert (await r.editor.prompt("Count.")).stop_reason == "end_turn"
    return counted


def looks(rounds: int, parallel: int) -> Callable[[dict[str, Any]], Answer]:
    """A script that lists folders which do not exist, another one each time."""

    def script(body: dict[str, Any]) -> Answer:
        done = sum(message["role"] == "assistant" for message in body["messages"])
        names = [f"id_{done}_{number}" for number in range(parallel)]
        made = tuple(Call("list_directory", {"path": name}, id=name) for name in names)
        return Answer(text="Done.") if done == rounds else Answer(thought="hm", tool_calls=made)

    return script


@pytest.mark.parametrize(("rounds", "parallel"), [
    (30, 1), (3, 12),
], ids=["one call a round", "more blocks a round than the cache looks back"])  # fmt: skip
async def test_each_token_of_a_long_turn_is_paid_for_once(tmp_path, monkeypatch, rounds, parallel):

    async with rig(tmp_path, looks(rounds, parallel), config=CLAUDE, environ=MODEL, mode="auto") as r:
        counted = await long_turn(r, PromptCache(), monkeypatch)
        bodies = [request.body for request in r.model.requests]
        assert len(bodies) == rounds + 1
        for before, after in pairwise(bodies):
            assert plain(after)[: len(plain(before))] == plain(before), "the beginning stays as it was"
        full, read, written = (sum(column) for column in zip(*counted, strict=True))
        assert full == 0
        last = sum(counted[-1])
        assert written == last, "each token is written once, and read in each later round"
        assert read == sum(sum(each) for each in counted[:-1])


async def test_without_breakpoints_all_is_paid_for_each_time(tmp_path, monkeypatch):
    """The control of the test above."""
    monkeypatch.setattr("acp_agent.llm.messages_request._BREAKPOINT", b"}")
    async with rig(tmp_path, looks(3, 1), config=CLAUDE, environ=MODEL, mode="auto") as r:
        counted = await long_turn(r, PromptCache(), monkeypatch)
        assert [(read, written) for _, read, written in counted] == [(0, 0)] * 4
        assert all(full > 0 for full, _, _ in counted)


async def test_what_the_cache_did_is_told_with_the_answer(tmp_path):
    async with rig(tmp_path, ["one", "two"], config=CLAUDE, environ=MODEL) as r:
        r.model.speaking(Messages).cache = PromptCache()
        first, second = [(await r.editor.prompt(words)).meta["usage"] for words in ("Hello.", "And?")]
        assert first["cachedWriteTokens"] == first["inputTokens"] and first["cachedReadTokens"] == 0
        assert second["cachedReadTokens"] == first["inputTokens"]
        assert second["cachedWriteTokens"] == second["inputTokens"] - second["cachedReadTokens"]


async def test_a_pdf_of_the_prompt_reaches_the_model(tmp_path):
    blob = base64.b64encode(b"%PDF-1.7\0").decode()
    resource = BlobResourceContents(uri="file:///a/plan.pdf", mime_type="application/pdf", blob=blob)
    prompt = [TextContent(text="read this"), EmbeddedResource(resource=resource)]
    async with went(tmp_path, ["ok"], config=CLAUDE, environ=MODEL, prompt=prompt) as r:
        document = r.messages(1)[-1]["content"][-1]
        assert (document["type"], document["source"]["data"], document["title"]) == ("document", blob, "plan.pdf")
    (tmp_path / "chat").mkdir()
    async with went(tmp_path / "chat", ["ok"], prompt=prompt) as r:
        assert "A PDF was left out" in str(r.messages(1)) and blob not in str(r.messages(1))


async def test_a_signed_thought_with_a_credential_is_neither_kept_nor_sent_back(tmp_path):
    key = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
    first = Answer(thought=f"The key is {key} here.", tool_calls=(bash("true"),))
    kept = Answer(thought="Nothing to hide.", tool_calls=(bash("true"),))
    async with went(tmp_path, [first, kept, "done"], config=CLAUDE, environ=MODEL, mode="auto") as r:
        assert key not in json.dumps(r.request(3))
        assert [block["type"] for message in r.messages(3) for block in message["content"]].count("thinking") == 1


async def test_a_stored_session_goes_on_with_its_thoughts(tmp_path):
    first = Answer(thought="hm", encrypted="zzz", tool_calls=(bash("true"),))
    async with went(tmp_path, [first, "done"], config=CLAUDE, environ=MODEL, mode="auto") as r:
        session = r.editor.session_id
    async with agent_rig(tmp_path, ["again"], config=CLAUDE, environ=MODEL) as r:
        await r.editor.load_session(session, r.project)
        await r.editor.prompt("and now?")
        types = [block["type"] for block in r.messages(1)[1]["content"]]
        assert types == ["thinking", "redacted_thinking", "tool_use"]
