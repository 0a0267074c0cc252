"""Rounds of a turn that repeat themselves. Pure bookkeeping.

A stuck model costs the user time and money.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm.base import TextPart, ToolMessage, ToolUse

SETTING = '(`agent.doom_loop`). Say "continue" to go on.'

POLLS = frozenset(("bash_output", "bash_list", "capture_pane"))
"""Tools made to be called repeatedly."""


LONGEST_CIRCLE = 4
"""Rounds of a circle that is noticed: the same calls in the same order, again and again."""

UNIT = 0.1
"""Part of the repeated text that one repetition may be."""


class DoomLoop:
    """Whether a turn repeats itself: `limit` rounds in a row with the same calls or the same outputs, or as many
    circles of a few rounds."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rounds: list[str] = []
        """Calls and outputs of the last rounds that changed nothing."""
        self._asked, self._same = "", 0
        self._outputs: tuple[str, int] = ("", 0)

    def asked(self, calls: Sequence[ToolUse]) -> str | None:
        """Called before the calls of a round are run. Returns a message if they must not be."""
        if all(call.name in POLLS for call in calls):
            return None
        signature = "\n".join(f"{call.name} {_canonical(call.arguments)}" for call in calls)
        self._same = self._same + 1 if signature == self._asked else 1
        self._asked = signature
        if self._same < self._limit:
            return None
        names = ", ".join(dict.fromkeys(f"`{call.name}`" for call in calls))
        return f"The model asked for the same {names} {self._limit} times in a row, so the turn was stopped {SETTING}"

    def answered(self, results: Sequence[ToolMessage], *, progress: bool) -> str | None:
        """Called after a round. Returns a message if the turn must end. `progress`: something was changed; successful
        changes often have the same output."""
        if progress or all(result.name in POLLS for result in results):
            self._outputs = ("", 0)
            self._rounds = [] if progress else self._rounds
            return None
        texts = [part.text for result in results for part in result.content if isinstance(part, TextPart)]
        self._rounds.append("\0".join((self._asked, *texts)))
        del self._rounds[: -LONGEST_CIRCLE * self._limit]
        for length in range(2, LONGEST_CIRCLE + 1):
            rounds = self._rounds[-length * self._limit :]
            if len(rounds) == length * self._limit and rounds == rounds[:length] * self._limit:
                return (
                    f"The model went the same circle of {length} rounds {self._limit} times, so the turn was stopped "
                    f"{SETTING}"
                )
        self._outputs = _count(self._outputs, "\n".join(texts))
        if self._outputs[1] < self._limit:
            return None
        return f"The tools gave the same output {self._limit} times in a row, so the turn was stopped {SETTING}"


class Babble:
    """Whether a streamed text ends in one short text, again and again, for `limit` characters (0: never)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail = ""
        self._unseen = 0

    def heard(self, text: str) -> str | None:
        """Returns what is repeated, once it is."""
        if not self._limit:
            return None
        self._tail = (self._tail + text)[-self._limit :]
        self._unseen += len(text)
        if len(self._tail) < self._limit or self._unseen < self._limit * UNIT:
            return None
        self._unseen = 0
        period = _period(self._tail)
        return self._tail[:period] if period <= self._limit * UNIT else None


def _period(text: str) -> int:
    """The smallest number of characters after which the text repeats itself to its end (Knuth, Morris, Pratt)."""
    borders = [0] * len(text)
    border = 0
    for index in range(1, len(text)):
        while border and text[index] != text[border]:
            border = borders[border - 1]
        border += text[index] == text[border]
        borders[index] = border
    return len(text) - borders[-1]


def _count(before: tuple[str, int], text: str) -> tuple[str, int]:
    return text, before[1] + 1 if before[0] == text else 1


def _canonical(arguments: str) -> str:
    try:
        value: Any = read_loose_json(arguments, strict=False)
    except ValueError:
        return arguments.strip()
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
