"""Counts repetitions: the same failure of the same call, the same round of a turn. Pure.

A stuck model costs the user time and money; it is told once, unmistakably, then stopped.
"""

from __future__ import annotations

import json

from acp_agent.errors import ToolError
from acp_agent.tools.kit.failures import PASSING


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
