"""What is given to a function over there, and what it returns, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acp_agent.executors.base import FileStat, Tally
from acp_agent.executors.encodings import Decoded, Encoding

STRUCTS: Mapping[str, Any] = {made.__name__: made for made in (FileStat, Tally, Encoding, Decoded)}
PLAIN = (str, int, float, bool, type(None))


def packed(value: Any) -> Any:
    """Raises TypeError for what cannot be sent."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if isinstance(value, tuple):
        return {"tuple": [packed(each) for each in value]}
    if isinstance(value, (list, set, frozenset)):
        return [packed(each) for each in value]
    if isinstance(value, Mapping):
        return {"map": [[packed(key), packed(each)] for key, each in value.items()]}
    fields = value.__struct_fields__ if type(value).__name__ in STRUCTS else None
    if fields is None:
        raise TypeError(f"a {type(value).__name__} cannot be sent")
    return {type(value).__name__: [packed(getattr(value, name)) for name in fields]}


def unpacked(value: Any) -> Any:
    """Raises ValueError, TypeError for what `packed` does not make."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, list):
        return [unpacked(each) for each in value]
    ((kind, inner),) = value.items()
    if kind == "path":
        return Path(inner)
    if kind == "bytes":
        return inner.encode("latin-1")
    if kind == "tuple":
        return tuple(unpacked(each) for each in inner)
    if kind == "map":
        return {unpacked(key): unpacked(each) for key, each in inner}
    if kind not in STRUCTS:
        raise ValueError("no such value")
    return STRUCTS[kind](*(unpacked(each) for each in inner))
