"""As much of msgspec and its `structs` as the modules need that are sent to a host, where msgspec is not."""

from __future__ import annotations

import dataclasses
from typing import Any

field, replace = dataclasses.field, dataclasses.replace


class _Made(type):
    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], frozen: bool = False, **_: Any) -> Any:
        plain = super().__new__(cls, name, bases, body)
        if not bases:
            return plain
        made: Any = dataclasses.dataclass(frozen=frozen)(plain)
        made.__struct_fields__ = tuple(each.name for each in dataclasses.fields(made))
        return made


class Struct(metaclass=_Made):
    pass
