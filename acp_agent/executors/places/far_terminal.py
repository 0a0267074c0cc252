"""A command in a terminal in a place: a pty here, at the end of what leads there (`podman exec --tty`, `ssh -tt`).

What needs values is in a file over there, which removes itself, so that none is on a command line. Who gets the keys
there cannot be seen from here, so what is typed is asked about, and judged as a command.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, Foreground, shell_options
from acp_agent.executors.local import IN_TERMINAL
from acp_agent.executors.places.starter import exports, put
from acp_agent.executors.sandbox.base import Confined
from acp_agent.executors.shell_state import load_state, with_state
from acp_agent.executors.start import start
from acp_agent.executors.terminals.process import TerminalProcess
from acp_agent.executors.terminals.pseudo_terminal import UNQUIET, open_pty, unquieted
from acp_agent.limits.descriptors import behind

if TYPE_CHECKING:
    from acp_agent.executors.places.landlock_there import Program

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
    """What is to be confined; it finds the shell's state in a file, and removes it."""
    then = f"rm -f {shlex.quote(str(state))}; {unquieted(IN_TERMINAL)}"
    script = with_state(command.script, state, keep=False, then=then)
    return [shell, *shell_options(command), "-c", script]


def held_script(
    command: Command, shell: str, environ: Mapping[str, str], state: str, program: str, confined: Program
) -> bytes:
    """The same as `terminal_script` in a container where `confined` makes the executable that holds the command. The
    shell's state is a file for it."""
    argv, env = confined_argv(command, shell, Path(state)), terminal_environ(command, environ)
    loaded = shlex.quote(load_state(command.state_file).decode("utf-8", "surrogateescape"))
    begins = (
        f"umask 077; set -C; printf %s {loaded} >{shlex.quote(state)} && {put(confined(argv), program)} || exit 126\n"
    )
    rest = confined_script([program, *argv], str(command.cwd), env)
    return begins.encode("utf-8", "surrogateescape") + rest


def confined_script(
    argv: Sequence[str], cwd: str, env: Mapping[str, str], files: Iterable[tuple[int, str, bool]] = ()
) -> bytes:
    """The same as `terminal_script` for what is confined, of which this is how it begins (as `WayIn`)."""
    lines = ['rm -f "$0"', "unset TMPDIR XDG_RUNTIME_DIR", exports(env)]
    lines.append(f"cd -- {shlex.quote(cwd)} || exit 126")
    for number, path, written in files:
        lines.append(f"exec {number}{'<>' if written else '<'}{shlex.quote(path)} || exit 126")
    lines.append(f"exec {shlex.join(argv)}\n")
    return "\n".join(lines).encode("utf-8", "surrogateescape")


class FarTerminal(TerminalProcess):
    """`finish`, `where` and `held`: as in `start_there`. The others are those of `TerminalProcess`."""

    def __init__(self, *arguments: Any, finish: Callable[[], Awaitable[bool]], where: str, held: bool) -> None:
        super().__init__(*arguments)
        self._finish = finish
        self._where = where
        self._held = held

    def foreground(self) -> Foreground:
        """What is typed may get to a shell, so it is judged as a command, too."""
        return Foreground("", super().foreground().group, False, None, behind=True)

    def force(self) -> bool:
        return False

    async def kill(self) -> None:
        await self._end()
        await super().kill()

    async def _last(self) -> None:
        await super()._last()
        if self._held:
            await self._end()

    async def _end(self) -> None:
        gone = False
        with anyio.move_on_after(FINISH), contextlib.suppress(ExecutorError):
            gone = await self._finish()
        if not gone:
            self.remark = f"it is not known whether all that it started {self._where} was ended"
        self._held = self._held and not gone


def start_there(
    argv: tuple[str, ...],
    environ: Mapping[str, str],
    command: Command,
    mark: str,
    grace: float,
    finish: Callable[[], Awaitable[bool]],
    where: str,
    ending: Confined | None = None,
    *,
    held: bool = False,
) -> FarTerminal:
    """`argv`: what leads there, here, with `environ`. `finish` ends what carries the mark there, and says whether it is
    gone. `held`: it has to be called even if all ends by itself. Raises ExecutorError."""
    assert command.terminal is not None
    terminal = command.opened or open_pty(command.terminal)
    try:
        popen = start(behind(argv), Path("/"), environ, command, terminal=terminal)
        about = (popen, terminal, mark, command.terminal, grace, ending)
        return FarTerminal(*about, finish=finish, where=where, held=held)
    except BaseException:
        terminal.drop()
        raise
    finally:
        terminal.given()
