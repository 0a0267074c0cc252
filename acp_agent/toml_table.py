"""Tables of the package that are data: a TOML file next to the module that uses it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from msgspec import toml

T = TypeVar("T")


def toml_table(module: str, kind: type[T]) -> T:
    """The table of a module (its `__file__`) as `kind`. Read it when first needed: that loads the parser."""
    return toml.decode(Path(module).with_suffix(".toml").read_bytes(), type=kind)
