"""Lines for a shell that several commands share: what would end it, or stay in it. Pure."""

from __future__ import annotations

import re

from acp_agent.safety.lines.line import read
from acp_agent.safety.lines.typed_line import LATER

APART = frozenset(("subshell", "command_substitution", "process_substitution", "stage"))
"""What runs in a shell of its own."""
ENDS = frozenset(("exit", "logout", "exec", "suspend"))
PREFIXES = frozenset(("builtin", "command", "eval", "time"))
ERREXIT = re.compile(r"-\w*[et]\w*|errexit|onecmd")
STAYS = re.compile(
    r"\b(?:hash|BASH_ALIASES|BASH_CMDS|source|eval|readonly|declare|typeset)\b|\b(?:PATH|IFS|TMOUT|PWD|BASH_\w+|LD_\w+)="
    r"|(?:^|[;&|({\n])\s*\.(?=\s)"
)
"""What later lines of the same shell are read or run by."""
ANYWHERE = re.compile(r"(?:^|[;&|{(\n]|\b(?:then|do|else)\b)\s*(exit|logout|exec|set\s+(?:-\w*e|-o\s+errexit))\b")
"""In lines that are not understood."""
MOST_NESTED = 4


def ends_shell(text: str, nesting: int = 0) -> str:
    """What in a line would end the shell that runs it, or make its next failure do that; empty if nothing would."""
    line = read(text)
    if not line.is_shell:
        found = ANYWHERE.search(text)
        return found[1] if found else ""
    for command in line.commands:
        if command.detached or any(around.kind in APART for around in command.around):
            continue
        words = list(command.simple.words)
        evaluated = False
        while words and words[0] in PREFIXES:
            evaluated = evaluated or words[0] == "eval"
            del words[0]
            while words and words[0].startswith("-"):
                del words[0]
        if not words:
            continue
        if words[0] in ENDS:
            return words[0]
        if words[0] == "set" and any(map(ERREXIT.fullmatch, words[1:])):
            return "set -e"
        if words[0] == "shopt" and "errexit" in words[1:]:
            return "shopt -o errexit"
        if evaluated and nesting < MOST_NESTED and (inner := ends_shell(" ".join(words), nesting + 1)):
            return inner
    return ""


def stays(text: str) -> str:
    """What in a line may decide what later lines of the same shell do; empty if nothing may."""
    if any(command.kind == "function_definition" for command in read(text).commands):
        return "a function"
    if found := LATER.search(text) or STAYS.search(text):
        return f"`{found[0].strip()}`"
    return ""
