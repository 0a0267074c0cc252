"""The tests of a contract, once more for other backends than those of their own folder."""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any


def contract(fixture: str, *modules: ModuleType, made_of_it: str = "") -> dict[str, Callable[..., Any]]:
    """The tests of these modules that use the fixture, by name: `globals().update(contract("backend", test_files))`.

    The module that takes them has a fixture of that name, with its own backends. `made_of_it`: another fixture that
    uses it; the module has it, too."""
    found: dict[str, Callable[..., Any]] = {}
    for module in modules:
        for name, test in vars(module).items():
            if name.startswith("test_") and callable(test) and _uses({fixture, made_of_it}, test):
                assert name not in found, f"two tests are called {name}"
                found[name] = test
    assert found, f"no test uses {fixture}"
    return found


def _uses(fixtures: set[str], test: Callable[..., Any]) -> bool:
    return not fixtures.isdisjoint(inspect.signature(test).parameters)
