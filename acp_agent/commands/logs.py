"""Logs: to stderr, and to a rotating file. stdout belongs to the protocol."""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path

from acp_agent.config.model import LogConfig
from acp_agent.config.places import state_dir

__all__ = ["log_file", "set_up_logs"]

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
STDERR = 2
MIN_SECRET = 8
"""Shorter values of such variables are ordinary words and stay."""


class _StderrHandler(logging.Handler):
    """Writes to stderr while somebody reads it. A pipe that is full loses lines; it never stops the agent."""

    def emit(self, record: logging.LogRecord) -> None:
        data = (self.format(record) + "\n").encode("utf-8", "replace")
        try:
            while data:
                if not select.select([], [STDERR], [], 0)[1]:
                    return
                # A pipe that is ready takes this much at once without blocking (POSIX: PIPE_BUF).
                data = data[os.write(STDERR, data[: select.PIPE_BUF]) :]
        except (OSError, ValueError):
            pass  # Nobody has stderr open; the file has the line.


class _Redact(logging.Filter):
    """Replaces the values of variables that are named like secrets."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._secrets = [
            value for name, value in environ.items() if name.upper().endswith(SECRET_NAMES) and len(value) >= MIN_SECRET
        ]

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        for secret in self._secrets:
            if secret in message:
                message = message.replace(secret, "[redacted]")
        record.msg, record.args = message, ()
        return True


def log_file(config: LogConfig, environ: Mapping[str, str]) -> Path | None:
    """Where logs are kept, `None` when only stderr gets them."""
    if config.file == "-":
        return None
    return Path(config.file).expanduser() if config.file else Path(state_dir(environ)) / "agent.log"


def set_up_logs(config: LogConfig, environ: Mapping[str, str]) -> None:
    """From here on, warnings and worse (or what is configured) are kept."""
    handlers: list[logging.Handler] = [_StderrHandler()]
    file = log_file(config, environ)
    failure: OSError | None = None
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handlers.append(
                RotatingFileHandler(
                    file, maxBytes=config.max_bytes, backupCount=config.backups, encoding="utf-8", delay=True
                )
            )
        except OSError as error:
            failure = error
    redact = _Redact(environ)
    for handler in handlers:
        handler.setFormatter(logging.Formatter(FORMAT))
        handler.addFilter(redact)
    logging.basicConfig(level=config.level.upper(), handlers=handlers)
    logging.raiseExceptions = False  # stderr that nobody reads is no reason to fail.
    if failure is not None:
        logging.getLogger(__name__).warning("no log file: %s", failure)
