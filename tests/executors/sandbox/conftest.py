from collections.abc import Iterator

import pytest

from tests.executors.sandbox.kit import Runner, runner


@pytest.fixture(scope="session")
def root_runner() -> Iterator[Runner]:
    with runner("root") as started:
        yield started


@pytest.fixture(scope="session")
def ordinary_runner() -> Iterator[Runner]:
    with runner("ordinary") as started:
        yield started


@pytest.fixture
def run_as(request: pytest.FixtureRequest) -> Runner:
    """The runner of the user the test is parametrised with."""
    found = request.getfixturevalue(f"{request.param}_runner")
    assert isinstance(found, Runner)
    return found
