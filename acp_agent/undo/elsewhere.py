"""The files of a session as they were before a prompt, put into another folder: the worktree of a fork."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread
from msgspec.structs import replace

from acp_agent.errors import AgentError
from acp_agent.store.operation_store import OperationStore
from acp_agent.undo.base import Entry
from acp_agent.undo.contents import Contents
from acp_agent.undo.operation_log import Log
from acp_agent.undo.pictures import OPEN, put


async def put_as_before(
    store: OperationStore, session_id: str, prompt: int, top: str, folder: str, contents: Contents
) -> list[str]:
    """Puts the files below `top` that a session changed below `folder`, as they were before a prompt (0: as they are).
    Returns what could not be, in words. Raises StoreError."""
    entries = await store.do(_entries_before, store, session_id, prompt)
    return await anyio.to_thread.run_sync(_put_below, entries, Path(top), Path(folder), contents)


def _entries_before(store: OperationStore, session_id: str, prompt: int) -> dict[Path, Entry]:
    """What was before that prompt (0: what was last) at each path that the session changed, as far as it is known.
    Raises StoreError."""
    log = Log(store, session_id)
    operations = log.operations()
    changes = log.changes_by_operation(operations)
    found: dict[Path, Entry] = {}
    settled: set[Path] = set()
    for operation in operations:
        for change in changes[operation.id]:
            if change.path in settled:
                continue
            if prompt and operation.prompt >= prompt:
                settled.add(change.path)
                found[change.path] = change.before
            elif change.after is not None:
                found[change.path] = change.after
    return found


def _put_below(entries: Mapping[Path, Entry], top: Path, folder: Path, contents: Contents) -> list[str]:
    """Puts what is below `top` at the same place below `folder`. Returns what could not be, in words."""
    words = []
    inside = {path: entry for path, entry in entries.items() if top in path.parents and ".git" not in path.parts}
    gone = [path for path, entry in inside.items() if entry.kind == "none"]
    there = [path for path, entry in inside.items() if entry.kind != "none"]
    gone.sort(key=lambda path: -len(path.parts))
    there.sort(key=lambda path: len(path.parts))
    steps = [(path, _open(inside[path])) for path in (*gone, *there)]
    steps += [(path, inside[path]) for path in there[::-1] if inside[path].kind == "dir"]  # Permissions come last.
    for path, entry in steps:
        place = folder / path.relative_to(top)
        try:
            if left := put(place, entry, contents):
                words.append(left)
        except FileNotFoundError:
            continue  # Its folder is not there either.
        except (AgentError, OSError) as error:
            words.append(f"{place} is not as it was: {error}")
    return words


def _open(entry: Entry) -> Entry:
    """A folder in which something can be made."""
    return replace(entry, mode=entry.mode | OPEN) if entry.kind == "dir" else entry
