"""A line of bash that removes all variables from a shell's environment except listed ones, and every credential."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

PLAIN = re.compile(r"[A-Za-z0-9_*]+")
"""Patterns that may be in a `case` as they are."""


def scrubbing(allowed: Sequence[str], never: Sequence[str], kept: Iterable[str]) -> str:
    """`allowed` and `never` are globs of names, `kept` names that always stay. Ends with a semicolon.

    Works with bash 3.2 (macOS), and sets no variable that is left behind.
    """
    names = "|".join(name for name in (*kept, "BASH*", "SHLVL", "_", "IFS", "PS?") if PLAIN.fullmatch(name.rstrip("?")))
    inherited = "|".join(name for name in allowed if PLAIN.fullmatch(name)) or "''"
    secret = "|".join(name for name in never if PLAIN.fullmatch(name)) or "''"
    drop = 'unset "$ACP_CODER_NAME"'
    cases = f"{names}) ;; {secret}) {drop};; {inherited}) ;; *) {drop};;"
    return (
        f"shopt -s nocasematch; for ACP_CODER_NAME in $(compgen -e); do case $ACP_CODER_NAME in {cases} esac; done "
        "2>/dev/null; shopt -u nocasematch; unset ACP_CODER_NAME;"
    )
