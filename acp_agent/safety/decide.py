"""The verdict on a tool call, composed of pure deciders: any deny denies, else any ask asks, else allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acp_agent.safety.access import (
    Access,
    Allow,
    Ask,
    Deny,
    ExecuteAccess,
    ModeAccess,
    NetworkAccess,
    NoAccess,
    PathAccess,
    ToolAccess,
    Verdict,
)
from acp_agent.safety.paths import Roots
from acp_agent.safety.shell import judge

__all__ = ["DELETE_SCOPE", "EDIT_SCOPE", "combine", "decide"]

EDIT_SCOPE = "edit *"
"""What an "always" for an edit covers: edits of the project's own files."""

DELETE_SCOPE = "delete *"
"""What an "always" for a deletion covers: the project's own files and folders."""

PROTECTED = frozenset((".git", ".acp-agent", ".vscode", ".idea", ".mcp.json", ".envrc"))
"""What makes programs run other programs: each such file is asked about by itself, as is one outside of the project."""


def decide(accesses: Sequence[Access], roots: Roots, *, mode: str, may_change: bool) -> Verdict:
    """What the rules say of a call that touches `accesses`, before any remembered answer."""
    return combine(_one(access, roots, mode, may_change) for access in accesses)


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Deny before ask before allow; several asks become one that covers all."""
    asks: list[Ask] = []
    for verdict in verdicts:
        if isinstance(verdict, Deny):
            return verdict
        if isinstance(verdict, Ask):
            asks.append(verdict)
    if not asks:
        return Allow()
    reasons = dict.fromkeys(ask.reason for ask in asks)
    scopes = dict.fromkeys(scope for ask in asks for scope in ask.scopes)
    words = dict.fromkeys(ask.scope_words for ask in asks)
    return Ask(
        "; ".join(reasons),
        tuple(scopes),
        " and ".join(words),
        changes=any(ask.changes for ask in asks),
        every_time=any(ask.every_time for ask in asks),
    )


def _one(access: Access, roots: Roots, mode: str, may_change: bool) -> Verdict:
    match access:
        case NoAccess():
            return Allow()
        case PathAccess(_, path) if not roots.contains(path):
            return Deny(f"{path} is outside of the folders of this session.")
        case PathAccess("read", _):
            return Allow()
        case PathAccess("write", path):
            if not may_change:
                return Deny(f"The mode `{mode}` only reads; {roots.display(path)} was not changed.")
            if roots.in_project(path) and not PROTECTED.intersection(path.parts):
                return Ask("it changes a file", (EDIT_SCOPE,), "edits in this project")
            return Ask("it changes a file that other programs trust", (f"edit = {path}",), f"edits of {path}")
        case PathAccess("delete", path):
            if not may_change:
                return Deny(f"The mode `{mode}` only reads; {roots.display(path)} was not deleted.")
            if roots.in_project(path) and not PROTECTED.intersection(path.parts):
                return Ask("it deletes files", (DELETE_SCOPE,), "deletions in this project")
            return Ask("it deletes what other programs trust", (f"delete = {path}",), f"deletions of {path}")
        case NetworkAccess(host, what, sends):
            if sends and not may_change:
                return Deny(f"The mode `{mode}` only reads; {what} was not sent.")
            verb, words = ("send", "requests that send something to") if sends else ("fetch", "fetches from")
            return Ask(f"it asks {host}", (f"{verb} = {host}",), f"{words} {host}", changes=sends)
        case ToolAccess(scope, words, changes):
            if changes and not may_change:
                return Deny(f"The mode `{mode}` only reads, so this was not done ({words}).")
            return Ask(f"it asks for {words}", (scope,), words, changes=changes)
        case ModeAccess(target):
            return Ask(f"it leaves the mode `{mode}` for `{target}`", (), "", changes=False, every_time=True)
        case ExecuteAccess(command, cwd):
            if not may_change:
                return Deny(f"The mode `{mode}` only reads; no command was run.")
            return judge(command, roots, cwd)
    raise AssertionError(f"unknown access {access!r}")
