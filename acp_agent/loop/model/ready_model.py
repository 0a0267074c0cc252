"""The model of a turn: the chosen one or, while that fails, one of its fallbacks. Every request to a model goes through
`ReadyModel.stream`, which holds the caps and counts what was used."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import anyio
from msgspec.structs import replace

from acp_agent import tracing
from acp_agent.config.load import Config
from acp_agent.config.model import ProviderConfig
from acp_agent.errors import AgentError, AuthRequired, InvalidParams, ProviderError
from acp_agent.lazy import load
from acp_agent.llm.base import (
    Message,
    ModelEvent,
    ModelSettings,
    Notice,
    TextDelta,
    ThoughtDelta,
    ToolDefinition,
    ToolUse,
    UsageReport,
)
from acp_agent.llm.provider_errors import LIMITED_SECONDS, limit_end
from acp_agent.loop.choices import nearest
from acp_agent.loop.memory.compaction import size_of
from acp_agent.loop.memory.token_counts import TokenEstimator, definition_chars
from acp_agent.loop.model.advice import advised
from acp_agent.loop.model.models import NAMED_ANSWER, Models, ServedModel
from acp_agent.loop.model.spending import Spending, plausible
from acp_agent.loop.options import AUTO_MODEL, fast_factor
from acp_agent.loop.session_state import SessionState
from acp_agent.loop.toolbox.relevance import Embed

OUTAGES = frozenset({"rate_limit", "quota", "server", "network", "timeout", "loading"})
"""Errors of the chosen model that lead to a fallback."""
FINAL = frozenset({"refusal", "cost", "recording"})
"""Errors of a fallback that do not lead to the next."""

ASK_MODEL = "acp_agent.loop.ask:ask_model"
MOST_OFFERED = 3
"""Models to go on with."""

Failures = dict[str, AgentError]
"""The models that failed in one request, in this order."""


class SessionModels:
    """The models of one session."""

    def __init__(
        self,
        session: SessionState,
        models: Models,
        spending: Spending,
        estimator: TokenEstimator,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._models = models
        self.spending = spending
        self.estimator = estimator
        self._clock = clock
        self._until: dict[str, float] = {}
        """When a model that failed may be used again."""
        self._chosen = ""
        self._told: set[str] = set()
        """The choices of which it was said that their server does not list them."""
        self.tell = session.outbox.tell

    def settings(self, config: Config, name: str) -> ProviderConfig:
        """Raises InvalidParams for a provider that is not configured."""
        return self._models.settings(config, name)

    def state(self) -> str:
        """As `Models.state`, of the chosen model. Raises InvalidParams."""
        return self._models.state(self._session.config, self._session.choices.model)

    async def learn(self, choice: str) -> None:
        """Waits until the server has said what it says about its models; never longer than connecting may take."""
        await self._models.learn(self._session.config, choice)

    async def ready(self, choice: str) -> ReadyModel:
        """The model behind `provider/model`. Raises AuthRequired, ProviderError, InvalidParams."""
        if choice != self._chosen:
            self._until.pop(choice, None)  # Whoever chooses it wants it tried.
        self._chosen = choice
        ready, failures = ReadyModel(self, choice), Failures()
        try:
            await ready.use(choice)
        except ProviderError as error:  # The server was asked for its models.
            if not await ready.fall_back(error, failures):
                raise
        self._tell_unlisted(choice, ready.served)
        return ready

    async def look(self) -> None:
        """Waits, not for long, for the models that the server lists, where the user names one that is not known."""
        with anyio.move_on_after(NAMED_ANSWER):
            try:
                await self._models.discover(self._session.config, self._session.choices)
            except (AuthRequired, ProviderError, InvalidParams):
                return  # It is said when the model is used.

    async def offered(self, error: ProviderError) -> str:
        """The model that the user chooses to go on with, for the session, where one is at a limit that lasts; empty if
        none."""
        session, wait = self._session, error.retry_after or 0
        if error.kind not in ("quota", "rate_limit") or (error.kind == "rate_limit" and wait <= LIMITED_SECONDS):
            return ""
        known = [one for one in session.choices.models if one != session.choices.model]
        provider = session.choices.model.partition("/")[0]
        known.sort(key=lambda one: one.partition("/")[0] == provider)  # The others are not at that limit.
        if not known:
            return ""
        until = f"It is at its limit until {limit_end(wait)}" if wait else "It has used up what it may use"
        ask: Any = load(ASK_MODEL)
        other: str | None = await ask(
            session.outbox,
            f"{until}: {session.choices.shown()}. Continue with another model?",
            error.fact,
            known[:MOST_OFFERED],
        )
        if other is None:
            return ""
        await session.choices.set_option("model", other)
        session.choices.show()
        return other

    def advised(self, error: ProviderError) -> str:
        """The error with what this user does next."""
        session = self._session
        choice = error.model or session.choices.model
        name, _, model = choice.partition("/")
        sent = choice.partition("/")[2] or choice
        others = [one for one in session.choices.models if one.partition("/")[2] not in (AUTO_MODEL, sent)]
        words = advised(
            error, session.client.plan.name, provider=name, near=nearest(choice, others),
            key_origin=self._models.key_origin(session.config, choice) if error.kind == "auth" else "",
        )  # fmt: skip
        if not error.about_model:
            return words
        named, colon, _ = model.partition(":")
        unknown = (
            f" If {named!r} was meant as a provider: {session.config.settings.no_provider(named)}." if colon else ""
        )
        return f"{self.where(choice)}{words}{unknown}"

    def _tell_unlisted(self, choice: str, served: ServedModel) -> None:
        """Once, before it is asked: a server may know more than it lists."""
        if choice in self._told or not (listed := served.unlisted()):
            return
        self._told.add(choice)
        known = self._session.choices.models
        others = [name for name in known if name.partition("/")[2] == served.id and name != choice]
        others += [name.replace("/", ":", 1) for name in known if name == served.id]
        names = others or nearest(served.id, listed)
        near = f"the nearest: {', '.join(f'`{name}`' for name in names)}" if names else f"`{listed[0]}` is one it has"
        self.tell(f"{self.where(choice)}{served.server} does not list the model `{served.id}`; {near}.")

    def where(self, choice: str) -> str:
        """The line of the configuration that names this model, if one does."""
        config = self._session.config
        origin = config.origin("agent.model")
        by_file = ":" in origin and choice == config.settings.choice(config.settings.agent.model)
        return f"{origin}: " if by_file else ""

    async def served(self, choice: str) -> ServedModel:
        config = self._session.config
        return await self._models.ready(config, choice, named=choice == self._chosen and not self.where(choice))

    def at_speed(self, settings: ModelSettings, served: ServedModel) -> tuple[ModelSettings, float]:
        """The settings of a request to this model, and what its price is multiplied by."""
        factor = fast_factor(self._session.config.settings, served.name) if settings.fast else 0.0
        return replace(settings, model=served.id, fast=factor > 0), factor or 1.0

    @property
    def fallbacks(self) -> list[str]:
        settings = self._session.config.settings
        return [settings.fallback(each) for each in settings.agent.fallback_models]

    def failed(self, name: str) -> None:
        self._until[name] = self._clock() + self.retry_after

    @property
    def retry_after(self) -> float:
        return self._session.config.settings.agent.fallback_retry_after

    def rests(self, name: str) -> bool:
        """Whether it failed a short while ago."""
        return self._until.get(name, 0.0) > self._clock()


class ReadyModel:
    """Of one turn and its sub-agents."""

    def __init__(self, models: SessionModels, chosen: str) -> None:
        self._models = models
        self.chosen = chosen
        """By its real name, once that is known."""
        self._line = list(dict.fromkeys([chosen, *models.fallbacks]))
        self._place = 0
        """Of the one in use."""
        self._served: ServedModel | None = None

    @property
    def served(self) -> ServedModel:
        assert self._served is not None, "`SessionModels.ready` comes first"
        return self._served

    @property
    def name(self) -> str:
        """`provider/model` of the one in use."""
        return self.served.name

    @property
    def id(self) -> str:
        return self.served.id

    @property
    def embed(self) -> Embed | None:
        return self.served.embed

    @property
    def known_window(self) -> int | None:
        """Tokens, if the configuration or the server says."""
        return self.served.known_window

    async def use(self, choice: str) -> None:
        """Raises AuthRequired, ProviderError, InvalidParams."""
        self._served = await self._models.served(choice)
        self._place = self._line.index(choice)
        if not self._place:
            self.chosen = self._served.name

    # --- requests ---------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Before a request is put together: asks at a cap, and takes the first model that has not failed just now.
        Raises CostLimit, StoreError."""
        await self._models.spending.allow()
        place = self._place
        for name in [name for name in self._line if not self._models.rests(name)]:
            if name == self._line[place]:
                return
            try:
                await self.use(name)
            except (ProviderError, AuthRequired, InvalidParams):
                self._models.failed(name)
                continue
            back = self._place < place
            words = "is tried again" if back else f"answers, since `{self._line[place]}` failed a short while ago"
            self._models.tell(f"`{name}` {words}.")
            return

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], settings: ModelSettings
    ) -> AsyncGenerator[ModelEvent, None]:
        """Answers `messages` with the model in use; see `Provider.stream`. Raises CostLimit at a cap, StoreError."""
        spending = self._models.spending
        await spending.allow()
        served, choice = self.served, self._line[self._place]
        settings, factor = self._models.at_speed(settings, served)
        said, began, counted = 0, False, False
        span = tracing.start(
            f"chat {served.id}",
            gen_ai__operation__name="chat",
            gen_ai__provider__name=choice.partition("/")[0],
            gen_ai__request__model=served.id,
        )
        failure: BaseException | None = None
        try:
            events = served.provider.stream(messages, tools, settings)
            async with aclosing(events):
                async for event in events:
                    match event:
                        case TextDelta(text) | ThoughtDelta(text):
                            said += len(text)
                        case ToolUse():
                            said += len(event.arguments)
                        case UsageReport():
                            event = plausible(event)
                            await spending.prepare(served, event)
                            spending.count(served, event, factor=factor)
                            counted = True
                            span.set(
                                gen_ai__usage__input_tokens=event.input_tokens,
                                gen_ai__usage__output_tokens=event.output_tokens,
                            )
                    began = began or not isinstance(event, Notice)
                    yield event
        except ProviderError as error:
            error.model = choice
            failure = error
            raise
        finally:
            span.end(failure)
            if began and not counted:
                chars = settings.chars + definition_chars(tools) + size_of(messages)
                tokens = (self._models.estimator.tokens(served.name, number) for number in (chars, said))
                spending.count(served, UsageReport(*tokens), factor=factor, estimated=True)

    # --- fallback ---------------------------------------------------------------------------------------------

    async def fall_back(self, error: ProviderError, failures: Failures) -> bool:
        """Whether the request is worth another attempt, with another model, which is in use then. `failures`: of this
        request so far. Raises ProviderError if none is left."""
        failed = error.model or self._line[self._place]
        if len(self._line) == 1 and (other := await self._models.offered(error)):
            self._line.append(other)
            await self.use(other)
            return True
        final = not failures and failed == self._line[0] and error.kind not in OUTAGES  # The user must mend it.
        if len(self._line) == 1 or error.kind in FINAL or final:
            return False
        failures[failed] = error
        self._models.failed(failed)
        if self._line[self._place] not in failures:
            return True  # A sub-agent beside this one has changed it already.
        left = [name for name in self._line if name not in failures]
        for name in sorted(left, key=self._models.rests):
            try:
                await self.use(name)
            except (ProviderError, AuthRequired, InvalidParams) as unusable:
                failures[name] = unusable
                self._models.failed(name)
                continue
            again = f" `{failed}` is tried again after {self._models.retry_after:g} seconds."
            self._models.tell(f"`{failed}` does not answer: {error.fact or error} `{name}` goes on.{again}")
            return True
        words = " ".join(f"`{name}`: {getattr(said, 'fact', '') or said}" for name, said in failures.items())
        first = next(iter(failures.values()))
        kind = first.kind if isinstance(first, ProviderError) else error.kind
        raise ProviderError(kind, f"None of the models answers. {words}", status=error.status) from error
