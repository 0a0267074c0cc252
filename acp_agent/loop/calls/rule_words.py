"""The rule that decided, as a sentence for the user. The audit log keeps the rule's short name."""

from __future__ import annotations

import re

from acp_agent.config.trusted_files import who_loads

__all__ = ["rule_words"]

KINDS = {
    "dangerous": "`{}` can run or change anything",
    "scope": "`{}` changes something",
    "wrapper": "`{}` runs another command",
    "looks": "`{}` only looks",
    "protected": "`{}` is protected",
    "key file": "`{}` may keep keys or passwords",
}
"""Words for rules with a name behind their kind: `dangerous:python3 -c`."""

NAMES = {
    "git init": "a repository within another one is asked about",
    "redirect": "its output goes to a file",
    "not literal": "a part of it is known only when it runs",
    "unknown": "it may change something",
    "edits ask": "edits are asked about",
    "deletions ask": "deletions are asked about",
    "the network asks": "requests to the network are asked about",
    "third-party tools ask": "tools of others are asked about",
    "switching the mode asks": "changes of the mode are asked about",
    "outside the project": "it is outside the project",
    "outside the sandbox": "it runs outside the sandbox",
    "understated risk": "the model must not understate a risk",
    "rules deny some commands": "some commands are denied, and this one cannot be told from them",
}

BETWEEN = re.compile(rf"; (?=(?:{'|'.join(KINDS)}):|{'|'.join(map(re.escape, NAMES))}|risk high:|tools\.)")
"""A name may contain "; " itself."""


def rule_words(rule: str) -> str:
    """A sentence that says what `rule`, the name of one or more rules, means."""
    said = dict.fromkeys(_words(name) for name in BETWEEN.split(rule))
    return f"The rules say that {' and that '.join(said)}."


def _words(name: str) -> str:
    kind, _, what = name.partition(":")
    if kind == "protected" and (row := who_loads(what.strip())) is not None:
        return f"{KINDS[kind].format(what.strip())} (loaded by {row.who} {row.when})"
    if kind in KINDS and what:
        return KINDS[kind].format(what.strip())
    if name.startswith("risk high:"):
        return "a high risk is asked about every time"
    if name.startswith("tools."):
        return f"your rule `{name}` decides"
    return NAMES.get(name, name)
