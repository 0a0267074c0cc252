"""Commands on another machine, by the program over there."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from acp_agent.errors import ExecutorError
from acp_agent.executors import base as contract
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.far.far_peer import STATE
from acp_agent.executors.far.far_walls import FarWalls
from acp_agent.executors.far.host_process import HostProcess
from acp_agent.executors.local import QUIET, TERMINATE_GRACE
from acp_agent.executors.marked import MARK
from acp_agent.executors.shell_state import load_state, with_state
from acp_agent.executors.start import of_its_own
from acp_agent.lazy import load

UNDONE = 10.0
"""Seconds to remove there what was made for a program that does not begin."""
TERMINAL_SCRIPT = "acp_agent.executors.places.far_terminal:terminal_script"
TERMINAL_ENVIRON = "acp_agent.executors.places.far_terminal:terminal_environ"
CONFINED_ARGV = "acp_agent.executors.places.far_terminal:confined_argv"
CONFINED_SCRIPT = "acp_agent.executors.places.far_terminal:confined_script"
START_THERE = "acp_agent.executors.places.far_terminal:start_there"


class RemoteCommands:
    """Implements `Commands` by a link. `env`: names of the variables of this machine that commands there get. `walls`:
    what confines them there; `None`: nothing."""

    def __init__(
        self,
        link: FarLink,
        *,
        environ: Mapping[str, str] = os.environ,
        env: Sequence[str] = (),
        walls: FarWalls | None = None,
        terminate_grace: float = TERMINATE_GRACE,
    ) -> None:
        self._link = link
        self._walls = walls
        self._grace = terminate_grace
        self._own = {name: environ[name] for name in env if name in environ}

    async def run(self, command: contract.Command) -> contract.Process:
        there = await self._link.reached()
        confined = command.confined and self._walls is not None and await self._walls.holds()
        mark = f"{self._link.way.mark}.{uuid.uuid4().hex}"
        shell, script, state = there.programs.get("bash", ""), command.script, None
        if (file := self.state_file(command)) is not None:
            script = with_state(
                script, Path(STATE), keep=command.keeps_state, without=of_its_own(command), bash=bool(shell)
            )
            state = load_state(file).decode("utf-8", "surrogateescape")
        argv = [shell or "/bin/sh", *contract.shell_options(command), "-c", script]
        environ = {**there.environ, **QUIET, **self._own, **command.env, MARK: mark}
        if command.terminal is not None:
            return await self._in_terminal(command, shell or "/bin/sh", environ, mark, confined)
        number = next(self._link.numbers)
        process = HostProcess(self._link, number, mark, command, self._grace)
        try:
            await self._link.begin(number, process, argv, environ, str(command.cwd), state, confined=confined)
        except BaseException:
            await process.close()
            raise
        return process

    def state_file(self, command: contract.Command) -> Path | None:
        """As here: an unconfined command never runs what a confined one may have written."""
        apart = not command.confined and self._walls is not None and self._walls.confine
        return None if apart else command.state_file

    async def _in_terminal(
        self, command: contract.Command, shell: str, environ: Mapping[str, str], mark: str, confined: bool
    ) -> contract.Process:
        """By a connection of its own, with which it ends."""
        link = self._link

        async def finish() -> bool:
            return bool(await link.answer_of(link.ask({"do": "kill", "run": 0, "mark": mark, "grace": 0})))

        try:
            if confined:
                assert self._walls is not None
                header = {"do": "confine", "mark": mark, "argv": load(CONFINED_ARGV)(command, shell, Path(STATE))}
                header |= {"env": load(TERMINAL_ENVIRON)(command, environ), "cwd": str(command.cwd)}
                header["state"] = load_state(self.state_file(command)).decode("utf-8", "surrogateescape")
                way_in = await self._walls.way_in(header)
                text = load(CONFINED_SCRIPT)(way_in.argv, way_in.cwd, way_in.env, way_in.files)
            else:
                text = load(TERMINAL_SCRIPT)(command, shell, environ)
            file = await link.put(uuid.uuid4().hex, text)
            argv, way = link.way.argv(shell, file, terminal=True), link.way
            about = (command, mark, self._grace, finish, way.where)
            process: contract.Process = load(START_THERE)(argv, way.environ, *about, held=confined)
        except BaseException:
            if confined:  # There it may be ready to begin.
                with anyio.CancelScope(shield=True), anyio.move_on_after(UNDONE), contextlib.suppress(ExecutorError):
                    await finish()
            raise
        return process

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._link.close)
