"""What each owner of a server has of their own: a store, and an audit log, whose end is recorded in that store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from acp_agent.config.model import Settings
from acp_agent.config.xdg import state_dir
from acp_agent.fronts.server.identities import MINE
from acp_agent.store.stores import schema_of


def owned(owner: str, settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The flags (`load_config`) by which it is theirs; none for what is the user's own."""
    if owner == MINE:
        return {}
    state = Path(state_dir(environ))
    log = Path(settings.audit.file).expanduser() if settings.audit.file else state / "audit.jsonl"
    return {
        "store.path": str(state / "owners" / owner / "sessions.db"),
        "store.schema": schema_of(settings.store.schema, owner),
        "audit.file": str(log.parent / "owners" / owner / log.name),
    }
