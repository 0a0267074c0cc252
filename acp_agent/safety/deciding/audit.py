"""The audit log: a JSON line for each decision about a tool call and for each call's end, readable only by its owner.

Credentials are redacted before a line is written. A failed write is reported once; if the log is required, no tool runs
until it works again. How lines are written, and how it is noticed that they were changed: `audit_file`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from acp_agent.config.safety_settings import AuditConfig
from acp_agent.safety.deciding.audit_file import AuditFile, Heads

log = logging.getLogger(__name__)

TOKEN: ContextVar[str] = ContextVar("token", default="")
"""On a server, the name of the token whose request is worked on."""
AuditEvent = Literal["decision", "result", "notice", "network"]


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Fields of every line: when, and about which call."""

    schema: Literal["acp_coder.audit.v1"]
    time: str
    """ISO 8601, UTC, with microseconds."""
    event: AuditEvent
    """`decision`: before a call runs (or instead of it); `result`: after it; `notice`: about the session;
    `network`: once a command has ended, for each host it had connections to."""
    user: str | None = None
    """The user that tools act as: the agent's own, or `tools.scope.run_as_user`."""
    scope: str | None = None
    """What may happen without a question: the mode and `tools.risk.autonomy`."""
    caller_id: str | None = None
    """The ACP session the call was made for."""
    token: str | None = None
    """On a server, the name of the token that asked for the turn."""
    turn: str | None = None
    """The turn's id, a UUID."""
    goal: str | None = None
    """The id of the active goal (`/plan`)."""
    skill: str | None = None
    """The skill that the turn follows."""
    call_id: str | None = None
    tool: str | None = None


class _Decided(_Line, frozen=True, omit_defaults=True, kw_only=True):
    """Fields of a decision: what was decided, and why."""

    arguments: str | None = None
    """JSON, redacted and truncated."""
    decision: Literal["allow", "deny", "allowed_by_person", "rejected_by_person", "cancelled"] | None = None
    rule: str | None = None
    """The reason: a rule with its location in the configuration, a remembered answer, a mode."""
    policy_match: str | None = None
    """The rule of the policy that matched."""
    reason: str | None = None
    risk: Literal["low", "medium", "high"] | None = None
    sandbox: str | None = None
    """The sandbox of a command: `bubblewrap`, `landlock`, `seatbelt`, `none`; or the place: `container web`."""


class AuditEntry(_Decided, frozen=True, omit_defaults=True, kw_only=True):
    """One line; with the outcome of the call, if any. Unknown fields are left out."""

    exit_code: int | None = None
    truncated: bool | None = None
    """Whether the model got less than all of the output."""
    denied_paths: tuple[str, ...] = ()
    """Paths that the sandbox has denied to the command, as far as its output says so."""
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
    seq: int | None = None
    """Number of the line, across rotated files."""
    prev: str | None = None
    """SHA-256 of the line before, without its end; zeros before the first."""
    unrecorded: int | None = None
    """Lines before this one that were not recorded in the store: their agent was killed, or something added them."""


class AuditLog:
    """One file for all sessions of a user, or of an owner of a server. `redact` redacts a text; `trouble` is called
    once per failure."""

    def __init__(
        self,
        path: Path | None,
        config: AuditConfig,
        redact: Callable[[str], str],
        trouble: Callable[[str], None],
        heads: Heads | None = None,
    ) -> None:
        """With `path` `None` nothing is written. `heads`: where the end of the log is recorded."""
        self.path = path
        self._file = AuditFile(path, config.max_bytes, config.backups, heads, self._changed) if path else None
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
        assert self._file is not None, "asked about a log that is on"
        try:
            os.close(self._file.open())
        except OSError as error:
            return f"{self.path} cannot be written: {error.strerror or error}"
        return None

    def write(self, event: AuditEvent, **fields: Any) -> bool:
        """Writes one line; returns False on failure."""
        if self._file is None:
            return True
        known = self._clean(fields)

        def line(seq: int, prev: str, unrecorded: int | None) -> bytes:
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            entry = AuditEntry(
                schema="acp_coder.audit.v1", time=now, event=event, seq=seq, prev=prev, unrecorded=unrecorded, **known
            )
            return _one_line(self._encoder.encode(entry))

        try:
            self._file.append(line)
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

    def _changed(self) -> None:
        """The file is not what was recorded."""
        self._trouble(
            f"The audit log {self.path} was changed by something else: lines are missing or different. "
            "`acp-coder audit verify` says where."
        )

    def _clean(self, fields: dict[str, Any]) -> dict[str, Any]:
        limits = {"arguments": self._config.argument_chars, "output": self._config.result_chars}
        cleaned: dict[str, Any] = {}
        for name, value in fields.items():
            if value is None or value == "":
                continue
            if isinstance(value, tuple):
                value = tuple(_cut(self._redact(_encodable(text)), OTHER_CHARS) for text in value)
            if isinstance(value, str) and name not in PLAIN:
                value = _cut(self._redact(_encodable(value)), limits.get(name, OTHER_CHARS))
            cleaned[name] = value
        return cleaned


PLAIN = frozenset(
    (
        "user",
        "scope",
        "caller_id",
        "token",
        "goal",
        "skill",
        "turn",
        "call_id",
        "decision",
        "sandbox",
        "result",
        "risk",
        "error",
    )
)  # fmt: skip
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
