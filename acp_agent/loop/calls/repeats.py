"""What repeats itself: the same failure of the same call, the same round of a turn. Pure bookkeeping.

A model that is stuck costs a person time and money; it is told once in words that cannot be misread, then stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from acp_agent.errors import ToolError
from acp_agent.llm.base import TextPart, ToolMessage, ToolUse
from acp_agent.tools.kit.failures import PASSING

POLLS = frozenset(("bash_output", "bash_list"))
"""Asking for the same again is what these are for."""


def call_key(name: str, arguments: object) -> str:
    """The same for the same call, whatever the order of its arguments."""
    return f"{name} {json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)}"


class RepeatedFailures:
    """Failures of this turn by call; a call that failed `limit` times in the same way is not run again.

    Passing failures and cancellations are not counted: they are not the call's fault.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: dict[str, tuple[str, int]] = {}

    def failed(self, name: str, arguments: object, error: ToolError) -> None:
        if error.category in PASSING or error.category == "cancelled":
            return
        key, text = call_key(name, arguments), str(error)
        before, count = self._seen.get(key, (text, 0))
        self._seen[key] = (text, count + 1 if before == text else 1)

    @property
    def any(self) -> bool:
        """Whether there is a failure that a change could undo."""
        return bool(self._seen)

    def changed(self) -> None:
        """Something was changed meanwhile: what failed may succeed now."""
        self._seen.clear()

    def remedy(self, name: str, arguments: object) -> ToolError | None:
        """What the model is told instead of running the call once more."""
        found = self._seen.get(call_key(name, arguments))
        if found is None or found[1] < self._limit:
            return None
        return ToolError(
            f"This exact call of `{name}` has failed {found[1]} times in the same way and was not run again. "
            f"The error was: {found[0]}",
            suggestion="Do one of these: change the arguments; find out first what the error names (read the file, "
            "list the folder); use another tool; or tell the person what is in the way.",
        )


class DoomLoop:
    """Whether a turn goes in circles: `limit` rounds in a row with the same calls, or with the same outputs."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: tuple[str, int] = ("", 0)
        self._outputs: tuple[str, int] = ("", 0)

    def asked(self, calls: Sequence[ToolUse]) -> str | None:
        """To be told before the calls of a round are run. A sentence where they must not be."""
        if all(call.name in POLLS for call in calls):
            return None
        signature = "\n".join(f"{call.name} {_canonical(call.arguments)}" for call in calls)
        self._calls = _count(self._calls, signature)
        if self._calls[1] < self._limit:
            return None
        names = ", ".join(dict.fromkeys(f"`{call.name}`" for call in calls))
        return f"The model asked for the same {names} {self._limit} times in a row, so the turn was stopped."

    def answered(self, results: Sequence[ToolMessage], *, progress: bool) -> str | None:
        """To be told after a round. A sentence where the turn is to end. `progress`: something was changed, and
        successful changes often say the same."""
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
