"""`acp-coder sessions`: what the store holds."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from shutil import get_terminal_size

from acp_agent.config.load import load_config
from acp_agent.errors import UsageError
from acp_agent.lazy import load
from acp_agent.loop.memory.transcripts import as_json_lines, as_markdown
from acp_agent.opening import open_store
from acp_agent.store.base import ListedSession
from acp_agent.store.session_store import SessionStore
from acp_agent.store.spending_store import Spent, dollars

ALL = 1_000_000
SHORT_ID = 8
"""Characters of an id that are shown; every verb takes as many as are unique."""
IN_SESSION = "acp_agent.commands.one_prompt:in_session"
WRITE = "acp_agent.commands.session_recording:write"


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    store = open_store(load_config(environ), environ)
    try:
        if options.verb in ("undo", "redo", "checkpoints"):
            record = _find(store, options.id)
            store.close()
            return int(load(IN_SESSION)(options, record.id, record.cwd, environ))
        if options.verb == "list":
            _list(store, options.cwd)
        elif options.verb == "rename":
            store.change(_find(store, options.id).id, title=" ".join(options.title))
        elif options.verb == "export" and options.file:
            load(WRITE)(Path(options.file).absolute(), _find(store, options.id), store, environ)
        else:
            {"show": _show, "export": _export, "delete": _delete}[options.verb](store, _find(store, options.id))
    finally:
        store.close()
    return 0


def _find(store: SessionStore, beginning: str) -> ListedSession:
    exact = store.get(beginning)
    if exact is not None:
        return exact
    found = [record for record in store.sessions(cwd=None, before=None, limit=ALL) if record.id.startswith(beginning)]
    if not found or not beginning:
        raise UsageError(f"session {beginning!r} does not exist; `acp-coder sessions list` shows them")
    if len(found) > 1:
        raise UsageError(f"{len(found)} sessions begin with {beginning!r}; give more of the id")
    return found[0]


def _list(store: SessionStore, cwd: str | None) -> None:
    folder, spent = str(Path(cwd).absolute()) if cwd else None, store.spending.by_session()
    records = store.sessions(cwd=folder, before=None, limit=ALL)
    if not sys.stdout.isatty():  # For scripts.
        for record in records:
            sys.stdout.write(
                f"{record.id}  {record.updated_at[:16]}  {record.turns:>3}  {_cost(spent.get(record.id)):>8}  "
                f"{record.cwd}  {record.title or ''}\n"
            )
        return
    home, rows = str(Path.home()), [("ID", "LAST USED", "PROMPTS", "COST", "FOLDER", "TITLE")]
    for record in records:
        at = datetime.fromisoformat(record.updated_at).astimezone()
        where = f"~{record.cwd[len(home) :]}" if f"{record.cwd}/".startswith(f"{home}/") else record.cwd
        rows.append(
            (record.id[:SHORT_ID], f"{at:%Y-%m-%d %H:%M}", str(record.turns), _cost(spent.get(record.id)), where,
             record.title or "")
        )  # fmt: skip
    widths, wide = [max(map(len, column)) for column in zip(*rows, strict=True)], get_terminal_size().columns
    for row in rows if len(rows) > 1 else [("There are no sessions yet.",)]:
        sys.stdout.write("  ".join(map(str.ljust, row, widths))[:wide].rstrip() + "\n")


def _cost(spent: Spent | None) -> str:
    if spent is None:
        return "-"
    return f"{dollars(spent.cost)}+?" if spent.unpriced else dollars(spent.cost)


def _show(store: SessionStore, record: ListedSession) -> None:
    for line in as_markdown(record, store.entries(record.id)):
        sys.stdout.write(line + "\n")


def _export(store: SessionStore, record: ListedSession) -> None:
    for line in as_json_lines(record, store.entries(record.id)):
        sys.stdout.write(line + "\n")


def _delete(store: SessionStore, record: ListedSession) -> None:
    store.delete(record.id)
    sys.stdout.write(f"deleted {record.id}\n")
