"""Hosts of a turn: what `run_turn` sees of a session."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from acp_agent.errors import AgentError, ProviderError
from acp_agent.llm.base import RETRYING, AssistantMessage, Message, ModelSettings, TextPart, UsageReport, UserMessage
from acp_agent.loop.memory.compaction import Compacted, Summarise, summarise
from acp_agent.loop.memory.room import Asked
from acp_agent.loop.memory.token_counts import characters
from acp_agent.loop.prompts.model_settings import model_settings
from acp_agent.schema.acp import CompactionUpdate, ContentBlock, SessionUpdate, TextContent

if TYPE_CHECKING:
    from acp_agent.loop.hooks.hooks import Hooks
    from acp_agent.loop.memory.memory import Memory
    from acp_agent.loop.model.ready_model import ReadyModel
    from acp_agent.loop.model.turn import Cleaner
    from acp_agent.loop.outbox import Outbox
    from acp_agent.loop.session_state import SessionState
    from acp_agent.loop.toolbox.offer import Offer


class PlainCleaner:
    """Lets all pass."""

    def feed(self, text: str) -> str:
        return text

    def finish(self) -> str:
        return ""


class SessionDesk:
    """The history of a session, and what the user sees of its compaction."""

    def __init__(self, outbox: Outbox, memory: Memory) -> None:
        self._outbox = outbox
        self._memory = memory
        self._id = ""
        self.replaced = False
        self.messages = memory.messages

    def begin(self) -> None:
        self._id = str(uuid.uuid4())
        self.ended("in_progress")

    def replace(self, done: Compacted, before: int, after: int) -> None:
        self._memory.replace(done.messages)
        self.replaced = True
        self.ended("completed", done.summary)
        words = f"The conversation was shortened: {done.words} (about {before} tokens became {after})."
        if done.trouble:
            words += f" There is no summary: {done.trouble}."
        if not self._outbox.client.plan.compaction:
            self._outbox.tell(words)

    def gave_up(self, *, cancelled: bool = False) -> None:
        self.ended("cancelled" if cancelled else "failed")

    def ended(self, status: str, summary: str = "") -> None:
        """Tells clients that show compactions."""
        if self._outbox.client.plan.compaction:
            content: list[ContentBlock] = [TextContent(text=summary)] if summary else []
            self._outbox.emit(CompactionUpdate(compaction_id=self._id, status=status, summary=content), keep=False)


def summariser(model: ReadyModel, settings: ModelSettings) -> Summarise:
    """Asks the model of the turn."""

    async def ask(messages: Sequence[Message]) -> str:
        failures: dict[str, AgentError] = {}
        while True:
            try:
                return await summarise(model, messages, settings)
            except ProviderError as error:
                if not await model.fall_back(error, failures):
                    raise

    return ask


class SessionHost:
    """One turn of `session` with `model`. Settings and tools are read again for each request."""

    def __init__(
        self, session: SessionState, model: ReadyModel, memory: Memory, offer: Offer, hooks: Hooks, outbox: Outbox
    ) -> None:
        self._session = session
        self._outbox = outbox
        self._hooks = hooks
        self._model = model
        self._memory = memory
        self._room = memory.room
        self._before_refusal: list[Message] = []
        self.tools = offer.definitions
        self._unsent = offer.unsent
        self.messages = memory.messages
        self.add = memory.add
        self.drain = outbox.drain
        self.prepare = model.prepare
        self.fall_back = model.fall_back

    def settings(self) -> ModelSettings:
        told = self._session.client_prompt
        return replace(model_settings(self._session, self._memory, self._model, told), unsent=self._unsent)

    def join(self) -> bool:
        return self._session.join(self._memory.add)

    def say(self, text: str) -> None:
        (self._outbox.tell if text.startswith(RETRYING) else self._outbox.say)(text)

    def emit(self, update: SessionUpdate) -> None:
        self._outbox.emit(update)

    def cleaner(self) -> Cleaner:
        redaction = self._outbox.redaction
        return PlainCleaner() if redaction is None else redaction.stream()

    @property
    def _asked(self) -> Asked:
        number = self._session.turns
        return Asked(self._model.name, self.settings(), self.tools(), self._model.known_window, number)

    def report_usage(self, usage: UsageReport | None, message: AssistantMessage) -> None:
        asked, before = self._asked, self._before()
        if usage is None:  # A guess if the server says nothing.
            self._room.counted(before, asked, 0)
            asked_for = self._room.measure(before, asked).all
            usage = UsageReport(asked_for, self._room.estimator.tokens(asked.model, characters(message)))
        else:
            self._room.counted(before, asked, usage.input_tokens)
        window = self._room.window(asked)
        self._session.report_usage(usage.input_tokens + usage.output_tokens, window, usage)

    def _before(self) -> Sequence[Message]:
        """What the last answer answers."""
        messages = self.messages()
        return messages[:-1] if messages and isinstance(messages[-1], AssistantMessage) else messages

    def undo_room(self) -> None:
        if self._before_refusal and self._before_refusal != list(self.messages()):
            self._memory.replace(self._before_refusal)
            self.say("The server also rejected the shortened conversation, so it was restored.")

    async def make_room(self, refused: ProviderError | None = None) -> str | None:
        asked = self._asked
        if refused is not None:
            self._before_refusal = list(self.messages())
            self._room.learn(refused, self.messages(), asked)
        desk = SessionDesk(self._outbox, self._memory)
        words = await self._room.fit(
            desk,
            asked,
            lambda: summariser(self._model, asked.settings),
            forced=refused is not None,
            refused=None if self._hooks.deciding is None else self._hooks.before_compaction,
        )
        for text in await self._hooks.started("compact") if desk.replaced else ():
            self.add(UserMessage((TextPart(text),), own=True))
        return words if words is None or refused is None else f"{refused.fact or refused} {words}"
