"""The modes of a session, in the order they are offered. Cheap to import: the response to `session/new` needs it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ModeId = Literal["ask", "architect", "code", "auto"]


class Mode(Struct, frozen=True):
    id: ModeId
    name: str
    description: str
    changes: bool
    """Whether tools that change things are offered."""
    asks: bool
    """Whether the user is asked before changes."""
    extra_tools: frozenset[str] = frozenset()
    """Tools offered that other read-only modes do not have."""


MODES: dict[ModeId, Mode] = {
    "ask": Mode(
        "ask",
        "Ask",
        "Reads and answers; changes nothing",
        changes=False,
        asks=True,
        extra_tools=frozenset({"delegate"}),
    ),
    "architect": Mode(
        "architect",
        "Architect",
        "Reads and plans; changes nothing",
        changes=False,
        asks=True,
        extra_tools=frozenset({"plan", "switch_mode", "delegate"}),
    ),
    "code": Mode("code", "Code", "Works on the code; asks before changes", changes=True, asks=True),
    "auto": Mode("auto", "Auto", "Asks only about dangerous calls and where rules ask", changes=True, asks=False),
}


def known_mode(mode: str) -> ModeId:
    """The mode itself, or `code` for one that does not exist (any more)."""
    return mode if mode in MODES else "code"


def narrower(one: Mode, other: Mode) -> Mode:
    """The stricter of the two: the modes are in that order."""
    order = list(MODES)
    return min(one, other, key=lambda mode: order.index(mode.id))
