"""The backends that each contract of executors is run with; `tests/system/executors` has the others."""

import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.executors.kit import Stage, stage


@pytest.fixture(params=["local", "editor"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def on(backend: str, tmp_path: Path) -> AsyncIterator[Stage]:
    """Where such a backend works. The test is bounded: a bound here would end the loop in which it is closed."""
    async with stage(backend, tmp_path, bound=math.inf) as made:
        yield made
