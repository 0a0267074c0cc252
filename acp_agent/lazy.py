"""Loads a `"module:name"` row: the only way heavy or optional modules are imported after start-up."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(row: str) -> Any:
    """Returns the object a `"module:name"` row names. Raises ImportError or AttributeError if the row is wrong."""
    module, _, name = row.partition(":")
    return getattr(import_module(module), name)
