"""Loading of a `"module:name"` row: the one way something heavy or optional is imported after start."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(row: str) -> Any:
    """The object a `"module:name"` row names. Raises ImportError or AttributeError when the row is wrong."""
    module, _, name = row.partition(":")
    return getattr(import_module(module), name)
