"""The verdict on a tool call, combined from pure deciders: any deny denies, else any ask asks, else allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from acp_agent.lazy import load
from acp_agent.safety.access import (
    KEEPS,
    READ_VERB,
    REGISTRIES,
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
from acp_agent.safety.folders.paths import Roots

JUDGE = "acp_agent.safety.lines.examine:judge"
"""Loaded with the first command: it imports tree-sitter."""

EDIT_SCOPE = "edit *"
"""Scope of an "always" for an edit: the project's own files."""

DELETE_SCOPE = "delete *"
"""Scope of an "always" for a deletion: the project's own files and folders."""


def decide(accesses: Sequence[Access], roots: Roots, *, mode: str, may_change: bool) -> Verdict:
    """The verdict on a call that makes `accesses`, before rules and remembered answers."""
    return combine(judge_access(access, roots, mode, may_change) for access in accesses)


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Deny before ask before allow; several asks are merged into one that covers all."""
    asks: list[Ask] = []
    allowed: list[str] = []
    for verdict in verdicts:
        if isinstance(verdict, Deny):
            return verdict
        if isinstance(verdict, Ask):
            asks.append(verdict)
        else:
            allowed.append(verdict.rule)
    if not asks:
        return Allow("; ".join(dict.fromkeys(rule for rule in allowed if rule)))
    reasons = dict.fromkeys(ask.reason for ask in asks)
    scopes = dict.fromkeys(scope for ask in asks for scope in ask.scopes)
    words = dict.fromkeys(ask.scope_words for ask in asks)
    return Ask(
        "; ".join(reasons),
        tuple(scopes),
        " and ".join(words),
        changes=any(ask.changes for ask in asks),
        every_time=any(ask.every_time for ask in asks),
        by_person=any(ask.by_person for ask in asks),
        rule="; ".join(dict.fromkeys(ask.rule for ask in asks if ask.rule)),
        notes=tuple(dict.fromkeys(note for ask in asks for note in ask.notes)),
        wider=asks[0].wider if len(asks) == 1 else None,
    )


def _special(roots: Roots, path: Path, ask: Ask) -> Ask:
    """Asks about protected paths in every mode: no sandbox restricts tools as it does commands."""
    name = roots.rules.protects(path)
    if name is None:
        return replace(ask, rule="outside the project")
    return replace(ask, by_person=True, rule=f"protected: {name}")


def _key(access: PathAccess, name: str) -> Ask:
    """Asks about one key file in every mode; an answer covers this file."""
    done, what, verb = {
        "read": ("reads", "reads", READ_VERB),
        "write": ("changes", "edits", "edit"),
        "delete": ("deletes", "deletions", "delete"),
    }[access.mode]
    ask = Ask(f"it {done} {access.path.name}, which {KEEPS}", (f"{verb} = {access.path}",), f"{what} of {access.path}")
    changes = access.mode != "read"
    return replace(ask, changes=changes, every_time=access.in_tree, by_person=True, rule=f"key file: {name}")


def judge_access(access: Access, roots: Roots, mode: str, may_change: bool) -> Verdict:
    """The verdict on one access, from the session's folders and the mode."""
    match access:
        case NoAccess():
            return Allow()
        case PathAccess(_, path) if not roots.contains(path):
            return Deny(f"{path} is outside this session's folders.", "outside")
        case PathAccess(_, path) if roots.rules.hides(path):
            why = roots.rules.why_hidden(path)
            return Deny(f"{roots.display(path)} must not be read or changed ({why}).", "deny_read")
        case PathAccess("read", path):
            return Allow("reads") if (name := roots.rules.key_file(path)) is None else _key(access, name)
        case PathAccess(change, path):
            writes = change == "write"
            done, what, scope = ("changed", "edit", EDIT_SCOPE) if writes else ("deleted", "deletion", DELETE_SCOPE)
            if not may_change:
                return Deny(f"The mode `{mode}` is read-only; {roots.display(path)} was not {done}.", f"mode {mode}")
            if (name := roots.rules.key_file(path)) is not None:
                return _key(access, name)
            if roots.in_project(path) and not roots.rules.protects(path):
                reason = "it changes a file" if writes else "it deletes files"
                return Ask(reason, (scope,), f"{what}s in this project", rule=f"{what}s ask")
            reason = f"it {'changes a file that' if writes else 'deletes what'} other programs trust"
            ask = Ask(reason, (scope.replace("*", f"= {path}"),), f"{what}s of {path}", every_time=access.in_tree)
            return _special(roots, path, ask)
        case NetworkAccess(host, connects=True, at=at):
            place = f"{host} ({at})" if at else host
            more = (f"send as you = {place}",) if access.credential else ()
            with_it = " with your credential" if more else ""
            wider = (REGISTRIES, "well-known package registries (npm, PyPI, crates.io, …)")
            return Ask(
                "the running command waits for it",
                (f"send = {place}", *more),
                f"connections to {place}{with_it} in this project",
                by_person=True,
                rule="the network asks",
                wider=wider if access.registry and not access.credential else None,
            )
        case NetworkAccess(host, what, sends):
            if sends and not may_change:
                return Deny(f"The mode `{mode}` is read-only; {what} was not sent.", f"mode {mode}")
            verb, words = ("send", "requests that send something to") if sends else ("fetch", "fetches from")
            return Ask(
                f"it asks {host}", (f"{verb} = {host}",), f"{words} {host}", changes=sends, rule="the network asks"
            )
        case ToolAccess(words=words, changes=changes, once=once):
            if changes and not may_change:
                return Deny(f"The mode `{mode}` is read-only, so this was not done ({words}).", f"mode {mode}")
            rule = "unclear keys ask" if once else "third-party tools ask"
            return Ask(f"it asks for {words}", (access.answered,), words, changes=changes, every_time=once, rule=rule)
        case ModeAccess(target):
            reason = f"it leaves the mode `{mode}` for `{target}`"
            return Ask(reason, (), "", changes=False, every_time=True, rule="switching the mode asks")
        case ExecuteAccess(command, cwd):
            if not may_change:
                return Deny(f"The mode `{mode}` is read-only; no command was run.", f"mode {mode}")
            verdict: Verdict = load(JUDGE)(command, roots, cwd)
            return verdict
    raise AssertionError(f"unknown access {access!r}")
