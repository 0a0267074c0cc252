"""Notices of a session: to the audit log, and to the user beside the conversation."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp_agent.loop.outbox import Outbox
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.turn_queue import TurnQueue
from acp_agent.safety.deciding.audit import AuditEvent, AuditLog

if TYPE_CHECKING:
    from acp_agent.executors.sandbox.probe import Found

log = logging.getLogger(__name__)


class Journal:
    def __init__(self, audit: AuditLog, outbox: Outbox, queue: TurnQueue, turn: RunningTurn) -> None:
        self.audit = audit
        self.outbox = outbox
        self._queue = queue
        self._turn = turn

    def write(self, event: AuditEvent, **fields: Any) -> bool:
        """Adds an entry to the audit log, with the session and its turn; False if that failed."""
        return self.audit.write(event, caller_id=self.outbox.session_id, turn=self._turn.id, **fields)

    def notice(self, reason: str, **fields: Any) -> None:
        """Logs an event of the session that is not a call."""
        self.write("notice", reason=reason, **fields)

    def warn(self, words: str, **fields: Any) -> None:
        """Logs it and tells the user."""
        self.notice(words, **fields)
        if not self._queue.closed:
            self.outbox.tell(words)

    def sandbox_found(self, found: Found) -> None:
        """Tells the user if commands are not confined although they should be, or less than they could be."""
        if not found.disabled and (found.trouble or found.sandbox.kind == "none"):
            words = "\n".join([f"Commands run with: {found.words}.", *found.trouble])
            log.warning("%s", words)
            self.warn(words, sandbox=found.sandbox.kind)

    def repository_made(self, folder: Path) -> None:
        self.warn(
            f"A command made the git repository {folder}, whose configuration may make git run programs. Check it "
            "before you run git there or in a repository above it."
        )

    def run_ended(self, words: str) -> None:
        """A background command ended by itself. During a turn its card is enough."""
        self.notice(words, tool="bash")
        if not self._queue.busy and not self._queue.closed:
            self.outbox.say(f"{words}\n\n")
