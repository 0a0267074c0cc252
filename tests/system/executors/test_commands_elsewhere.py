"""The contract of commands on other machines and in containers."""

import pytest

from tests.contracts import contract
from tests.executors import conftest, test_commands
from tests.executors.kit import COMMANDS_ELSEWHERE


@pytest.fixture(params=COMMANDS_ELSEWHERE)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


globals().update(contract("backend", test_commands, made_of_it="on"), on=conftest.on)
