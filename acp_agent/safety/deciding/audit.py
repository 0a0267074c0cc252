"""The audit log: a JSON line for each decision about a tool call and for each call's end, readable only by its owner.

Every line is one `write` to a file opened for appending, so that lines of several agents do not mix; credentials are
redacted first. A failed write is reported once; if the log is required, no tool runs until it works again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from acp_agent.config.safety_settings import AuditConfig

log = logging.getLogger(__name__)

PRIVATE = 0o600

AuditEvent = Literal["decision", "result", "notice", "network"]


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Fields of every line: when, and about which call."""

    schema: Literal["acp_coder.audit.v1"]
    time: str
    """ISO 8601, UTC, with microseconds."""
    event: AuditEvent
    """`decision`: before a call runs (or instead of it); `result`: after it; `notice`: about the session;
    `network`: once a command has ended, for each host it had connections to."""
    caller_id: str | None = None
    """The ACP session the call was made for."""
    turn: str | None = None
    """The turn's id, a UUID."""
    call_id: str | None = None
    tool: str | None = None
    arguments: str | None = None
    """JSON, redacted and truncated."""


class _Decided(_Line, frozen=True, omit_defaults=True, kw_only=True):
    """Fields of a decision: what was decided, and why."""

    decision: Literal["allow", "deny", "allowed_by_person", "rejected_by_person", "cancelled"] | None = None
    rule: str | None = None
    """The reason: a rule with its location in the configuration, a remembered answer, a mode."""
    policy_match: str | None = None
    """The rule of the policy that matched."""
    reason: str | None = None
    risk: Literal["low", "medium", "high"] | None = None
    sandbox: str | None = None
    """The sandbox of a command: `bubblewrap`, `landlock`, `seatbelt`, `none`."""


class AuditEntry(_Decided, frozen=True, omit_defaults=True, kw_only=True):
    """One line; with the outcome of the call, if any. Unknown fields are left out."""

    exit_code: int | None = None
    truncated: bool | None = None
    duration_ms: int | None = None
    result: Literal["completed", "failed", "cancelled"] | None = None
    output: str | None = None
    """The beginning of the result, redacted."""
    error: str | None = None
    """The category of the failure."""
    host: str | None = None
    """A host, with the port where it is not a usual one."""
    sent: int | None = None
    """Bytes that the command sent to it."""
    received: int | None = None


class AuditLog:
    """One file for all sessions of a user. `redact` redacts a text; `trouble` is called once per failure."""

    def __init__(
        self,
        path: Path | None,
        config: AuditConfig,
        redact: Callable[[str], str],
        trouble: Callable[[str], None],
    ) -> None:
        """With `path` `None` nothing is written."""
        self.path = path
        self._config = config
        self._redact = redact
        self._trouble = trouble
        self._told = False
        self._encoder = msgspec.json.Encoder()
        self.failing = False
        """Whether the last line could not be written."""

    @property
    def refuses(self) -> bool:
        """Whether no tool may run because the log is required and cannot be written."""
        return self._config.required and self.failing

    def why_not(self) -> str | None:
        """Why no line can be written now; `None` if one can."""
        try:
            os.close(self._open())
        except OSError as error:
            return f"{self.path} cannot be written: {error.strerror or error}"
        return None

    def write(self, event: AuditEvent, **fields: Any) -> bool:
        """Writes one line; returns False on failure."""
        if self.path is None:
            return True
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        entry = AuditEntry(schema="acp_coder.audit.v1", time=now, event=event, **self._clean(fields))
        try:
            self._append(_one_line(self._encoder.encode(entry)) + b"\n")
        except OSError as error:
            self.failing = True
            words = f"The audit log {self.path} cannot be written ({error.strerror or error})."
            if not self._told:
                self._told = True
                log.warning("%s", words)
                self._trouble(words + (" No tool runs until it can be written." if self._config.required else ""))
            return False
        self.failing = self._told = False
        return True

    def _clean(self, fields: dict[str, Any]) -> dict[str, Any]:
        limits = {"arguments": self._config.argument_chars, "output": self._config.result_chars}
        cleaned: dict[str, Any] = {}
        for name, value in fields.items():
            if value is None or value == "":
                continue
            if isinstance(value, str) and name not in PLAIN:
                value = _cut(self._redact(_encodable(value)), limits.get(name, OTHER_CHARS))
            cleaned[name] = value
        return cleaned

    def _append(self, line: bytes) -> None:
        assert self.path is not None
        fd = self._open()
        if os.fstat(fd).st_size + len(line) > self._config.max_bytes:
            os.close(fd)
            self._rotate(len(line))
            fd = self._open()
        try:
            done = os.write(fd, line)
            while done < len(line):  # On a full disk the next write raises an error.
                done += os.write(fd, line[done:])
        finally:
            os.close(fd)

    def _open(self) -> int:
        assert self.path is not None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(self.path, flags, PRIVATE)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self.path, flags, PRIVATE)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(fd)
            raise OSError(0, "it is not a regular file")
        if stat.S_IMODE(found.st_mode) != PRIVATE:
            os.fchmod(fd, PRIVATE)
        return fd

    def _rotate(self, more: int) -> None:
        """Rotates the file, unless another agent already has; agents rotating at the same time wait for each other."""
        assert self.path is not None
        with open(os.open(f"{self.path}.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(self.path) or os.stat(self.path).st_size + more <= self._config.max_bytes:
                return
            backups = self._config.backups
            for number in range(backups - 1, 0, -1):
                older = f"{self.path}.{number}"
                if os.path.exists(older):
                    os.replace(older, f"{self.path}.{number + 1}")
            if backups:
                os.replace(self.path, f"{self.path}.1")
            else:
                os.unlink(self.path)


PLAIN = frozenset(("caller_id", "turn", "call_id", "decision", "sandbox", "result", "risk", "error"))
"""Fields with our own text."""

OTHER_CHARS = 500


def _one_line(line: bytes) -> bytes:
    """Escapes characters that some readers treat as the end of a line."""
    for raw, escaped in LINE_ENDS.items():
        line = line.replace(raw, escaped)
    return line


LINE_ENDS = {b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029", b"\xc2\x85": b"\\u0085"}


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + f"… [{len(text) - limit} characters more]"
