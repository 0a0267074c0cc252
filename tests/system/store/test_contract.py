"""The store's tests once more, on a real PostgreSQL."""

import uuid

import pytest

from tests.contracts import contract
from tests.postgres_server import PostgresServer
from tests.store import test_contract, test_found_words, test_leases, test_memories
from tests.store.conftest import opened, store
from tests.system.store import test_processes

__all__ = ["opened", "store"]


@pytest.fixture
def place(postgres: PostgresServer) -> tuple[str, str]:
    return postgres.url(), f"t_{uuid.uuid4().hex}"


for name in ("store", "opened", "place"):
    globals().update(contract(name, test_contract, test_found_words, test_leases, test_memories, test_processes))
