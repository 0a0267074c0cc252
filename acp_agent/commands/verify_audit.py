"""`acp-coder audit verify`: was anything in the audit log changed, inserted, removed or cut off?"""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from acp_agent.config.load import load_config
from acp_agent.config.safety_settings import AuditConfig
from acp_agent.errors import UsageError
from acp_agent.fronts.server.identities import NAME
from acp_agent.fronts.server.owned import owned
from acp_agent.loop.calls.session_rules import audit_path
from acp_agent.opening import open_store
from acp_agent.safety.deciding.audit import AuditLog
from acp_agent.safety.deciding.audit_chain import Checked, check, end_of, files_of
from acp_agent.safety.deciding.audit_file import AuditFile, Head
from acp_agent.store.audit_heads import AuditHeads

log = logging.getLogger(__name__)


def run(options: Namespace, environ: Mapping[str, str]) -> int:
    """0 if nothing is wrong, else 1. Raises UsageError, StoreError."""
    config = load_config(environ)
    if options.owner:
        config = load_config(environ, flags=owned(options.owner, config.settings, environ))
    path = audit_path(config, environ)
    if path is None:
        raise UsageError("there is no audit log: `audit.enabled` is off")
    path = path.resolve()
    if options.owner and not (NAME.fullmatch(options.owner) and path.parent.is_dir()):
        raise UsageError(f"there is no audit log of an owner {options.owner!r} in {path.parent.parent}")
    store = open_store(config, environ)
    try:
        return _run(path, config.settings.audit, store.audit_heads, accept=options.verb == "accept")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    finally:
        store.close()


def _run(path: Path, config: AuditConfig, heads: AuditHeads, *, accept: bool) -> int:
    if not files_of(path) and heads.read(str(path)) is None:
        sys.stdout.write(f"{path}: nothing has been logged yet\n")
        return 0
    with AuditFile(path, config.max_bytes, config.backups).locked():
        known = heads.read(str(path))
        done = check(path, Head(*known) if known is not None else None)
        if accept:
            end = end_of(path)
            last = max(end.count, known[0] if known is not None else 0)
            heads.write(str(path), last, end.hash, last + 1)
    if accept:
        why = f"audit log accepted by the user: {done.trouble or 'nothing was wrong'}"
        if not AuditLog(path, config, str, log.warning, heads).write("notice", reason=why):
            return 1
        sys.stdout.write(f"A new chain begins in {path}; what was there before is no longer checked.\n")
        return 0
    return _tell(path, done)


def _tell(path: Path, done: Checked) -> int:
    words = [f"{path}: ok, {done.lines} lines" + (f" from number {done.first} on" if done.first > 1 else "")]
    if done.trouble:
        words = [done.trouble, "If you changed the log yourself, `acp-coder audit accept` begins a new chain."]
    if done.before:
        words.append(f"{done.before} older lines are not part of the chain, so nothing is known about them")
    sys.stdout.write("\n".join([*words, *done.unrecorded]) + "\n")
    return 1 if done.trouble else 0
