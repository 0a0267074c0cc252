"""A command in a terminal in a place: a pty here, at the end of what leads there (`podman exec --tty`, `ssh -tt`).

What needs values is in a file over there, which removes itself, so that none is on a command line. Who gets the keys
there cannot be seen from here, so what is typed is asked about, and judged as a command.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio

from acp_agent.executors.base import Command, Foreground, shell_options
from acp_agent.executors.local import IN_TERMINAL
from acp_agent.executors.places.starter import exports
from acp_agent.executors.sandbox.base import Confined
from acp_agent.executors.shell_state import load_state, with_state
from acp_agent.executors.start import start
from acp_agent.executors.terminals.process import TerminalProcess
from acp_agent.executors.terminals.pseudo_terminal import UNQUIET, open_pty, unquieted

FINISH = 10.0
"""Seconds for an end over there."""


def terminal_script(command: Command, shell: str, environ: Mapping[str, str]) -> bytes:
    """For the shell there, as a file."""
    lines = ['rm -f "$0"']
    if state := load_state(command.state_file).decode("utf-8", "surrogateescape"):
        lines.append(f"{{ {state}\n}} 2>/dev/null; {unquieted(IN_TERMINAL)}")
    lines.append(exports(terminal_environ(command, environ)))
    lines.append(f"cd -- {shlex.quote(str(command.cwd))} || exit 126")
    lines.append(f"exec {shlex.join([shell, *shell_options(command), '-c', command.script])}\n")
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def terminal_environ(command: Command, environ: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in environ.items() if name not in UNQUIET}
    return {**own, **command.env, "TERM": IN_TERMINAL}


def confined_argv(command: Command, shell: str, state: Path) -> list[str]:
    """What is to be confined; it finds the shell's state in a file."""
    script = with_state(command.script, state, keep=False, then=unquieted(IN_TERMINAL))
    return [shell, *shell_options(command), "-c", script]


def confined_script(confined: Mapping[str, Any]) -> bytes:
    """The same as `terminal_script` for what is confined, of which this is how it begins (`Side`)."""
    lines = ['rm -f "$0"', "unset TMPDIR XDG_RUNTIME_DIR", exports(confined["env"])]
    lines.append(f"cd -- {shlex.quote(confined['cwd'])} || exit 126")
    for number, path, written in confined["files"]:
        lines.append(f"exec {int(number)}{'<>' if written else '<'}{shlex.quote(path)} || exit 126")
    lines.append(f"exec {shlex.join(confined['argv'])}\n")
    return "\n".join(lines).encode("utf-8", "surrogateescape")


class FarTerminal(TerminalProcess):
    """`finish` and `where`: as in `start_there`. The others are those of `TerminalProcess`."""

    def __init__(self, *arguments: Any, finish: Callable[[], Awaitable[bool]], where: str) -> None:
        super().__init__(*arguments)
        self._finish = finish
        self._where = where

    def foreground(self) -> Foreground:
        """What is typed may get to a shell, so it is judged as a command, too."""
        return Foreground("", super().foreground().group, False, None, behind=True)

    def force(self) -> bool:
        return False

    async def kill(self) -> None:
        gone = False
        with anyio.move_on_after(FINISH):
            gone = await self._finish()
        if not gone:
            self.remark = f"it is not known whether all that it started {self._where} was ended"
        await super().kill()


def start_there(
    argv: tuple[str, ...],
    environ: Mapping[str, str],
    command: Command,
    mark: str,
    grace: float,
    finish: Callable[[], Awaitable[bool]],
    where: str,
    ending: Confined | None = None,
) -> FarTerminal:
    """`argv`: what leads there, here, with `environ`. `finish` ends what carries the mark there, and says whether it is
    gone. Raises ExecutorError."""
    assert command.terminal is not None
    terminal = command.opened or open_pty(command.terminal)
    try:
        popen = start(argv, Path("/"), environ, command, terminal=terminal)
        about = (popen, terminal, mark, command.terminal, grace, ending)
        return FarTerminal(*about, finish=finish, where=where)
    except BaseException:
        terminal.drop()
        raise
    finally:
        terminal.given()
