"""Outputs too long for the model, stored in full with their session."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from acp_agent.errors import StoreConflict, StoreError
from acp_agent.store.base import OverflowEntry, OverflowPart
from acp_agent.store.database import Part, clean, now

CUT = "\n[... {} bytes omitted ...]\n"
"""Marks where an output exceeded the size of an entry."""


class OverflowStore(Part):
    """All methods raise StoreError."""

    def keep(self, session_id: str, tool: str, text: str, max_bytes: int) -> OverflowEntry:
        """Stores `text`, at most `max_bytes` of it in UTF-8 (0: all; else the middle is left out)."""
        kept = _fitting(text if text.isascii() else clean(text), max_bytes)
        entry = OverflowEntry(str(uuid.uuid4()), tool, len(kept), now(), complete=len(kept) == len(text))
        try:
            self._db.change(
                "INSERT INTO tool_overflow (id, session_id, tool, created_at, chars, complete, content) "
                "VALUES (?,?,?,?,?,?,?)",
                *(entry.id, session_id, tool, entry.created_at, entry.chars, int(entry.complete), kept),
            )
        except StoreConflict as error:
            raise StoreError(f"session {session_id} was deleted and can store nothing more") from error
        return entry

    def read(self, session_id: str, entry_id: str, offset: int, limit: int) -> OverflowPart | None:
        """`limit` characters from `offset`; `None` where this session has no such entry."""
        rows = self._db.rows(
            "SELECT id, tool, chars, created_at, complete, substr(content, ?, ?) FROM tool_overflow "
            "WHERE id = ? AND session_id = ?",
            *(offset + 1, limit, entry_id, session_id),
        )
        if not rows:
            return None
        id_, tool, chars, created_at, complete, text = rows[0]
        return OverflowPart(OverflowEntry(id_, tool, chars, created_at, bool(complete)), offset, text)

    def expire(self, days: float) -> int:
        """Removes older entries; returns how many."""
        limit = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return self._db.change("DELETE FROM tool_overflow WHERE created_at < ?", limit)


def _fitting(text: str, max_bytes: int) -> str:
    """`text`, its middle left out where it has more than `max_bytes` (0: no limit) in UTF-8."""
    if not max_bytes or len(text) * (1 if text.isascii() else 4) <= max_bytes:
        return text
    data = text.encode("utf-8")
    if len(data) <= max_bytes:
        return text
    half = max_bytes // 2
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{head}{CUT.format(len(data) - 2 * half)}{tail}"
