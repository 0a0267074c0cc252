"""What HTTP offers, as data: addresses are routed and checked by it, and `openapi` tells it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from acp_agent.fronts.server.identities import Scope

FORMATS = {"uuid": "a UUID"}
"""In words."""


class NotSo(Exception):
    """What is asked cannot be answered."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Problem(msgspec.Struct, frozen=True):
    """What is answered instead."""

    error: str


class Nothing(msgspec.Struct, frozen=True):
    """Nothing can be asked for."""


Asked = TypeVar("Asked", bound=msgspec.Struct)


class Operation(msgspec.Struct, frozen=True):
    """A method at a path."""

    path: str
    ask: Callable[..., Awaitable[Any]]
    """Its docstring tells what it is, unless `words` do."""
    method: str = "GET"
    words: str = ""
    asked: type[msgspec.Struct] = Nothing
    """What an address says: the fields that `path` names, and the query."""
    answer: Any = None
    """The type of the JSON that is answered."""
    kinds: tuple[str, ...] = ()
    """Media types of what is answered, if not JSON."""
    status: int = 200
    others: tuple[tuple[int, str], ...] = ()
    """Statuses besides, in words."""
    other: Any = Problem
    """The type of the JSON of these; `None`: it is told in words."""
    scope: Scope | None = "watch"
    """What a token must have; `None`: none is needed."""
    paged: bool = False
    """Whether the header `Link` names the next page."""


def parameters(asked: type[msgspec.Struct]) -> tuple[dict[str, Any], list[str]]:
    """The JSON schemas of what can be asked for, and the names that have to be given."""
    found = msgspec.json.schema(asked)["$defs"][asked.__name__]
    return found["properties"], found["required"]


def read(asked: type[Asked], given: Mapping[str, str]) -> Asked:
    """Raises NotSo for what is not as `asked` has it."""
    try:
        return msgspec.convert(given, asked, strict=False)
    except msgspec.ValidationError as error:
        found = re.search(r"(?:\$\.|field `)(\w+)", str(error))
        assert found is not None
        raise NotSo(400, f"`{found[1]}` {_expected(parameters(asked)[0][found[1]])}") from error


def _expected(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"is one of {', '.join(schema['enum'])}"
    if "minimum" in schema:
        return f"is a number from {schema['minimum']} to {schema['maximum']}"
    return f"is {FORMATS[schema['format']]}" if "format" in schema else f"is missing: {schema['description']}"
