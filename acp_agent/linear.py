"""Regular expressions that cannot stall: RE2 (Cox 2007, "Regular Expression Matching Can Be Simple And Fast").

Search time is linear in the length of the text, whoever wrote the pattern or the text. The price: no back-references
and no look-around. The only module that imports re2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Protocol, cast

import re2

from acp_agent.lazy import AtFirstUse

MAX_PATTERN_CHARS = 512
"""Of a pattern that a user or a project wrote."""

MAX_MEMORY = 32 * 1024 * 1024
"""Bytes one pattern may take, its automaton included; beyond that a search restarts its automaton."""


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


class Match(Protocol):
    def start(self, group: int | str = 0) -> int: ...

    def end(self, group: int | str = 0) -> int: ...

    def group(self, group: int | str = 0) -> str: ...

    def groupdict(self) -> dict[str, str | None]: ...


class Pattern(Protocol):
    """The supported part of `re.Pattern`. Offsets count characters."""

    @property
    def pattern(self) -> str: ...

    def search(self, text: str) -> Match | None: ...

    def match(self, text: str) -> Match | None: ...

    def fullmatch(self, text: str) -> Match | None: ...

    def finditer(self, text: str) -> Iterator[Match]: ...

    def sub(self, replacement: str | Callable[[Match], str], text: str) -> str: ...


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Pattern:
    """The pattern in RE2's syntax (`(?i)`, `(?m)`, `(?s)` as in `re`). Raises PatternError."""
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    try:
        return cast(Pattern, re2.compile(pattern, options))
    except re2.error as error:
        words = error.args[0] if error.args else error
        if isinstance(words, bytes):
            words = words.decode("utf-8", "replace")
        raise PatternError(f"{words}") from error


def at_first_use(pattern: str) -> Pattern:
    """One of our own patterns, compiled on first use: most are not needed before the first answer, if ever."""
    return cast(Pattern, AtFirstUse(compiled, pattern))
