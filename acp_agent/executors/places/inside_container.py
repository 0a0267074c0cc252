"""The inside of a container that runs already and has the project's files: its engine leads there as `ssh` does."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from acp_agent.config.place_settings import PlaceConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.places.engine import Engine, find_engine, named


class Inside:
    def __init__(self, name: str, config: PlaceConfig, environ: Mapping[str, str], folders: Sequence[Path]) -> None:
        """`folders`: the session's on this machine, in which no program of ours is looked for."""
        self.words, identity = named(name, config)
        self.where = f"in {self.words}"
        self.identity = f"{identity}:{config.root}"
        self.mark = uuid.uuid4().hex
        self.environ = environ
        self._config = config
        self._folders = folders
        self._engine: Engine | None = None
        self._id = ""

    def argv(self, *argv: str, terminal: bool = False) -> tuple[str, ...]:
        """Looks for the container, which may be another one than before; for a terminal it is the one that was found
        last."""
        engine = self._engine = self._engine or find_engine(self._config.engine, self.environ, self._folders)
        if not (terminal and self._id):
            self._id = self._found(engine)
        streams = ("--interactive", *(("--tty",) if terminal else ()))
        user = ("--user", self._config.user) if self._config.user else ()
        return (engine.program, "exec", *streams, *user, self._id, *argv)

    def _found(self, engine: Engine) -> str:
        name = self._config.container
        if (found := engine.running(name)) is None:
            raise ExecutorError(f"{engine.none_of(name)}; with files in it, it has to be one that was started already")
        return str(found.get("Id") or name)
