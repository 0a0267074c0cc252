from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import pytest

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ProviderError
from acp_agent.llm.base import Finished, ModelEvent, Notice, TextDelta
from acp_agent.llm.transport.retry import RetryPolicy, next_delay, retry_after, with_retries

NOW = datetime(2025, 1, 1, 12, 0, 0, tzinfo=UTC)
POLICY = RetryPolicy(max_retries=3, base_delay=1.0, max_delay=30.0)


@pytest.mark.parametrize(("headers", "seconds"), [
    ({}, None), ({"retry-after": "7"}, 7.0), ({"retry-after": "0.5"}, 0.5), ({"retry-after-ms": "1500"}, 1.5),
    ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5), ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
    ({"retry-after": "Wed, 01 Jan 2025 12:00:09 GMT"}, 9.0), ({"retry-after": "Wed, 01 Jan 2025 12:00:09 -0000"}, 9.0),
    ({"retry-after": "Wed, 01 Jan 2025 11:00:00 GMT"}, 0.0), ({"retry-after": "soon"}, None),
    ({"retry-after": "-3"}, None), ({"retry-after": "nan"}, None), ({"retry-after": "inf"}, None),
])  # fmt: skip
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(("kind", "wait", "attempt", "jitter", "delay"), [
    ("server", None, 0, 0.0, 0.5), ("server", None, 0, 0.5, 0.75), ("server", None, 1, 0.0, 1.0),
    ("server", None, 2, 0.0, 2.0), ("server", None, 3, 0.0, None), ("network", None, 0, 0.0, 0.5),
    ("rate_limit", None, 0, 0.0, 0.5), ("rate_limit", 5.0, 0, 0.9, 5.0), ("rate_limit", 0.0, 0, 0.0, 0.5),
    ("rate_limit", 30.0, 0, 0.0, 30.0), ("server", 30.1, 0, 0.0, None), ("rate_limit", 300.1, 0, 0.0, None),
    ("rate_limit", 300.0, 0, 0.0, 300.0), ("rate_limit", None, 9, 0.0, 15.0), ("rate_limit", None, 10, 0.0, None),
    ("timeout", None, 0, 0.0, None),
    ("auth", None, 0, 0.0, None), ("quota", 5.0, 0, 0.0, None), ("context_too_long", None, 0, 0.0, None),
    ("refusal", None, 0, 0.0, None), ("bad_request", None, 0, 0.0, None), ("not_found", None, 0, 0.0, None),
])  # fmt: skip
def test_next_delay(kind: Any, wait: float | None, attempt: int, jitter: float, delay: float | None) -> None:
    assert next_delay(ProviderError(kind, "no", retry_after=wait), attempt, POLICY, jitter) == delay


def test_the_wait_is_bounded_and_the_policy_that_of_the_options() -> None:
    policy = RetryPolicy(max_retries=2000, base_delay=1.0, max_delay=30.0)
    assert next_delay(ProviderError("server", "no"), 1500, policy, 0.0) == 15.0
    options = ProviderOptions(name="x", max_retries=1, retry_base_delay=2.0, max_retry_delay=3.0)
    assert RetryPolicy.of(options) == RetryPolicy(1, 2.0, 3.0)


class Attempts:
    """Attempts that fail with the given kinds, one after the other, and then succeed."""

    def __init__(self, *kinds: Any, first: str = "") -> None:
        self.kinds = list(kinds)
        self.first = first
        self.count = 0
        self.slept: list[float] = []

    async def attempt(self) -> AsyncGenerator[ModelEvent, None]:
        self.count += 1
        if self.first:
            yield TextDelta(self.first)
        if self.kinds:
            raise ProviderError(self.kinds.pop(0), f"failure {self.count}")
        yield Finished("stop")

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def run(self) -> list[ModelEvent]:
        return [event async for event in with_retries(self.attempt, POLICY, sleep=self.sleep, jitter=lambda: 0.0)]


async def test_a_limit_is_waited_out_visibly_ten_times_and_for_no_longer_than_is_configured() -> None:
    attempts = Attempts(*["rate_limit"] * 5)
    events = await attempts.run()
    said = [event.text for event in events if isinstance(event, Notice)]
    assert said == [f"Retrying in {seconds} s ({number} of 10). The server limits requests." for seconds, number in (
        (4, 4), (8, 5))] and events[-1] == Finished("stop")  # fmt: skip
    attempts = Attempts(*["rate_limit"] * 99)
    with pytest.raises(ProviderError, match="failure 11"):
        await attempts.run()
    assert next_delay(ProviderError("rate_limit", "no", retry_after=200.0), 1, POLICY, 0.0, 101.0) is None


async def test_waits_grow_until_an_attempt_succeeds_the_last_fails_or_an_event_has_come() -> None:
    attempts = Attempts("server", "network", "rate_limit")
    assert await attempts.run() == [Finished("stop")] and attempts.slept == [0.5, 1.0, 2.0]
    attempts = Attempts(*["server"] * 4)
    with pytest.raises(ProviderError, match="failure 4"):
        await attempts.run()
    attempts = Attempts("server", first="Hel")
    with pytest.raises(ProviderError, match="failure 1"):
        await attempts.run()
    assert attempts.slept == []
