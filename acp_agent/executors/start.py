"""Starting a process on this machine: as it is, or confined."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from acp_agent.child import User
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command
from acp_agent.executors.sandbox.base import Confined, Invocation
from acp_agent.lazy import load
from acp_agent.own_programs import find_bash

if TYPE_CHECKING:
    from acp_agent.executors.terminals.pseudo_terminal import Pty

Confine = Callable[[Invocation, Command], Confined]
"""Returns the command as it runs in the sandbox. Raises ExecutorError where it must not be run."""


PROXY_NAMES = "acp_agent.executors.sandbox.proxy.proxy_environment:NAMES"


def of_its_own(command: Command) -> Sequence[str]:
    """Variables that each command gets anew: those of its way to the network."""
    names: Sequence[str] = load(PROXY_NAMES) if command.network is not None else ()
    return names


def start(
    argv: tuple[str, ...],
    cwd: Path,
    environ: Mapping[str, str],
    command: Command,
    pass_fds: tuple[int, ...] = (),
    user: User | None = None,
    terminal: Pty | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """The process, in a session of its own; no descriptor of this process gets into it but `pass_fds`. `terminal`: its
    three streams; else they are `stdin` and two pipes. `argv`: a shell that begins with `as_before`, or `behind` it."""
    streams = (stdin, subprocess.PIPE, subprocess.PIPE)
    if terminal is not None:
        argv = terminal.argv(find_bash(environ, ()), argv)
        streams = (terminal.theirs,) * 3
    try:
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=environ,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
            pass_fds=pass_fds,
            **(user.popen if user is not None else {}),
        )
    except (OSError, ValueError) as error:
        if not command.cwd.is_dir():
            raise ExecutorError(f"the working directory {command.cwd} does not exist") from error
        raise ExecutorError(f"the command could not be started: {error}") from error


def start_confined(
    confined: Confined, command: Command, user: User | None = None, terminal: Pty | None = None
) -> subprocess.Popen[bytes]:
    """The same in the sandbox. The caller closes `confined` once the process has ended, or this raises."""
    numbers: dict[int, int] = {}
    try:
        numbers = confined.open_files()
        fds = tuple(numbers.values())
        return start(confined.argv_with(numbers), confined.cwd, confined.env, command, fds, user, terminal)
    except OSError as error:
        raise ExecutorError(f"the sandbox could not be set up: {error}") from error
    finally:
        for fd in numbers.values():
            os.close(fd)
