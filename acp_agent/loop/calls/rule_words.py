"""Why a call is asked about, as one sentence for the user. The audit log keeps reason and rule as they are."""

from __future__ import annotations

import re

from acp_agent.config.trusted_files import who_loads
from acp_agent.safety.lines.reach import EXPANDS, NOT_UNDERSTOOD, WRITES

__all__ = ["asked_because"]

KINDS = {
    "dangerous": "`{}` can run or change anything",
    "scope": "`{}` changes something",
    "wrapper": "`{}` runs another command",
    "protected": "`{}` is protected",
}
"""Words for rules with a name behind their kind: `dangerous:python3 -c`."""

NAMES = {
    "git init": "it makes a repository within another one",
    "redirect": "its output goes to a file",
    "not literal": "a part of it is known only when it runs",
    "rules deny some commands": "some commands are denied, and this one cannot be told from them",
}

OTHERS = (
    "looks:", "key file:", "risk high:", "tools.", "unknown", "edits ask", "deletions ask", "the network asks",
    "third-party tools ask", "unclear keys ask", "switching the mode asks", "outside the project",
    "outside the sandbox", "understated risk", NOT_UNDERSTOOD,
)  # fmt: skip
"""How other rules begin, which say no more than the reason."""
BETWEEN = re.compile(rf"; (?=(?:{'|'.join(KINDS)}):|{'|'.join(map(re.escape, (*NAMES, *OTHERS)))})")
"""A name may contain "; " itself."""

VAGUE = frozenset(
    (
        "it may change something", "it changes a file that other programs trust",
        "it deletes what other programs trust", EXPANDS, WRITES,
    )
)  # fmt: skip
"""Reasons that say no more than such a rule."""


def asked_because(reason: str, rule: str) -> str:
    """One sentence: the user's own rule if there is one, the reason, and what a rule knows of it."""
    names = BETWEEN.split(rule) if rule else []
    facts = _facts([name for name in names if name in NAMES or name.partition(":")[0] in KINDS])
    reasons = [each for each in reason.split("; ") if not (facts and each in VAGUE)]
    if own := next((name for name in names if name.startswith("tools.")), ""):
        reasons = [f"your rule `{own}` asks", *(each for each in reasons if not each.startswith("one of your rules"))]
    return f"Asked because {' and '.join(dict.fromkeys((*reasons, *facts)))}."


def _facts(names: list[str]) -> list[str]:
    scopes = list(dict.fromkeys(f"`{name.partition(':')[2].strip()}`" for name in names if name.startswith("scope:")))
    together = f"{', '.join(scopes[:-1])} and {scopes[-1]} change something" if scopes[1:] else ""
    return [together if together and name.startswith("scope:") else _words(name) for name in names]


def _words(name: str) -> str:
    kind, _, what = name.partition(":")
    if kind == "protected" and (row := who_loads(what.strip())) is not None:
        return f"`{what.strip()}` is loaded by {row.who} {row.when}"
    return KINDS[kind].format(what.strip()) if kind in KINDS else NAMES[name]
