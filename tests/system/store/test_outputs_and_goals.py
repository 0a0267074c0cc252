"""What a store keeps of outputs and goals, once more on a real PostgreSQL."""

from tests.contracts import contract
from tests.store import test_overflow_and_goals
from tests.store.conftest import opened
from tests.store.test_overflow_and_goals import store
from tests.system.store.test_contract import place

__all__ = ["opened", "place", "store"]

globals().update(contract("store", test_overflow_and_goals))
