"""When outputs are compressed for a goal, and who judges relevance."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acp_agent.config.model import CompressionConfig
from acp_agent.errors import ProviderError
from acp_agent.loop.calls.goal_compression import GoalCompression
from acp_agent.loop.memory.session_goals import Goals
from acp_agent.loop.toolbox.relevance import Relevance
from acp_agent.store.base import SessionRecord
from acp_agent.store.stores import sqlite_store

TEXT = "\n".join(f"line {number} of something" for number in range(400))


@pytest.fixture
def goals(tmp_path: Path) -> Iterator[Goals]:
    store = sqlite_store(tmp_path / "sessions.db")
    store.create(SessionRecord("s", "/p"))
    client = SimpleNamespace(plan=SimpleNamespace(plans=True))
    yield Goals(cast(Any, SimpleNamespace(session_id="s", client=client, emit=lambda update: None)), store.goals)
    store.close()


class Embeds:
    """Vectors: texts that hold the word `near` are near the goal."""

    def __init__(self, *, fails: bool = False) -> None:
        self.asked: list[Sequence[str]] = []
        self._fails = fails

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(texts)
        if self._fails:
            raise ProviderError("server", "no embeddings today")
        return [[1.0, 0.0], *([0.9, 0.1] if "near" in text else [0.0, 1.0] for text in texts[1:])]


def compression(goals: Goals, relevance: Relevance) -> GoalCompression:
    estimator = SimpleNamespace(tokens=lambda model, chars: chars // 4)
    memory: Any = SimpleNamespace(goals=goals, room=SimpleNamespace(estimator=estimator))
    return GoalCompression(CompressionConfig(), memory, relevance, cast(Any, SimpleNamespace(model="m")))


async def test_without_a_goal_nothing_is_compressed(goals: Goals) -> None:
    compress = compression(goals, Relevance())
    assert await compress.shortened("bash", TEXT, exit_code=0) is None
    await goals.begin("The aim")
    assert await compress.shortened("bash", TEXT, exit_code=0) is not None
    await goals.pause(True)
    assert await compress.shortened("bash", TEXT, exit_code=0) is None
    await goals.pause(False)
    await goals.end(reached=True)
    assert await compress.shortened("bash", TEXT, exit_code=0) is None


async def test_an_embeddings_endpoint_judges_what_is_relevant_once(goals: Goals) -> None:
    embeds, relevance = Embeds(), Relevance()
    relevance.use(embeds)
    await goals.begin("The aim")
    compress = compression(goals, relevance)
    text = TEXT.replace("line 200 of something", "line 200 near something")
    short = await compress.shortened("read", text, exit_code=0)
    assert short is not None
    assert "line 200 near something" in short.text and "line 300 of" not in short.text
    assert embeds.asked[0][0] == "The aim"
    assert await compress.shortened("read", text, exit_code=0) is short, "remembered"
    assert len(embeds.asked) == 1


async def test_no_vectors_are_asked_for_where_the_strategy_reads_none(goals: Goals) -> None:
    embeds, relevance = Embeds(), Relevance()
    relevance.use(embeds)
    await goals.begin("Find 200")
    short = await compression(goals, relevance).shortened("bash", TEXT, exit_code=0)
    assert short is not None and "line 200 of something" in short.text
    assert embeds.asked == []


async def test_where_embeddings_fail_words_are_compared(goals: Goals) -> None:
    relevance = Relevance()
    relevance.use(Embeds(fails=True))
    await goals.begin("The aim is line 200")
    short = await compression(goals, relevance).shortened("grep", TEXT, exit_code=0)
    assert short is not None and short.words.startswith("[grep] compressed for the goal: 400 lines -> ")
