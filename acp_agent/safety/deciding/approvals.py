"""Calls that a limit in `[tools.scoped]` stopped, and which of them the user allows.

`/approve ID` covers the next call of the same tool with the same arguments, once, and no other rule.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

MAX_VIOLATIONS = 50


class Approvals(Struct):
    """Of one session."""

    _violations: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Call id -> the call and the limit it exceeded; the newest last."""
    _approved: dict[str, frozenset[str]] = field(default_factory=dict)
    """The call as text -> the limits it may exceed once."""

    def violated(self, call_id: str, tool: str, arguments: Mapping[str, Any], rule: str) -> None:
        self._violations[call_id] = (_what(tool, arguments), rule)
        while len(self._violations) > MAX_VIOLATIONS:
            del self._violations[next(iter(self._violations))]

    def find(self, beginning: str) -> str | None:
        """The id of the violation with this prefix; `None` if there is none, or several."""
        found = [call_id for call_id in self._violations if call_id.startswith(beginning)]
        return found[0] if len(found) == 1 and beginning else None

    @property
    def pending(self) -> list[str]:
        return list(self._violations)

    def approve(self, call_id: str) -> str:
        """Returns the limit that the call may break."""
        what, rule = self._violations.pop(call_id)
        self._approved[what] = self._approved.get(what, frozenset()) | {rule}
        return rule

    def take(self, tool: str, arguments: Mapping[str, Any]) -> frozenset[str]:
        """The limits that this call may exceed, once."""
        return self._approved.pop(_what(tool, arguments), frozenset())

    def keep(self, tool: str, arguments: Mapping[str, Any], rules: frozenset[str]) -> None:
        """The call exceeded another limit as well and was not run: its approval is not used up."""
        if rules:
            self._approved[_what(tool, arguments)] = rules


def _what(tool: str, arguments: Mapping[str, Any]) -> str:
    return f"{tool} {json.dumps(arguments, sort_keys=True, default=str)}"
