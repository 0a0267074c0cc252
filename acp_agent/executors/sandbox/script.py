"""A confined command as a bash script, for a terminal that is not ours."""

from __future__ import annotations

import re
import shlex

from acp_agent.executors.sandbox.base import Confined

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

FROM_TERMINAL = ("TERM", "COLORTERM")
"""Variables that only the terminal knows."""

FORGET = """\
exec </dev/null
for fd in /proc/self/fd/*; do fd=${fd##*/}; case $fd in 0|1|2|255) ;; *) eval "exec $fd>&-" ;; esac; done
export -n $(compgen -e)
unset -f $(compgen -A function) 2>/dev/null
"""
"""Drops the terminal's descriptors and variables. Not with `env -i`: everyone can read its arguments."""


def confined_script(confined: Confined) -> str:
    """The script. It waits for the command instead of exec'ing it: a sandboxed command dies with its parent, and the
    editor may be anything."""
    lines = [FORGET.rstrip()]
    for name, value in confined.env.items():
        if NAME.fullmatch(name) and name not in FROM_TERMINAL:
            lines.append(f"export {name}={shlex.quote(value)}")
    lines += [f'[ -z "${name}" ] || export {name}' for name in FROM_TERMINAL]
    for fd, path in confined.files.items():
        lines.append(f"exec {fd}{'<>' if fd in confined.written else '<'}{shlex.quote(str(path))} || exit 126")
    lines.append(f"cd -- {shlex.quote(str(confined.cwd))} || exit 126")
    lines.append(" ".join(shlex.quote(word) for word in confined.argv))
    lines.append("exit $?")
    return "\n".join(lines) + "\n"
