"""Fallbacks: whatever fails, no model is asked twice for one request, and each failure is in the error."""

from types import SimpleNamespace
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as some

from acp_agent.errors import AuthRequired, ProviderError
from acp_agent.loop.model.ready_model import FINAL, OUTAGES, ReadyModel, SessionModels

NAMES = [f"p/{letter}" for letter in "abcd"]
KINDS = sorted(OUTAGES | {"auth", "bad_request", "context_too_long", "not_found", "refusal", "region"})


class Servers:
    """`away` cannot even be reached, for want of a key."""

    def __init__(self, away: set[str]) -> None:
        self._away = away

    async def ready(self, config: Any, name: str, *, named: bool = False) -> Any:
        if name in self._away:
            raise AuthRequired(f"no key for {name}")
        return SimpleNamespace(name=name, id=name, unlisted=lambda: ())


def session(fallbacks: list[str], retry_after: float) -> Any:
    agent = SimpleNamespace(fallback_models=fallbacks, fallback_retry_after=retry_after)
    settings = SimpleNamespace(agent=agent, fallback=str)
    config = SimpleNamespace(settings=settings, origin=lambda key: "default")
    return SimpleNamespace(config=config, outbox=SimpleNamespace(tell=lambda words: None))


async def request(ready: ReadyModel, failing: dict[str, str]) -> tuple[list[str], ProviderError | None]:
    """The models that are asked for one request, and the error it ends with."""
    asked: list[str] = []
    failures: dict[str, Any] = {}
    for _ in range(2 * len(NAMES)):
        asked.append(ready.name)
        if ready.name not in failing:
            return asked, None
        error = ProviderError(failing[ready.name], f"{ready.name} fails")  # type: ignore[arg-type]
        error.model = ready.name
        try:
            if not await ready.fall_back(error, failures):
                return asked, error
        except ProviderError as error:
            return asked, error
    return asked, None


failing = some.dictionaries(some.sampled_from(NAMES), some.sampled_from(KINDS))


@given(
    some.lists(some.sampled_from(NAMES), max_size=6), some.sets(some.sampled_from(NAMES[1:])),
    some.lists(failing, min_size=1, max_size=3), some.sampled_from([0.0, 300.0]),
)  # fmt: skip
def test_no_model_is_asked_twice_for_a_request_and_an_error_names_all_that_failed(fallbacks, away, rounds, retry_after):
    async def run() -> None:
        models = SessionModels(session(fallbacks, retry_after), Servers(away), None, None)  # type: ignore[arg-type]
        ready = await models.ready(NAMES[0])
        for kinds in rounds:
            asked, error = await request(ready, kinds)
            assert len(asked) == len(set(asked)) and set(asked) <= {NAMES[0], *fallbacks} - away
            if error is None:
                assert asked[-1] not in kinds
            elif len(asked) > 1 and kinds[asked[-1]] not in FINAL:
                assert all(f"{name} fails" in str(error) for name in asked)
            if asked[0] == NAMES[0] != asked[-1]:
                assert kinds[NAMES[0]] in OUTAGES

    anyio.run(run)
