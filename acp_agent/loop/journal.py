"""Notices of a session: to the audit log, and to the user beside the conversation."""

from __future__ import annotations

import logging
import os
import pwd
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp_agent.config.model import ToolsConfig
from acp_agent.loop.choices import Choices
from acp_agent.loop.outbox import Outbox
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.turn_queue import TurnQueue
from acp_agent.safety.deciding.audit import AuditEvent, AuditLog

if TYPE_CHECKING:
    from acp_agent.executors.sandbox.probe import Found

log = logging.getLogger(__name__)


class Journal:
    def __init__(
        self,
        audit: AuditLog,
        outbox: Outbox,
        queue: TurnQueue,
        turn: RunningTurn,
        choices: Choices,
        config: ToolsConfig,
    ) -> None:
        self.audit = audit
        self.outbox = outbox
        self._queue = queue
        self._turn = turn
        self._choices = choices
        self._config = config

    @cached_property
    def _user(self) -> str:
        """The user that commands run as."""
        if self._config.scope.user:
            return self._config.scope.user
        try:
            return pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:  # In a container, a number may have no name.
            return str(os.geteuid())

    def write(self, event: AuditEvent, **fields: Any) -> bool:
        """Adds an entry to the audit log, with the session and its turn; False if that failed."""
        turn, mode = self._turn, self._choices.mode().id
        return self.audit.write(
            event,
            user=self._user,
            scope=f"{mode} {self._config.risk.autonomy}",
            caller_id=self.outbox.session_id,
            turn=turn.id,
            goal=turn.goal_id,
            skill=turn.skill,
            **fields,
        )

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
        """A background command ended by itself: tells the user. During a turn its card is enough."""
        if not self._queue.busy and not self._queue.closed:
            self.outbox.say(f"{words}\n\n")
