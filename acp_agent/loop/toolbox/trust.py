"""Whether a folder's own configuration takes effect. Cheap to import: the response to `session/new` needs it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from acp_agent.config.sources import PROJECT_FILE, Layer, parse
from acp_agent.config.xdg import plugin_index
from acp_agent.errors import ConfigError
from acp_agent.lazy import load
from acp_agent.store.session_store import SessionStore

TOOL = "trust"
"""The name under which trust is remembered among the permissions."""

OWN_FILES = "acp_agent.safety.folders.folder_trust:own_files"
SCOPE_OF = "acp_agent.safety.folders.folder_trust:scope_of"


def has_plugins(environ: Mapping[str, str]) -> bool:
    """Whether the user has added any."""
    return os.path.exists(plugin_index(environ))


def project_layer(folder: str, store: SessionStore) -> Layer | None:
    """The folder's configuration if the user trusts the folder's current files, else `None`.

    Raises ConfigError if it is trusted but cannot be read, and StoreError.
    """
    if not os.path.isfile(f"{folder}/{PROJECT_FILE}"):
        return None
    data = trusted_files(folder, store).get(PROJECT_FILE)
    if data is None:
        return None
    try:
        return parse(f"{folder}/{PROJECT_FILE}", data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{folder}/{PROJECT_FILE}: cannot be read: {error}") from error


def trusted_files(folder: str, store: SessionStore) -> dict[str, bytes]:
    """The folder's own files if the user trusts exactly these, else none. Raises StoreError."""
    folder = os.path.realpath(folder)  # Trusted is what is in it, by whatever name it was opened.
    files: dict[str, bytes] = load(OWN_FILES)(Path(folder))
    return files if are_trusted(folder, files, store) else {}


def are_trusted(folder: str, files: Mapping[str, bytes], store: SessionStore) -> bool:
    """Whether the user trusts exactly these files of a folder. Raises StoreError."""
    scope = load(SCOPE_OF)(files)
    return any(
        item.tool == TOOL and item.scope == scope and item.decision == "allow" for item in store.permissions(folder)
    )
