"""What the model calls of a session cost, and the caps on it. The sums are the store's, which all agents share."""

from __future__ import annotations

import logging
import time

import anyio
import anyio.to_thread
from msgspec import Struct

from acp_agent.config.model import PriceConfig
from acp_agent.config.provider_rows import row_of
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.errors import CostLimit, StoreError
from acp_agent.lazy import load
from acp_agent.llm.base import UsageReport
from acp_agent.llm.choose import host_of, needs_key
from acp_agent.loop.model.models import ServedModel
from acp_agent.loop.session_state import SessionState
from acp_agent.store.spending_store import SpendingStore, Spent, dollars

log = logging.getLogger(__name__)

LISTED = "acp_agent.llm.prices:listed_cost"
"""Loaded in a thread, once an answer of a server elsewhere has no other price."""
ASK = "acp_agent.loop.ask:ask_cost"

CHARGING = "openrouter.ai"
"""The server that says what it charged, in dollars."""
PROXY = "litellm"
"""Runs on this machine, but its models may be anywhere."""
MILLION = 1_000_000
MOST_TOKENS = 1_000_000_000
"""Of one call; more is a mistake of the server."""


def today() -> str:
    return time.strftime("%Y-%m-%d")


class Cap(Struct, frozen=True):
    """One that has been reached."""

    key: str
    """In the configuration."""
    name: str
    """`key`, and for which day."""
    amount: float
    """As configured."""
    reached: float
    """With what the user has added."""
    spent: float
    whose: str

    @property
    def words(self) -> str:
        raised = "" if self.reached == self.amount else f", raised to {dollars(self.reached)}"
        return f"{self.whose} cost {dollars(self.spent)}; the limit is {dollars(self.amount)}{raised} (`{self.key}`)"


class Spending:
    """Of one session."""

    def __init__(self, session: SessionState, store: SpendingStore) -> None:
        self._session = session
        self._store = store
        self._raised: dict[str, float] = {}
        self._stopped: Cap | None = None
        """At which the user has stopped the turn."""
        self._asking = anyio.Lock()
        self._unsaved: list[tuple[str, str, Spent]] = []
        self._told: set[str] = set()
        """Models whose price is not known."""

    def begin(self) -> None:
        """The user has asked for something: a cap that stopped the last turn asks again."""
        self._stopped = None

    # --- caps -------------------------------------------------------------------------------------------------

    async def allow(self) -> None:
        """Returns if another call may be made; at a cap the user is asked. Raises CostLimit, StoreError."""
        if await self._reached() is None:
            return
        async with self._asking:  # Sub-agents that run side by side wait for one answer.
            while (cap := await self._reached()) is not None:
                if self._stopped is None and await self._may_go_on(cap):
                    self._raised[cap.name] = cap.spent + cap.amount
                    continue
                self._stopped = self._stopped or cap
                raise CostLimit(f"Stopped: {self._stopped.words}.", self._stopped.key)

    async def at_cap(self) -> bool:
        """Whether the user would be asked before another call. Raises StoreError."""
        return await self._reached() is not None

    async def _may_go_on(self, cap: Cap) -> bool:
        more = f"Go on, until it is {dollars(cap.spent + cap.amount)}"
        return bool(await load(ASK)(self._session.outbox, f"{cap.words[0].upper()}{cap.words[1:]}", more))

    async def _reached(self) -> Cap | None:
        agent, day, cap = self._session.config.settings.agent, today(), None
        if agent.max_cost:
            cap = self._over("agent.max_cost", "", agent.max_cost, self.of_session(), "this session has")
        if cap is None and agent.max_cost_per_day:
            spent = await self._store.do(self._store.of_day, day)
            whose = "the sessions of today have"
            cap = self._over("agent.max_cost_per_day", day, agent.max_cost_per_day, spent, whose)
        return cap

    def _over(self, key: str, day: str, amount: float, spent: Spent, whose: str) -> Cap | None:
        most = self._raised.get(key + day, amount)
        return Cap(key, key + day, amount, most, spent.cost, whose) if spent.cost >= most else None

    # --- counting ---------------------------------------------------------------------------------------------

    async def prepare(self, model: ServedModel, usage: UsageReport) -> None:
        """Loads what `count` needs to know the price, without holding up others."""
        if self._known(model, usage) is None:
            await anyio.to_thread.run_sync(load, LISTED)

    def count(self, model: ServedModel, usage: UsageReport, *, factor: float = 1.0, estimated: bool = False) -> None:
        """Adds a call to the store. `factor`: what our price of it is multiplied by."""
        cost = self._known(model, usage, factor)
        if cost is None:
            cost = load(LISTED)(model.settings.base_url, model.id, usage)
        if cost is None:
            self._tell_unpriced(model.name)
        spent = Spent(
            1,
            usage.input_tokens,
            usage.cached_tokens,
            usage.output_tokens,
            cost or 0.0,
            int(cost is None),
            int(estimated),
        )
        self._session.costs.so_far += spent
        self._unsaved.append((today(), model.name, spent))
        self._store.later(self._save, _not_saved)

    def _save(self) -> None:
        """In the store's thread. What cannot be added now is with the next call."""
        while self._unsaved:
            day, name, spent = self._unsaved[0]
            self._store.add(day, self._session.id, name, spent)
            del self._unsaved[0]

    def _known(self, model: ServedModel, usage: UsageReport, factor: float = 1.0) -> float | None:
        """Dollars, if the table of prices is not needed to know them."""
        url = model.settings.base_url
        if usage.cost is not None and host_of(url) == CHARGING:
            return usage.cost
        if (price := self._session.config.settings.price(model.name)) is not None:
            return own_cost(price, usage) * factor
        api = model.settings.api
        if (api and WIRE_APIS[api].free) or not (needs_key(url) or _is_proxy(model)):
            return 0.0
        return None

    def _tell_unpriced(self, name: str) -> None:
        agent = self._session.config.settings.agent
        keys = [key for key in ("max_cost", "max_cost_per_day") if getattr(agent, key)]
        if keys and name not in self._told:
            self._told.add(name)
            limits = " and ".join(f"`agent.{key}`" for key in keys)
            self._session.outbox.tell(
                f"The price of `{name}` is not known, so {limits} cannot hold for it: its calls go on and are left "
                "out. Set its price in the configuration (`[[agent.prices]]`)."
            )

    def of_session(self) -> Spent:
        return self._session.costs.so_far

    # --- /cost ------------------------------------------------------------------------------------------------

    async def lines(self) -> list[str]:
        """For the user. Raises StoreError."""
        agent, whole, store = self._session.config.settings.agent, self.of_session(), self._store
        shown = self._session.choices.shown
        lines = [f"This session: {whole.words}; {_tokens(whole)}."]
        models = await store.do(store.by_model, self._session.id)
        lines += [f"- `{shown(name)}`: {spent.words}; {_tokens(spent)}" for name, spent in models.items()]
        lines.append(f"Today, all sessions: {(await store.do(store.of_day, today())).words}.")
        for key, amount in (("agent.max_cost", agent.max_cost), ("agent.max_cost_per_day", agent.max_cost_per_day)):
            if amount:
                lines.append(f"Limit `{key}`: {dollars(amount)}.")
        if unpriced := [f"`{shown(name)}`" for name, spent in models.items() if spent.unpriced]:
            lines.append(
                f"The price of {', '.join(unpriced)} is not known: set it in the configuration (`[[agent.prices]]`). "
                "The sums and the limits leave these calls out."
            )
        if whole.estimated:
            lines.append(f"Of {whole.estimated} calls the server did not count the tokens; they are estimated.")
        if whole.cost:
            lines.append("These are list prices; what you pay is on the provider's bill.")
        return lines


def _not_saved(error: StoreError) -> None:
    log.error("what a model call cost could not be stored: %s", error)


def own_cost(price: PriceConfig, usage: UsageReport) -> float:
    """Dollars by a price of the configuration."""
    cached = price.input if price.cached is None else price.cached
    written = price.input if price.cache_write is None else price.cache_write
    new = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
    return (
        new * price.input
        + usage.cached_tokens * cached
        + usage.cache_write_tokens * written
        + usage.output_tokens * price.output
    ) / MILLION


def plausible(usage: UsageReport) -> UsageReport:
    """Servers count oddly: more tokens from the cache than there were at all, less than nothing, more than any store
    can hold."""
    whole, output = _within(usage.input_tokens, MOST_TOKENS), _within(usage.output_tokens, MOST_TOKENS)
    cached = _within(usage.cached_tokens, whole)
    written, thought = _within(usage.cache_write_tokens, whole - cached), _within(usage.reasoning_tokens, output)
    return UsageReport(whole, output, cached, thought, written, None if usage.cost is None else max(usage.cost, 0.0))


def _within(tokens: int, most: int) -> int:
    return min(max(tokens, 0), most)


def _is_proxy(model: ServedModel) -> bool:
    row = row_of(model.settings.base_url)
    return PROXY in (model.name.partition("/")[0], row.id if row is not None else "")


def _tokens(spent: Spent) -> str:
    calls = "1 model call" if spent.calls == 1 else f"{spent.calls} model calls"
    cached = f" ({spent.cached_percent:.0f} % from the server's cache)" if spent.input else ""
    return f"{calls}, {spent.input:,} tokens read{cached}, {spent.output:,} written"
