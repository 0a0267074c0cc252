"""`/compact` and `/context`: shows what fills the model's context, and compacts it on request.

Both always answer: without a model, without a key, with a failing server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from acp_agent.errors import AuthRequired, CostLimit, InvalidParams, ProviderError
from acp_agent.llm.base import Message, TextPart, UserMessage
from acp_agent.loop.hooks.hooks import Hooks
from acp_agent.loop.memory.compaction import Compacted, Limits, compact, condensed, size_of
from acp_agent.loop.memory.conversation_head import Head, opened
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.memory.room import Asked
from acp_agent.loop.model.ready_model import ReadyModel, SessionModels
from acp_agent.loop.model.turn_host import SessionDesk, summariser
from acp_agent.loop.prompts.model_settings import model_settings
from acp_agent.loop.toolbox.offer import Offer

if TYPE_CHECKING:
    from acp_agent.loop.session_state import SessionState

BY_HAND = 2
"""Without a summary, a conversation is shortened by this much."""


class ContextUse:
    """Of one session."""

    def __init__(
        self, session: SessionState, memory: Memory, offer: Offer, models: SessionModels, hooks: Hooks
    ) -> None:
        self._hooks = hooks
        self._session = session
        self._memory = memory
        self._room = memory.room
        self._offer = offer
        self._models = models

    async def _model(self) -> ReadyModel:
        """Raises AuthRequired, ProviderError, InvalidParams."""
        return await self._models.ready(self._session.choices.model)

    def _asking(self, model: ReadyModel) -> Asked:
        settings = model_settings(self._session, self._memory, model, self._session.client_prompt)
        return Asked(model.name, settings, self._offer.definitions(), model.known_window)

    # --- /compact ---------------------------------------------------------------------------------------------

    async def compact(self) -> str:
        session, before = self._session, list(self._memory.messages())
        if words := await self._hooks.before_compaction("manual"):
            return words
        desk = SessionDesk(session.outbox, self._memory)
        self._models.spending.begin()
        desk.begin()
        done: Compacted | None = None
        model: ReadyModel | None = None
        try:
            try:
                model = await self._model()
                asked = self._asking(model)
                done = await self._summarised(before, model, asked)
            except CostLimit as limit:
                desk.ended("failed")
                return f"{limit} The conversation stays as it is."
            except (AuthRequired, InvalidParams, ProviderError) as error:
                done = await self._shorter(before, str(error))
        except anyio.get_cancelled_exc_class():
            desk.ended("cancelled")
            raise
        if size_of(done.messages) >= size_of(before):
            desk.ended("failed")
            why = f" ({done.trouble})" if done.trouble else ""
            return f"The conversation could not be shortened{why}; it stays as it is."
        self._memory.replace(done.messages)
        for context in await self._hooks.started("compact"):
            self._memory.add(UserMessage((TextPart(context),), own=True))
        desk.ended("completed", done.summary)
        name = session.choices.model if model is None else model.name
        tokens = [self._room.estimator.tokens(name, size_of(some)) for some in (before, done.messages)]
        if model is not None:
            asked = self._asking(model)
            size = self._room.measure(self._memory.messages(), asked)
            session.report_usage(size.all, size.window)
        text = f"Compacted: about {tokens[0]} tokens became {tokens[1]}."
        if done.trouble:
            return f"{text} The model could not write a summary ({done.trouble}): {done.words}."
        return text if session.client.plan.compaction else f"{text}\n\n{done.summary}"

    async def _summarised(self, messages: Sequence[Message], model: ReadyModel, asked: Asked) -> Compacted:
        budget = self._room.allowed(self._room.window(asked))
        room = self._room.estimator.chars(asked.model, budget) - asked.settings.chars
        summary = await summariser(model, asked.settings)(condensed(messages, max(room, 0)))
        head, rest = opened(messages)
        full, bare = head.after(rest, ()), Head()
        forms = [replace(each, summary=summary, dropped=0).messages() for each in (full, bare)]
        kept = next((form for form in forms if size_of(form) < size_of(messages)), forms[-1])
        if not summary or size_of(kept) >= size_of(messages):
            trouble = (
                "the summary was not shorter than the conversation" if summary else "the model returned no summary"
            )
            return Compacted(list(messages), trouble=trouble)
        return Compacted(kept, summarised=len(messages), summary=summary)

    async def _shorter(self, messages: Sequence[Message], trouble: str) -> Compacted:
        size = size_of(messages)
        limits = Limits(size // BY_HAND, size // BY_HAND)
        done = await compact(messages, limits, self._room.config, None)
        return Compacted(done.messages, done.shortened, done.summarised, done.dropped, trouble=trouble)

    # --- /context ---------------------------------------------------------------------------------------------

    async def lines(self, *, aimed: bool = True) -> list[str]:
        """`aimed`: the tools that are sent were chosen by a prompt; else they are chosen for none."""
        session, history = self._session, self._memory.history
        try:
            model = await self._model()
            if model.known_window is None:
                await self._models.learn(model.name)
            if not aimed:
                await self._offer.aim("", model.known_window)
            asked = self._asking(model)
        except (AuthRequired, InvalidParams, ProviderError) as error:
            tokens = self._room.estimator.tokens(session.choices.model, history.characters())
            return [
                f"Messages the model remembers: {len(history)}, about {tokens} tokens.",
                f"The model is not available: {error}",
            ]
        size = self._room.measure(self._memory.messages(), asked)
        lines = [
            f"The next request to `{session.choices.shown()}` has about {size.all:,} tokens:",
            f"- instructions: {size.system:,}",
            f"- {len(asked.tools)} tools: {size.tools:,}",
            f"- {len(history)} messages: {size.messages:,}",
        ]
        budget = 100 * self._room.allowed(size.window) / size.window
        what = "it is compacted" if self._room.config.enabled else "turns stop"
        assumed = " (assumed: its size is not known; `providers.NAME.context_window` sets it)"
        unknown = "" if self._room.knows(asked) else assumed
        lines.append(
            f"The model can hold {size.window:,} tokens{unknown}: {100 * size.all / size.window:.0f} % are in use; at "
            f"{budget:.0f} % {what}."
        )
        return [*lines, *self._cache_lines()]

    def _cache_lines(self) -> list[str]:
        """How much of what the model read came from the server's cache."""
        last, session = self._session.last_call, self._models.spending.of_session()
        rows = [("The session", session.input, session.cached, session.output)] if session.input else []
        if last is not None and last.input_tokens:
            rows.insert(0, ("The last call", last.input_tokens, last.cached_tokens, last.output_tokens))
        return [
            f"{what}: {read:,} tokens read, {cached:,} of them ({100 * cached / read:.0f} %) from the server's cache; "
            f"{written:,} written."
            for what, read, cached, written in rows
        ]
