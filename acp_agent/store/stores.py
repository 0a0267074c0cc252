"""Opens a store: in a file, or on a server."""

from __future__ import annotations

from pathlib import Path

from acp_agent.errors import StoreError
from acp_agent.lazy import load
from acp_agent.store.session_store import SessionStore
from acp_agent.store.sqlite import Sqlite

POSTGRES = "acp_agent.store.postgres:Postgres"
LIMITS = "acp_agent.store.postgres:Limits"
"""They bring psycopg, the extra `postgres`."""
SHA256 = "hashlib:sha256"
SCHEMA = "acp_coder"
LONGEST_NAME = 63
"""Bytes of a name in PostgreSQL."""
LONGEST_SCHEMA = 30
"""Characters of `store.schema` where the name of an owner is too long to stand behind it."""


def sqlite_store(path: Path, *, busy_timeout: float = 1.0) -> SessionStore:
    """The store in that file. `busy_timeout` in seconds. Raises StoreError."""
    return SessionStore(Sqlite(path, busy_timeout=busy_timeout))


def postgres_store(
    url: str,
    schema: str = SCHEMA,
    connections: int = 8,
    timeout: float = 30.0,
    busy_timeout: float = 1.0,
    away: float = 5.0,
) -> SessionStore:
    """The store of an owner on a server; the bounds are those of `postgres.Limits`. Raises StoreError."""
    try:
        limits = load(LIMITS)(connections, timeout, busy_timeout, away)
    except ImportError as error:
        words = f"store.url needs psycopg, the extra `postgres`: pip install 'acp-coder[postgres]' ({error})"
        raise StoreError(words) from error
    return SessionStore(load(POSTGRES)(url, schema, limits))


def schema_of(schema: str, owner: str) -> str:
    """The schema of one of several owners."""
    name = f"{schema}_{owner}"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    return f"{schema[:LONGEST_SCHEMA]}_{load(SHA256)(owner.encode()).hexdigest()[:32]}"
