"""Opens a store."""

from __future__ import annotations

from pathlib import Path

from acp_agent.store.session_store import SessionStore
from acp_agent.store.sqlite import Sqlite


def sqlite_store(path: Path, *, busy_timeout: float = 1.0) -> SessionStore:
    """The store in that file. `busy_timeout` in seconds. Raises StoreError."""
    return SessionStore(Sqlite(path, busy_timeout=busy_timeout))
