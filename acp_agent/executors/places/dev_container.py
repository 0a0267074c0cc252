"""A dev container, made by the `devcontainer` program as the project's `devcontainer.json` says.

The program makes it or finds it, with the session's folders at the same paths too, and says which container it is and
who its user is. Commands then run by the engine itself: the program takes about a second for each. It is left running.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from acp_agent.child import Child, one_line
from acp_agent.errors import ExecutorError
from acp_agent.executors.places.base import There
from acp_agent.executors.places.container import Container
from acp_agent.executors.places.engine import WORDS, find_engine
from acp_agent.limits.decoding import read_loose_json
from acp_agent.own_programs import find_program

PROGRAM = "devcontainer"
MAKES = 1800.0
"""Seconds for it to be made, which may fetch and build images."""
ASKS = 60.0
OF_EACH_SHELL = frozenset(("PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "TERM"))


class DevContainer(Container):
    """Its arguments are those of `Container`."""

    def __init__(self, name: str, *arguments: Any) -> None:
        super().__init__(name, *arguments)
        self.words = f"dev container {name}"
        self.where = f"in {self.words}"
        self.identity = f"dev container {self._config.folder or self._folders[0]}"
        self._more: Mapping[str, str] = {}

    async def _found(self) -> None:
        program = find_program(PROGRAM, self.environ, self._folders)
        if program is None:
            raise ExecutorError(
                f"there is nothing to make {self.words} with: the program `{PROGRAM}` was not found "
                "(npm install --global @devcontainers/cli)"
            )
        if wrong := next((folder for folder in self._folders if "," in str(folder)), None):
            raise ExecutorError(f"{wrong} cannot be mounted in a dev container: there is a comma in its name")
        engine = find_engine(self._config.engine, self.environ, self._folders)
        where = ["--workspace-folder", self._config.folder or str(self._folders[0]), "--docker-path", engine.program]
        mounts = [part for each in self._folders for part in ("--mount", f"type=bind,source={each},target={each}")]
        said = _answer((await self._ran([program, "up", *where, *mounts], MAKES)).decode("utf-8", "replace"))
        if said.get("outcome") != "success" or not isinstance(said.get("containerId"), str):
            words = said.get("description") or said.get("message") or "it did not say which container it is"
            raise ExecutorError(f"{self.words} was not made: {one_line(str(words), WORDS)}")
        self._config = replace(self._config, container=said["containerId"], image="")
        self._as = str(said.get("remoteUser") or "root")
        listed = await self._ran([program, "exec", *where, "cat", "/proc/self/environ"], ASKS)
        pairs = [text.partition("=") for text in listed.decode("utf-8", "surrogateescape").split("\0")]
        self._more = {name: value for name, equals, value in pairs if equals and name not in OF_EACH_SHELL}

    async def _ran(self, argv: list[str], seconds: float) -> bytes:
        """What it prints, also if it fails. A stop ends it and what it started."""
        try:
            child = Child.start(f"{PROGRAM} {argv[1]}", argv, env=dict(self.environ), cwd=Path("/"))
        except (OSError, ValueError) as error:
            raise ExecutorError(f"`{PROGRAM}` could not be started: {error}") from error
        child.close_stdin()
        said = b""
        try:
            with anyio.fail_after(seconds):
                while data := await child.read():
                    said += data
        except TimeoutError as error:
            raise ExecutorError(f"`{PROGRAM} {argv[1]}` did not end within {seconds:g} s") from error
        finally:
            with anyio.CancelScope(shield=True):
                await child.end()
            child.close()
        return said

    def _prepared(self) -> There:
        there = super()._prepared()
        more = {name: value for name, value in self._more.items() if name not in ("PATH", "HOME")}
        return replace(
            there, path=self._more.get("PATH", there.path), home=self._more.get("HOME", there.home), environ=more
        )

    def _instead(self, folder: Path, mounts: Any) -> str:
        return f": it was made without; make it again: `{PROGRAM} up --remove-existing-container`, or remove it"


def _answer(text: str) -> dict[str, Any]:
    """The last line that is an object."""
    for line in reversed(text.splitlines()):
        try:
            found = read_loose_json(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}
