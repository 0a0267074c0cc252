"""Whether the next request fits the model's context, and what to do if not (`compaction`)."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from acp_agent.config.compaction_settings import CompactionConfig
from acp_agent.llm.base import (
    DEFAULT_CONTEXT_WINDOW,
    AssistantMessage,
    Message,
    ModelSettings,
    ToolDefinition,
    UserMessage,
)
from acp_agent.loop.memory.compaction import Compacted, Limits, Summarise, compact, floor_chars, size_of, window_of
from acp_agent.loop.memory.token_counts import TokenEstimator, definition_chars

if TYPE_CHECKING:
    from acp_agent.errors import ProviderError


log = logging.getLogger(__name__)

SUMMARY_PROMPTS = 4
"""A summary is asked for once in so many prompts: it is a request of its own. What is in the way of others meanwhile is
shortened."""

LONG_TURN = 8
"""Rounds of calls from which on a turn may have summaries of its own."""

GROWTH = 1.1
"""How much a history that could not be shortened must grow before it is tried again."""

CUT_WHEN_UNKNOWN = 0.7
"""Fraction of a rejected request's size that is assumed as the window if the server names no limit."""

STOPPED = (
    "The model's context is full to {percent:.0f} % (about {tokens} of {window} tokens; turns stop at {budget:.0f} %), "
    "so the turn was stopped here. `/compact` replaces the conversation with a summary, `/clear` forgets it."
)

TOO_SMALL = (
    "The model `{model}` can hold {window} tokens{capped}, but the instructions (about {system}), the tools "
    "(about {tools}) and the last prompt (about {prompt}) alone need about {tokens}. Choose a model with a larger "
    "context (`/model`), a shorter prompt, or fewer tools (`tools.disabled`; `/tools` lists them)."
)

CAPPED = " (the limit is `agent.context_budget_tokens`)"

STUCK = (
    "The request is too long for the model `{model}`{capped} (about {tokens} tokens), and nothing more can be removed. "
    "`/clear` lets the model forget the conversation; `/model` chooses one with a larger context."
)


class Asked(Struct, frozen=True):
    """The part of every request besides the messages."""

    model: str
    settings: ModelSettings
    tools: Sequence[ToolDefinition]
    window: int | None
    """Tokens, where they are known."""
    prompt: int = 0
    """The number of the prompt that is answered."""


class Measure(Struct, frozen=True):
    """The size of the next request, in tokens."""

    system: int
    tools: int
    messages: int
    window: int
    """Of the model, known or assumed."""

    @property
    def all(self) -> int:
        return self.system + self.tools + self.messages


class Desk(Protocol):
    """Whose messages they are."""

    def messages(self) -> Sequence[Message]: ...

    def begin(self) -> None:
        """Compaction is about to start."""
        ...

    def replace(self, done: Compacted, before: int, after: int) -> None:
        """`done.messages` replace the history, which had `before` tokens and now has `after`."""
        ...

    def gave_up(self, *, cancelled: bool = False) -> None:
        """Nothing was gained, or the user cancelled it."""
        ...


class Room(Struct):
    """Of one session (or sub-agent). `estimator` may be shared."""

    config: CompactionConfig
    budget: float
    """Fraction of the window that may be used."""
    cap: int = 0
    """Tokens that may be used at most, whatever the window; 0: no limit."""
    estimator: TokenEstimator = field(default_factory=TokenEstimator)
    windows: dict[str, int] = field(default_factory=dict)
    """By model: the window a server named when it rejected a request."""
    _trial: tuple[str, int] | None = None
    """A model and its presumed window: believed once a request within it was answered."""
    _asked_at: int | None = None
    """The prompt at which a summary was last asked for."""
    _stuck: int = 0
    """Characters of a history that could not be shortened."""
    _sized: tuple[list[Message], int] = field(default_factory=lambda: ([], 0))
    """Messages that were measured last, and their size: each is measured once, however often it is sent."""

    def below(self) -> Room:
        """The room of a sub-agent, which shares what it learns with this one."""
        return replace(self, _asked_at=None, _stuck=0, _sized=([], 0))

    def known(self, model: str, told: int | None) -> int | None:
        """The window of `model`: `told`, or less if its server has rejected a request."""
        known = [window for window in (told, self.windows.get(model)) if window]
        return min(known) if known else None

    def window(self, asked: Asked) -> int:
        tried = self._trial[1] if self._trial is not None and self._trial[0] == asked.model else None
        known = [window for window in (asked.window, self.windows.get(asked.model), tried) if window]
        return min(known, default=DEFAULT_CONTEXT_WINDOW)

    def knows(self, asked: Asked) -> bool:
        """Whether anybody said how large the window is."""
        return self.known(asked.model, asked.window) is not None

    def allowed(self, window: int) -> float:
        """The tokens of a window that may be used."""
        return min(window * self.budget, self.cap or math.inf)

    def size(self, messages: Sequence[Message]) -> int:
        """As `size_of`; of what was measured before, only what is new is looked at."""
        known, size = self._sized
        if list(messages[: len(known)]) != known:  # They are the same objects, so this compares addresses.
            known, size = [], 0
        self._sized = (list(messages), size + size_of(messages[len(known) :]))
        return self._sized[1]

    def measure(self, messages: Sequence[Message], asked: Asked) -> Measure:
        def tokens(chars: int) -> int:
            return self.estimator.tokens(asked.model, chars)

        return Measure(
            tokens(asked.settings.chars),
            tokens(definition_chars(asked.tools)),
            tokens(self.size(messages)),
            self.window(asked),
        )

    def counted(self, messages: Sequence[Message], asked: Asked, tokens: int) -> None:
        """The server answered the request with these messages and counted `tokens` (0: no count)."""
        if self._trial is not None:
            self.windows.update([self._trial])
            self._trial = None
        chars = asked.settings.chars + definition_chars(asked.tools) + self.size(messages)
        self.estimator.observe(asked.model, chars, tokens)

    def learn(self, error: ProviderError, messages: Sequence[Message], asked: Asked) -> None:
        """A server rejected the request as too long: its window is what it names, else less than what was sent."""
        sent = self.measure(messages, asked).all
        named = window_of(error)
        believed = named if named is not None and named <= sent * 1.5 else int(sent * CUT_WHEN_UNKNOWN)
        if sent < believed:  # It counts more tokens than were estimated.
            self.estimator.refused(asked.model, self.estimator.chars(asked.model, sent), believed)
        self._trial = (asked.model, max(believed, 1))
        self._stuck = 0

    async def fit(
        self,
        desk: Desk,
        asked: Asked,
        summarise: Callable[[], Summarise | None],
        *,
        forced: bool = False,
        refused: Callable[[], Awaitable[str]] | None = None,
    ) -> str | None:
        """Compacts if needed. Returns a message for the user if the next request cannot fit. `forced`: the server
        rejected it. `refused`: why it must not be compacted; empty if it may."""
        if not forced:
            self._trial = None
        before = self.measure(desk.messages(), asked)
        window, budget = before.window, self.allowed(before.window)
        # The server may take more than is assumed.
        hard = min(window if forced or self.knows(asked) else math.inf, self.cap or math.inf)
        size = self.size(desk.messages())
        if not forced and (before.all <= budget or (before.all <= hard and size < self._stuck * GROWTH)):
            return None
        if not self.config.enabled and not forced:
            percent = 100 * before.all / window
            return STOPPED.format(percent=percent, tokens=before.all, window=window, budget=100 * budget / window)
        if refused is not None and (words := await refused()):
            return words
        fixed = before.system + before.tools
        most = self.estimator.chars(asked.model, max(0.0, budget - fixed))
        share = min(1.0, self.config.target / self.budget)
        target = self.estimator.chars(asked.model, max(0.0, budget * share - fixed))
        desk.begin()
        try:
            asks = summarise() if self._may_ask(asked.prompt, desk.messages()) else None
            done = await compact(desk.messages(), Limits(most, target), self.config, self._asking(asks, asked.prompt))
        except anyio.get_cancelled_exc_class():
            desk.gave_up(cancelled=True)
            raise
        if done.size < size:
            desk.replace(done, before.all, fixed + self.estimator.tokens(asked.model, done.size))
        else:
            desk.gave_up()
        after = self.measure(desk.messages(), asked)
        self._stuck = self.size(desk.messages()) if after.all > budget else 0
        if after.all <= hard and (done.size < size or not forced):
            return None
        capped = CAPPED if hard < window else ""
        prompt = self.estimator.tokens(asked.model, floor_chars(desk.messages()))
        if after.system + after.tools + prompt <= hard:
            return STUCK.format(model=asked.settings.model, capped=capped, tokens=after.all)
        return TOO_SMALL.format(
            model=asked.settings.model,
            window=int(min(hard, window)),
            capped=capped,
            system=after.system,
            tools=after.tools,
            prompt=prompt,
            tokens=after.system + after.tools + prompt,
        )

    def _may_ask(self, prompt: int, messages: Sequence[Message]) -> bool:
        """Whether a summary may be asked for now."""
        if self._asked_at is None or prompt - self._asked_at >= SUMMARY_PROMPTS or prompt < self._asked_at:
            return True
        last = max((at for at, one in enumerate(messages) if isinstance(one, UserMessage)), default=-1)
        return sum(isinstance(one, AssistantMessage) for one in messages[last + 1 :]) >= LONG_TURN

    def _asking(self, asks: Summarise | None, prompt: int) -> Summarise | None:
        if asks is None:
            return None

        async def ask(messages: Sequence[Message]) -> str:
            self._asked_at = prompt
            return await asks(messages)

        return ask
