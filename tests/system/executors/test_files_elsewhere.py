"""The contract of files on other machines: with Python there, without, and in a container with busybox alone."""

import pytest

from tests.contracts import contract
from tests.executors import conftest, test_files, test_hidden, test_tree
from tests.executors.kit import FILES_ELSEWHERE


@pytest.fixture(params=FILES_ELSEWHERE)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


globals().update(contract("backend", test_files, test_hidden, test_tree, made_of_it="on"), on=conftest.on)
