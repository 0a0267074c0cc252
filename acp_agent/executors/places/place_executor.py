"""Commands in a place; files are the same there, at the same paths, and are accessed as ever."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import anyio

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, Process
from acp_agent.executors.editor import EditorExecutor
from acp_agent.executors.local import QUIET
from acp_agent.executors.marked import MARK
from acp_agent.executors.places.base import Place
from acp_agent.executors.places.far_process import FarProcess
from acp_agent.executors.places.reaper import Reaper
from acp_agent.executors.places.starter import READ_IT, starter
from acp_agent.executors.sandbox.base import Confined
from acp_agent.executors.start import start


class PlaceExecutor(EditorExecutor):
    """`ending`: what is to be done when a command that begins there now has ended. The others are those of
    `EditorExecutor`."""

    def __init__(
        self, *arguments: Any, place: Place, ending: Callable[[], Confined | None] = lambda: None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._place = place
        self._ending = ending
        self._reaper = Reaper(place)

    async def run(self, command: Command) -> Process:
        place, reaper = self._place, self._reaper
        if command.terminal is not None:
            raise ExecutorError(f"in {place.words} a command has no terminal that can be typed into; run it without")
        if "\0" in command.script:
            raise ExecutorError("the command could not be started: embedded null byte")
        if not command.cwd.is_dir():
            raise ExecutorError(f"the working directory {command.cwd} does not exist")
        try:
            there = await place.ready()
        except ExecutorError as error:
            raise ExecutorError(f"{error}. Nothing was run, here or there") from error
        reaper.start(there)
        mark, nonce = f"{place.mark}.{uuid.uuid4().hex}", uuid.uuid4().hex
        own = {name: place.environ[name] for name in place.env if name in place.environ}
        environ = {"PATH": there.path, "HOME": there.home, **there.environ, **QUIET, **own, **command.env, MARK: mark}
        with _file() as file:
            file.write(starter(command, there, environ, nonce))
            file.seek(0)
            argv = place.argv("sh", "-c", READ_IT, reads=True)
            popen = start(argv, Path("/"), place.environ, command, stdin=file.fileno())
        return FarProcess(popen, mark, command, self._grace, nonce, reaper, self._ending())

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._reaper.end()
        await super().close()


def _file() -> IO[bytes]:
    """One without a name; in memory where that can be had."""
    return os.fdopen(os.memfd_create("sent"), "w+b") if hasattr(os, "memfd_create") else tempfile.TemporaryFile()
