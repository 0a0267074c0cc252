"""The possible current directories of a shell after a command."""

from __future__ import annotations

from msgspec import Struct

from acp_agent.safety.lines.reach import Folders

Folded = Folders | None
"""Possible current directories of the shell; `None`: unknown."""


class Places(Struct, frozen=True):
    """Possible current directories after success and after failure."""

    success: Folded
    failure: Folded

    @property
    def either(self) -> Folded:
        return both(self.success, self.failure)


def both(one: Folded, other: Folded) -> Folded:
    return None if one is None or other is None else one | other
