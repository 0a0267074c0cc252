"""Reads JSON and TOML that others wrote: whatever it is, the only error is a ValueError (msgspec's is one).

The standard library's and msgspec's decoders raise RecursionError for deep nesting, and what they just manage to read
is too deep for whoever walks through it later.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from acp_agent.lazy import load

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

TOO_DEEP = "it is nested too deeply"
DEEPEST = 200
"""Levels of lists and objects."""
_JSON_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
TOML = "tomllib:loads"
BOM = "\ufeff"
"""Editors of Windows begin files with it."""


@overload
def read_json(data: bytes | bytearray | str) -> Any: ...
@overload
def read_json(data: bytes | bytearray | str, type: type[T]) -> T: ...
def read_json(data: bytes | bytearray | str, type: Any = Any) -> Any:
    """The JSON as a value of `type`. Raises ValueError."""
    _check_depth(data)
    return _decoded(msgspec.json.decode, _without_bom(data), type=type)


def read_loose_json(text: bytes | bytearray | str, **options: Any) -> Any:
    """The same as Python reads it: with NaN, and half surrogates. `options` of `json.loads`. Raises ValueError."""
    _check_depth(text)
    return _decoded(json.loads, _without_bom(text), **options)


def read_toml(text: str) -> dict[str, Any]:
    """Raises ValueError."""
    found: dict[str, Any] = _decoded(load(TOML), text.removeprefix(BOM))
    return found


def _without_bom(data: bytes | bytearray | str) -> bytes | bytearray | str:
    return data.removeprefix(BOM) if isinstance(data, str) else data.removeprefix(BOM.encode())


def _decoded(decode: Callable[..., T], data: bytes | bytearray | str, **options: Any) -> T:
    try:
        return decode(data, **options)
    except UnicodeError as error:
        raise msgspec.DecodeError(str(error)) from error
    except RecursionError as error:
        raise msgspec.DecodeError(TOO_DEEP) from error


def _check_depth(text: bytes | bytearray | str) -> None:
    opening = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if opening <= DEEPEST:
        return
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    depth = 0
    for mark in _JSON_MARKS.finditer(data):
        first = data[mark.start()]
        depth += (first in b"[{") - (first in b"]}")
        if depth > DEEPEST:
            raise msgspec.DecodeError(TOO_DEEP)
