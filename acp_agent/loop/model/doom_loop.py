"""Rounds of a turn that repeat themselves. Pure bookkeeping.

A stuck model costs the user time and money.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from acp_agent.llm.base import TextPart, ToolMessage, ToolUse

POLLS = frozenset(("bash_output", "bash_list"))
"""Tools made to be called repeatedly."""


class DoomLoop:
    """Whether a turn repeats itself: `limit` rounds in a row with the same calls or the same outputs."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: tuple[str, int] = ("", 0)
        self._outputs: tuple[str, int] = ("", 0)

    def asked(self, calls: Sequence[ToolUse]) -> str | None:
        """Called before the calls of a round are run. Returns a message if they must not be."""
        if all(call.name in POLLS for call in calls):
            return None
        signature = "\n".join(f"{call.name} {_canonical(call.arguments)}" for call in calls)
        self._calls = _count(self._calls, signature)
        if self._calls[1] < self._limit:
            return None
        names = ", ".join(dict.fromkeys(f"`{call.name}`" for call in calls))
        return f"The model asked for the same {names} {self._limit} times in a row, so the turn was stopped."

    def answered(self, results: Sequence[ToolMessage], *, progress: bool) -> str | None:
        """Called after a round. Returns a message if the turn must end. `progress`: something was changed; successful
        changes often have the same output."""
        if progress or all(result.name in POLLS for result in results):
            self._outputs = ("", 0)
            return None
        texts = [part.text for result in results for part in result.content if isinstance(part, TextPart)]
        self._outputs = _count(self._outputs, "\n".join(texts))
        if self._outputs[1] < self._limit:
            return None
        return f"The tools gave the same output {self._limit} times in a row, so the turn was stopped."


def _count(before: tuple[str, int], text: str) -> tuple[str, int]:
    return text, before[1] + 1 if before[0] == text else 1


def _canonical(arguments: str) -> str:
    try:
        value: Any = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return arguments.strip()
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
