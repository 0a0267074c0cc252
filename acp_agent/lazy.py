"""Loads a `"module:name"` row: the only way heavy or optional modules are imported after start-up."""

from __future__ import annotations

import re
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(row: str) -> Any:
    """Returns the object a `"module:name"` row names. Raises ImportError or AttributeError if the row is wrong."""
    module, _, name = row.partition(":")
    return getattr(import_module(module), name)


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern of ours, compiled when it is first used: most are not needed before the first answer, if ever."""
    return AtFirstUse(re.compile, text, flags)  # type: ignore[return-value]


class AtFirstUse:
    """What `make` returns for these arguments, made when it is first used."""

    def __init__(self, make: Any, *arguments: Any) -> None:
        self._make, self._arguments = make, arguments

    def __getattr__(self, name: str) -> Any:
        """Returns a method of what is made, and keeps it here. `make` remembers what it has made."""
        found = getattr(self._make(*self._arguments), name)
        setattr(self, name, found)
        return found
