"""A place to call tools in, as most tests want it, and a web site."""

import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.tools.kit import Bench, bench
from tests.tools.web_site import Authority, Site, serving_site


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Bench]:
    """The test is bounded: a bound here would end the loop in which it is closed."""
    async with bench(tmp_path, bound=math.inf) as made:
        yield made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Authority, dict[int, int]]]:
    with serving_site(tmp_path_factory.mktemp("site")) as made:
        yield made
