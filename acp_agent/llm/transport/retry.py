"""When a model call is retried, and after how long.

`next_delay` and `retry_after` decide and are pure; `with_retries` is the thin loop around them. A stream is retried
only before its first event has been passed on: afterwards the user has seen text that a retry would repeat.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import anyio
import msgspec

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ProviderError
from acp_agent.llm.base import RETRYING, ModelEvent, Notice

Answer = TypeVar("Answer")

LOADING_PAUSE = 2.0
"""Pause between two requests to a server that is loading its model, in base delays."""


LIMITED_TRIES = 10
"""How often a request is sent again that a limit of the server has refused."""
SAID_SECONDS = 3.0
"""A shorter wait is not said."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """Times in seconds."""

    max_retries: int = 3
    base_delay: float = 0.5
    max_delay: float = 30.0
    """The longest wait a server may request; a longer one is not waited for."""
    loading_wait: float = 60.0
    """The longest wait for a server that is loading its model."""
    retry_for: float = 300.0
    """The longest wait in all where a limit of the server refuses requests."""

    @classmethod
    def of(cls, options: ProviderOptions) -> RetryPolicy:
        delays = options.retry_base_delay, options.max_retry_delay, options.loading_wait, options.retry_for
        return cls(options.max_retries, *delays)

    def tries(self, error: ProviderError) -> int:
        """How often the request is sent again."""
        return LIMITED_TRIES if error.kind == "rate_limit" and self.max_retries else self.max_retries


def next_delay(
    error: ProviderError, attempt: int, policy: RetryPolicy, jitter: float, waited: float = 0.0
) -> float | None:
    """Seconds to wait before retry number `attempt` (from 0), or `None` to give up. `jitter` is in [0, 1); `waited` is
    what limits have taken so far.

    A wait requested by the server is obeyed exactly. Otherwise the wait doubles with each attempt, with jitter between
    half and all of it, so that agents which failed together do not retry together. A timeout is not retried: the user
    has already waited `idle_timeout`, and a local server would then compute the same answer twice.
    """
    if attempt >= policy.tries(error) or not error.retryable or error.kind == "timeout":
        return None
    limit = max(policy.max_delay, policy.retry_for - waited) if error.kind == "rate_limit" else policy.max_delay
    if waited > policy.retry_for or (error.retry_after is not None and error.retry_after > limit):
        return None
    if error.retry_after:
        return error.retry_after
    ceiling = min(policy.max_delay, policy.base_delay * 2.0 ** min(attempt, 32))
    return ceiling * (0.5 + 0.5 * jitter)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The wait requested by a server, in seconds: `retry-after-ms`, else `Retry-After` as seconds or as an HTTP date.

    `headers` has lower-case keys or ignores case; `now` is timezone-aware. `None` if there is no readable wait.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = headers.get("retry-after")
    if text is None:
        return None
    seconds = _number(text)
    if seconds is not None:
        return seconds
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - now).total_seconds())


def loading_pause(policy: RetryPolicy, waited: float) -> float:
    """Seconds to wait before a server that is loading its model is asked again."""
    return min(policy.base_delay * LOADING_PAUSE, policy.loading_wait - waited)


async def with_retries(
    attempt: Callable[[], AsyncGenerator[ModelEvent, None]],
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    jitter: Callable[[], float] = random.random,
) -> AsyncGenerator[ModelEvent, None]:
    """Yields the events of the first attempt that has any. Raises the last attempt's `ProviderError`."""
    tries, waited, limited = 0, 0.0, 0.0
    while True:
        started = False
        try:
            async with aclosing(attempt()) as events:
                async for event in events:
                    started = True
                    yield event
            return
        except ProviderError as error:
            if error.kind == "loading" and not started and waited < policy.loading_wait:
                if not waited:
                    yield Notice(f"{error} Waiting for it, up to {policy.loading_wait:g} seconds.")
                await sleep(pause := loading_pause(policy, waited))
                waited += pause
                continue
            delay = None if started else next_delay(error, tries, policy, jitter(), limited)
            if delay is None:
                raise
            limited += delay if error.kind == "rate_limit" else 0.0
            if delay >= SAID_SECONDS:
                why = "The server limits requests." if error.kind == "rate_limit" else "The server failed."
                yield Notice(f"{RETRYING}{math.ceil(delay)} s ({tries + 1} of {policy.tries(error)}). {why}")
        tries += 1
        await sleep(delay)


async def when_loaded(
    ask: Callable[[], Awaitable[Answer]],
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> Answer:
    """The answer of `ask`, which is called again as long as the server is loading its model, for `loading_wait`."""
    waited = 0.0
    while True:
        try:
            return await ask()
        except ProviderError as error:
            if error.kind != "loading" or waited >= policy.loading_wait:
                raise
        await sleep(pause := loading_pause(policy, waited))
        waited += pause


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < float("inf") else None
