"""Commands in a container; files are the same there, at the same paths, and are accessed as ever."""

from __future__ import annotations

import os
import shlex
import tempfile
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio
from msgspec.structs import replace

from acp_agent.child import one_line
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, Process
from acp_agent.executors.local import QUIET, TERMINATE_GRACE
from acp_agent.executors.marked import MARK
from acp_agent.executors.places.base import Place, There
from acp_agent.executors.places.far_process import FarProcess
from acp_agent.executors.places.reaper import Reaper
from acp_agent.executors.places.starter import READ_IT, STATES, starter
from acp_agent.executors.sandbox.base import Confined
from acp_agent.executors.start import start
from acp_agent.lazy import load
from acp_agent.limits.descriptors import behind

TERMINAL_SCRIPT = "acp_agent.executors.places.far_terminal:terminal_script"
HELD_SCRIPT = "acp_agent.executors.places.far_terminal:held_script"
START_THERE = "acp_agent.executors.places.far_terminal:start_there"
WORDS = 300

if TYPE_CHECKING:
    from acp_agent.executors.places.landlock_there import Program


class ContainerCommands:
    """Implements `Commands`. `ending`: what is to be done when a command that begins there now has ended."""

    def __init__(
        self,
        place: Place,
        *,
        terminate_grace: float = TERMINATE_GRACE,
        ending: Callable[[], Confined | None] = lambda: None,
    ) -> None:
        self._place = place
        self._grace = terminate_grace
        self._ending = ending
        self._reaper = Reaper(place)

    async def run(self, command: Command) -> Process:
        place, reaper = self._place, self._reaper
        if "\0" in command.script:
            raise ExecutorError("the command could not be started: embedded null byte")
        if not command.cwd.is_dir():
            raise ExecutorError(f"the working directory {command.cwd} does not exist")
        try:
            there = await place.ready()
        except ExecutorError as error:
            raise ExecutorError(f"{error}. Nothing was run, here or there") from error
        reaper.start(there)
        command = replace(command, cwd=place.cwd(command.cwd))
        mark, nonce = f"{place.mark}.{uuid.uuid4().hex}", uuid.uuid4().hex
        own = {name: place.environ[name] for name in place.env if name in place.environ}
        environ: Mapping[str, str] = {
            "PATH": there.path,
            "HOME": there.home,
            **there.environ,
            **QUIET,
            **own,
            **command.env,
            MARK: mark,
        }
        confined: Program | None = None
        if place.landlock is not None and command.confined:
            await place.landlock.ready(there)
            environ, confined = place.landlock.confined(environ, there)
        elif place.landlock is not None:  # What confined ones left is not run.
            command = replace(command, state_file=None)
        if command.terminal is not None:
            return await self._in_terminal(command, there, environ, mark, nonce, confined)
        with _file() as file:
            file.write(starter(command, there, environ, nonce, confined))
            file.seek(0)
            argv = behind(place.argv("sh", "-c", READ_IT, reads=True))
            popen = start(argv, Path("/"), place.environ, command, stdin=file.fileno())
        return FarProcess(popen, mark, command, self._grace, nonce, reaper, self._ending())

    async def _in_terminal(
        self,
        command: Command,
        there: There,
        environ: Mapping[str, str],
        mark: str,
        nonce: str,
        confined: Program | None,
    ) -> Process:
        place, reaper = self._place, self._reaper
        folder, file = shlex.quote(there.scratch), f"{there.scratch}/{nonce}"
        store = ("sh", "-c", f"umask 077; mkdir -p {folder} && cat >{shlex.quote(file)}")
        made = load(TERMINAL_SCRIPT)(command, there.shell, environ)
        if confined is not None:
            name = uuid.uuid4().hex  # As in `starter`.
            state, program = f"{there.scratch}/{STATES}/{name}", f"{there.scratch}/{name}.program"
            made = load(HELD_SCRIPT)(command, there.shell, environ, state, program, confined)
        argv = behind(place.argv(*store, reads=True))
        done = await anyio.run_process(
            argv, input=made, env=place.environ, cwd="/", check=False, start_new_session=True
        )
        if done.returncode != 0:
            words = one_line(done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}", WORDS)
            raise ExecutorError(f"no command can be run in {place.words}: {words}")
        argv = place.argv(there.shell, file, reads=True, terminal=True)
        process: Process = load(START_THERE)(
            argv,
            place.environ,
            command,
            mark,
            self._grace,
            partial(reaper.finish, mark, 0),
            place.where,
            self._ending(),
        )
        return process

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._reaper.end()


def _file() -> IO[bytes]:
    """One without a name; in memory where that can be had."""
    return os.fdopen(os.memfd_create("sent"), "w+b") if hasattr(os, "memfd_create") else tempfile.TemporaryFile()
