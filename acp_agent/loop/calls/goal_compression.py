"""Compression of outputs while a goal is active: when, and how relevance is judged. `output.compress` is the pure
part."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import anyio.to_thread
from msgspec import Struct

from acp_agent.config.model import CompressionConfig
from acp_agent.lazy import load
from acp_agent.loop.choices import Choices
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.toolbox.relevance import Relevance

WANTED = "acp_agent.output.compress:wants_compression"
SECTIONS = "acp_agent.output.compress:sections_of"
STRATEGY_OF = "acp_agent.output.compress:strategy_of"
COMPRESSED = "acp_agent.output.compress:compressed"
"""Loaded when a goal is active for the first time."""

REMEMBERED = 200
"""Outputs whose compression is remembered."""

LONGEST_SECTION = 2_000
"""Characters of a section that are judged."""


IN_A_THREAD = 20_000
"""Characters from which a text is processed outside the event loop's thread."""


class Shortened(Struct, frozen=True):
    """An output after its compression."""

    text: str
    words: str
    """A line saying what was done, for the user and the model."""


class GoalCompression:
    """Of one session."""

    def __init__(self, config: CompressionConfig, memory: Memory, relevance: Relevance, choices: Choices) -> None:
        self._config = config
        self._memory = memory
        self._relevance = relevance
        self._choices = choices
        self._memo: OrderedDict[tuple[str, str, str], Shortened | None] = OrderedDict()

    async def shortened(self, tool: str, text: str, *, exit_code: int | None) -> Shortened | None:
        """`None`: the output stays as it is."""
        goal = self._memory.goals.active
        if goal is None:
            return None
        tokens = self._memory.room.estimator.tokens(self._choices.model, len(text))
        if not load(WANTED)(tool, tokens, self._config, exit_code=exit_code):
            return None
        key = (goal.id, tool, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())
        if key not in self._memo:
            self._memo[key] = await self._compressed(tool, text, goal.text)
            if len(self._memo) > REMEMBERED:
                self._memo.popitem(last=False)
        self._memo.move_to_end(key)
        return self._memo[key]

    async def _compressed(self, tool: str, text: str, goal: str) -> Shortened | None:
        sections, compressed = load(SECTIONS)(text), load(COMPRESSED)
        scores: list[float] | None = [] if self._config.goal_aware else None
        if self._config.goal_aware and load(STRATEGY_OF)(tool, self._config) == "moderate":  # Others read no scores.
            texts = [section[:LONGEST_SECTION] for section in sections.texts]
            scores = await self._relevance.scores(goal, texts)
        if len(text) > IN_A_THREAD:
            short = await anyio.to_thread.run_sync(
                compressed, tool, sections, goal, scores, self._config, abandon_on_cancel=True
            )
        else:
            short = compressed(tool, sections, goal, scores, self._config)
        if short is None:
            return None
        before, after = len(text.splitlines()), len(short.splitlines())
        return Shortened(short, f"[{tool}] compressed for the goal: {before} lines -> {after} lines")
