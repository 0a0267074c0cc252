"""Calls stopped by a limit in `[tools.scoped]`, and which of them the user allows.

`/approve ID` allows the next call of the same tool with the same arguments to exceed that limit, once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

MAX_VIOLATIONS = 50


class Approvals(Struct):
    """Approvals of one session."""

    _violations: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Call id -> the call and the limit it exceeded, in order."""
    _approved: dict[str, frozenset[str]] = field(default_factory=dict)
    """The call as text -> the limits it may exceed once."""

    def violated(self, call_id: str, tool: str, arguments: Mapping[str, Any], rule: str) -> None:
        self._violations[call_id] = (_what(tool, arguments), rule)
        while len(self._violations) > MAX_VIOLATIONS:
            del self._violations[next(iter(self._violations))]

    def find(self, beginning: str) -> str | None:
        """Returns the id of the violation with this prefix; `None` if there is none, or several."""
        found = [call_id for call_id in self._violations if call_id.startswith(beginning)]
        return found[0] if len(found) == 1 and beginning else None

    @property
    def pending(self) -> list[str]:
        return list(self._violations)

    def approve(self, call_id: str) -> str:
        """Approves the call and returns the limit it may exceed."""
        what, rule = self._violations.pop(call_id)
        self._approved[what] = self._approved.get(what, frozenset()) | {rule}
        return rule

    def of(self, tool: str, arguments: Mapping[str, Any]) -> frozenset[str]:
        """The limits that this call may exceed, once: until `take`."""
        return self._approved.get(_what(tool, arguments), frozenset())

    def take(self, tool: str, arguments: Mapping[str, Any], rules: frozenset[str]) -> bool:
        """It may run, exceeding these; false if another like it has taken the approval meanwhile."""
        what = _what(tool, arguments)
        left = self._approved.pop(what, frozenset())
        if not rules <= left:
            self._approved[what] = left
            return False
        if left - rules:
            self._approved[what] = left - rules
        return True


def _what(tool: str, arguments: Mapping[str, Any]) -> str:
    return f"{tool} {json.dumps(arguments, sort_keys=True, default=str)}"
