"""Counts what repeats: the calls of a session, the same failure of the same call, the same round of a turn. Pure.

A stuck model costs the user time and money; it is told once, unmistakably, then stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from acp_agent.errors import ToolError
from acp_agent.llm.base import AssistantMessage, Message
from acp_agent.tools.kit.failures import PASSING


class CallQuota:
    """How often a session may call tools, until `/clear`. All calls of one message count once.

    `used` comes from the history: it survives restarts like the session. `limit` 0: no limit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    def take(self) -> ToolError | None:
        if self._limit and self.used >= self._limit:
            return ToolError(
                f"quota_blocked: this session has used its {self._limit} tool calls "
                "(`tools.max_tool_calls_per_session`). Nothing was run.",
                "policy_blocked",
                suggestion="Say what you have found so far and what is left. The user can reset the limit with /clear.",
            )
        self.used += 1
        return None

    def reset(self) -> None:
        self.used = 0

    def count(self, messages: Sequence[Message]) -> None:
        """Takes for used what this history has."""
        self.used = sum(isinstance(message, AssistantMessage) and bool(message.tool_calls) for message in messages)


def call_key(name: str, arguments: object) -> str:
    """The same for the same call, whatever the order of its arguments."""
    return f"{name} {json.dumps(arguments, sort_keys=True, ensure_ascii=False, default=str)}"


class RepeatedFailures:
    """Failures of this turn by call; a call that failed `limit` times in the same way is not run again.

    Temporary errors and cancellations do not count: they are not the call's fault.
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
        """Something was changed in the meantime: failed calls may succeed now."""
        self._seen.clear()

    def remedy(self, name: str, arguments: object) -> ToolError | None:
        """Returns the error the model gets instead of running the call once more."""
        found = self._seen.get(call_key(name, arguments))
        if found is None or found[1] < self._limit:
            return None
        return ToolError(
            f"This exact call of `{name}` has failed {found[1]} times in the same way and was not run again. "
            f"The error was: {found[0]}",
            suggestion="Do one of these: change the arguments; check what the error names first (read the file, list "
            "the folder); use another tool; or tell the user what blocks you.",
        )
