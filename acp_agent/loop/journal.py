"""Notices of a session: to the audit log, and to the user beside the conversation."""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp_agent.config.model import ToolsConfig
from acp_agent.loop.choices import Choices
from acp_agent.loop.outbox import Outbox
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.loop.turn_queue import TurnQueue
from acp_agent.safety.deciding.audit import TOKEN, AuditEvent, AuditLog
from acp_agent.store.database import Part

if TYPE_CHECKING:
    from acp_agent.executors.sandbox.probe import Found

log = logging.getLogger(__name__)


class Journal:
    def __init__(
        self,
        audit: AuditLog,
        troubles: list[str],
        store: Part,
        outbox: Outbox,
        queue: TurnQueue,
        turn: RunningTurn,
        choices: Choices,
        config: ToolsConfig,
    ) -> None:
        """`troubles`: what the audit log has told since it was last looked. It is written in the thread of `store`,
        where its end is recorded."""
        self.audit = audit
        self._troubles = troubles
        self._store = store
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

    async def written(self, event: AuditEvent, **fields: Any) -> bool:
        """As `write`, and waits for it; False if it failed."""
        if self.audit.path is None:
            return True
        done = await self._store.do(self._line(event, fields))
        self._tell()
        return done

    def write(self, event: AuditEvent, **fields: Any) -> None:
        """Adds an entry to the audit log, with the session and its turn, in the order of the calls."""
        if self.audit.path is not None:
            self._store.call(self._line(event, fields), self._written)

    def _written(self, _: bool | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self._tell()

    def _tell(self) -> None:
        while self._troubles:
            self.outbox.tell(self._troubles.pop(0))

    def _line(self, event: AuditEvent, fields: dict[str, Any]) -> Callable[[], bool]:
        turn, mode = self._turn, self._choices.mode().id
        return partial(
            self.audit.write,
            event,
            user=self._user,
            scope=f"{mode} {self._config.risk.autonomy}",
            caller_id=self.outbox.session_id,
            token=TOKEN.get(),
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

    @property
    def in_turn(self) -> bool:
        return self._queue.busy

    def run_ended(self, words: str) -> None:
        """A background command ended by itself, while no turn ran: tells the user. During a turn its card is enough."""
        if not self._queue.closed:
            self.outbox.say(f"{words}\n\n")
