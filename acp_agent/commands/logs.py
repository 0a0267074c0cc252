"""Logs: to stderr, and to a rotating file. stdout belongs to the protocol."""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from acp_agent.config.model import LogConfig, SecretsConfig
from acp_agent.config.xdg import state_dir
from acp_agent.lazy import load

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
REDACTOR = "acp_agent.credentials.redactor:Redactor"
OWN_VALUES = "acp_agent.credentials.redactor:own_values"
STDERR = 2
ROTATING = "logging.handlers:RotatingFileHandler"
"""Loaded with the first record: most starts have none to write."""


class _StderrHandler(logging.Handler):
    """Writes to stderr while it is being read. A full pipe loses lines; it never blocks the agent."""

    def emit(self, record: logging.LogRecord) -> None:
        data = (self.format(record) + "\n").encode("utf-8", "replace")
        try:
            while data:
                if not select.select([], [STDERR], [], 0)[1]:
                    return
                # A ready pipe takes this much without blocking (POSIX: PIPE_BUF).
                data = data[os.write(STDERR, data[: select.PIPE_BUF]) :]
        except (OSError, ValueError):
            pass  # Nobody has stderr open; the file has the line.


class _FileHandler(logging.Handler):
    """Writes to a rotating file."""

    def __init__(self, file: Path, config: LogConfig) -> None:
        super().__init__()
        self._path = file
        self._config = config

    @cached_property
    def _file(self) -> logging.Handler:
        config = self._config
        made: logging.Handler = load(ROTATING)(
            self._path, maxBytes=config.max_bytes, backupCount=config.backups, encoding="utf-8", delay=True
        )
        made.setFormatter(self.formatter)
        return made

    def emit(self, record: logging.LogRecord) -> None:
        self._file.emit(record)

    def close(self) -> None:
        if "_file" in self.__dict__:
            self._file.close()
        super().close()


class _Redacting(logging.Formatter):
    """Formats a record with its traceback and redacts credentials; loaded with the first record."""

    def __init__(self, environ: Mapping[str, str], secrets: SecretsConfig) -> None:
        super().__init__(FORMAT)
        self._environ = environ
        self._secrets = secrets

    @cached_property
    def _redact(self) -> Callable[[str], str]:
        values = load(OWN_VALUES)(self._environ)
        secrets = self._secrets
        redactor = load(REDACTOR)(values=values, extra_patterns=secrets.extra_patterns, enabled=secrets.redact)
        redact: Callable[[str], str] = redactor.redact
        return redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record))


def log_file(config: LogConfig, environ: Mapping[str, str]) -> Path | None:
    """The log file, `None` if logs go only to stderr."""
    if config.file == "-":
        return None
    return Path(config.file).expanduser() if config.file else Path(state_dir(environ)) / "agent.log"


def set_up_logs(config: LogConfig, environ: Mapping[str, str], secrets: SecretsConfig) -> None:
    """Starts logging warnings and worse (or what is configured), without credentials."""
    handlers: list[logging.Handler] = [_StderrHandler()]
    file = log_file(config, environ)
    failure: OSError | None = None
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handlers.append(_FileHandler(file, config))
        except OSError as error:
            failure = error
    for handler in handlers:
        handler.setFormatter(_Redacting(environ, secrets))
    logging.basicConfig(level=config.level.upper(), handlers=handlers)
    logging.raiseExceptions = False  # An unread stderr is no reason to fail.
    if failure is not None:
        logging.getLogger(__name__).warning("no log file: %s", failure)
