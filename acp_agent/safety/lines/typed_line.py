"""Lines for an interactive shell, which does more with them than `bash -c` does. Pure."""

from __future__ import annotations

import re

from acp_agent.safety.lines.line import read
from acp_agent.safety.lines.reach import NOT_UNDERSTOOD

KEYS = re.compile(r"[^\n -~]")
"""A tab completes, and without a UTF-8 locale the bytes of a letter are keys."""
HISTORY = re.compile(r"!(?![\s=(]|\Z)|^\^", re.MULTILINE)
"""Repeats or changes earlier lines."""
LATER = re.compile(
    r"\b(alias|bind|bindkey|complete|fc|history|zle|sched|trap|histchars|setopt|unsetopt|shopt|set|enable|builtin"
    r"|PROMPT\w*|R?PS\d|RPROMPT|ENV|BASH_ENV|HIST\w*|FCEDIT|EDITOR|VISUAL|precmd|preexec|chpwd|periodic|zshexit)\b"
)
"""Decides what later lines or the prompt run, and nothing where a shell is not interactive."""


def has_keys(text: str) -> bool:
    """Whether a shell may take a part of it for keys that change its line."""
    return KEYS.search(text) is not None


def not_alone(text: str) -> str:
    """Why an interactive shell may run something else for this line, or for a later one, than stands there, in words;
    empty if it runs just this."""
    if has_keys(text):
        return "it has characters that the shell may take for keys"
    line = read(text)
    if not line.is_shell or line.gap == NOT_UNDERSTOOD or re.search(r"(?<!\\)(?:\\\\)*\\\Z", text):
        return "it is not a whole command line, and what follows belongs to it"
    if HISTORY.search(text):
        return "it may repeat an earlier line (`!`, `^`)"
    if found := LATER.search(text):
        return f"`{found[1]}` may decide what later lines run"
    return ""
