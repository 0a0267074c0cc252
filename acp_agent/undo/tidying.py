"""Done once when an agent starts: undos of killed agents are finished; what is too old or too much is dropped."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from acp_agent.config.model import UndoConfig
from acp_agent.store.session_store import SessionStore
from acp_agent.undo.contents import Contents
from acp_agent.undo.operation_log import entry_of
from acp_agent.undo.restore import recover

FULL, ENOUGH = 0.9, 0.7
"""Parts of the quota: from the first on, the oldest operations are dropped, down to the second."""
AT_ONCE = 100
"""Operations dropped before it is looked again how much is free."""


def tidy(store: SessionStore, state: Path, config: UndoConfig) -> list[str]:
    """Returns what the user should know. Blocking; `store`: one of its own. Raises StoreError."""
    folder = state / "undo"
    if not folder.is_dir():
        return []
    contents = Contents(folder / "contents")
    words = recover(store.operations, contents)
    oldest = datetime.now(UTC) - timedelta(days=config.retention_days)
    store.operations.expire(oldest.isoformat(timespec="microseconds").replace("+00:00", "Z"))
    contents.sweep(_live(store.operations.entries()))
    if config.quota_bytes and contents.used() > config.quota_bytes * FULL:
        while contents.used() > config.quota_bytes * ENOUGH and (old := store.operations.oldest(AT_ONCE)):
            store.operations.remove(old)
            if not contents.sweep(_live(store.operations.entries())) and not store.operations.oldest(1):
                break
    return words


def _live(entries: Iterable[str]) -> set[str]:
    """The contents that these entries refer to."""
    found = (entry_of(text) for text in entries)
    return {name for entry in found for name in (entry.content, entry.unsaved) if name}
