"""What leads to a host: a process whose streams are those of the program over there."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Protocol

from acp_agent.child import one_line, readable
from acp_agent.errors import ExecutorError
from acp_agent.executors.far.far_peer import write_all
from acp_agent.limits.descriptors import restoring

BEGINS = 30.0
"""Seconds for a link to be there: names, keys, logins."""
READ_SIZE = 65_536
MOST_HELLO = 262_144
WORDS = 300
LAST_WORDS = 0.5
"""Seconds for what has failed to say why."""


class Way(Protocol):
    """How a host is reached."""

    words: str
    """As in "runs in ...": `host build-7`."""
    where: str
    """As in "runs ...": `on host build-7`."""
    identity: str
    """What answers and memories are kept for: tells it from others of the same `words`."""
    mark: str
    environ: Mapping[str, str]

    def argv(self, *argv: str, terminal: bool = False) -> tuple[str, ...]:
        """The command line, here, of one that runs there with the same streams. `terminal`: they are one."""
        ...


class Started:
    """Raises ExecutorError."""

    def __init__(self, way: Way, *argv: str, text: bytes = b"") -> None:
        """`argv`: what is begun there; `text`: what it gets first."""
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the others.
        try:
            self._popen = subprocess.Popen(
                way.argv(*argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=dict(way.environ),
                cwd="/",
                start_new_session=True,
                **restoring(),
            )
        except (OSError, ValueError) as error:
            self._errors.close()
            raise ExecutorError(f"{way.words} cannot be reached: {error}") from error
        except ExecutorError:
            self._errors.close()
            raise
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self.reads, self.writes = self._popen.stdout.fileno(), self._popen.stdin.fileno()
        with suppress(OSError):  # What it says is read next.
            self.write(text)

    @property
    def code(self) -> int | None:
        """The exit code of what was begun there, once it has ended."""
        return self._popen.poll()

    def write(self, data: bytes) -> None:
        """Raises OSError."""
        write_all(self.writes, data)

    def until(self, begins: bytes, ends: bytes) -> bytes:
        """What stands between them, byte for byte; nothing behind it is read. Raises OSError."""
        said, end, at = b"", time.monotonic() + BEGINS, -1
        while at < 0 or not said.endswith(ends):
            if not readable(self.reads, max(0.0, end - time.monotonic())):
                raise OSError(f"no answer within {BEGINS:g} s")
            data = os.read(self.reads, 1)
            if not data or len(said) > MOST_HELLO:
                raise OSError("it did not answer as expected")
            said += data
            if at < 0 and said.endswith(begins):
                at = len(said)
        return said[at : -len(ends)]

    def last_words(self, error: Exception) -> str:
        """Why it did not get there; ends it."""
        self.wait(LAST_WORDS)
        self.kill()
        self._errors.seek(0)
        said = [line for line in self._errors.read(READ_SIZE).decode("utf-8", "replace").splitlines() if line.strip()]
        self.release()
        return one_line(said[-1] if said else str(error), WORDS)

    def wait(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)

    def kill(self) -> None:
        with suppress(OSError):
            self._popen.kill()
        self._popen.wait()

    def release(self) -> None:
        """Once it has ended, and nobody uses its streams."""
        for stream in (self._popen.stdin, self._popen.stdout, self._errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
