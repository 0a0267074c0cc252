"""Cursors: points of a conversation at which it can be forked (a draft of ACP). There is one before each prompt, and
nothing of it is stored: its id has the message's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET, to_builtins

from acp_agent.loop.memory.rewinding import RewindError, TurnMark, before
from acp_agent.schema import acp
from acp_agent.store.base import LogEntry, read_stored

BEFORE = "before-"
CAN_FORK = acp.CursorCapabilities(fork=acp.WithMeta())


def begun(message_id: str) -> acp.CursorUpdate:
    """The first update of the cursor before this message of the user's."""
    anchor = acp.CursorAnchor(type="user_message", position="before", message_id=message_id)
    return acp.CursorUpdate(cursor_id=BEFORE + message_id, anchor=anchor, capabilities=CAN_FORK)


def changed(message_id: str, *, stands: bool) -> acp.CursorUpdate:
    """What can be done at it once the prompt was taken back, or restored."""
    return acp.CursorUpdate(cursor_id=BEFORE + message_id, capabilities=CAN_FORK if stands else None, anchor=UNSET)


def with_cursors(updates: list[dict[str, Any]], entries: Iterable[LogEntry]) -> Iterator[dict[str, Any]]:
    """The updates of a replay, with the cursor of each prompt behind its message."""
    prompts = {mark.message_id for mark in _marks(entries)}
    for update, following in zip(updates, [*updates[1:], {}], strict=False):
        yield update
        message_id = update.get("messageId")
        if message_id in prompts and message_id != following.get("messageId"):
            yield to_builtins(begun(str(message_id)))


def at_cursor(entries: list[LogEntry], cursor_id: str) -> list[LogEntry]:
    """What is left of the log before a cursor. Raises RewindError."""
    number = next((mark.number for mark in _marks(entries) if BEFORE + mark.message_id == cursor_id), 0)
    if not number:
        raise RewindError(f"it has no cursor {cursor_id[:80]!r}, or what followed that was taken back")
    return before(entries, number)


def _marks(entries: Iterable[LogEntry]) -> Iterator[TurnMark]:
    return (read_stored(entry.payload, type=TurnMark) for entry in entries if entry.kind == "turn")
