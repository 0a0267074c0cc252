"""A host that is reached by the user's own `ssh`, with the user's configuration, keys and jump hosts.

One connection carries everything (`far/far_link.py`). Host keys are always checked; nothing is asked on a terminal.
"""

from __future__ import annotations

import hashlib
import shlex
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from acp_agent.errors import ExecutorError
from acp_agent.own_programs import find_program

OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ControlMaster=no",
    "ControlPath=none",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ConnectTimeout=15",
)
DIGEST = 16
"""Digits that stand for the arguments: a port makes another host."""
RUNS = 'eval "$(printf %b "$0")"'
"""Whatever shell the user has there: the rest of its command line has no character that any of them reads otherwise."""


class Ssh:
    """`target`: `[USER@]HOST`, as the user's configuration has it. `arguments`: more of `ssh`'s."""

    def __init__(
        self, target: str, environ: Mapping[str, str], folders: Sequence[Path] = (), arguments: Sequence[str] = ()
    ) -> None:
        """`folders`: the session's on this machine, in which no program of ours is looked for."""
        if not target or target.startswith("-") or any(char.isspace() or not char.isprintable() for char in target):
            raise ExecutorError(f"{target!r} is no host: [USER@]HOST is expected")
        self.words, self.where = f"host {target}", f"on host {target}"
        self.where = f"on {self.words}"
        more = hashlib.sha256("\0".join(arguments).encode()).hexdigest()[:DIGEST] if arguments else ""
        self.identity = f"{self.words}{more and ' '}{more}"
        self.mark = uuid.uuid4().hex
        self.environ = environ
        self._target = target
        self._arguments = tuple(arguments)
        self._folders = folders

    def argv(self, *argv: str, terminal: bool = False) -> tuple[str, ...]:
        program = find_program("ssh", self.environ, self._folders)
        if program is None:
            raise ExecutorError(f"{self.words} cannot be reached: there is no `ssh` on this machine")
        options = [part for option in OPTIONS for part in ("-o", option)]
        sent = "".join(
            char if char.isascii() and char.isalnum() else "".join(f"\\0{byte:03o}" for byte in char.encode())
            for char in f"exec {shlex.join(argv)}"
        )
        tty = ("-tt", "-o", "RequestTTY=force", "-o", "LogLevel=ERROR") if terminal else ("-T", "-o", "RequestTTY=no")
        return (program, *tty, *options, *self._arguments, "--", self._target, f"sh -c '{RUNS}' '{sent}'")
