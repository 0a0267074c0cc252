"""The running turn, as commands, hooks and sub-agents see it."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from acp_agent.loop.turn_facts import TurnFacts

if TYPE_CHECKING:
    from acp_agent.loop.model.ready_model import ReadyModel


class RunningTurn:
    """Of one session; between turns, the last. `announced`: whether commands are given its variables."""

    def __init__(self, session_id: str, *, announced: bool = True) -> None:
        self._session_id = session_id
        self._announced = announced
        self.number = 0
        self.id = ""
        """A UUID; empty before the first turn."""
        self._began_ms = 0
        self.skill = ""
        """The skill the turn follows, if any."""
        self.next_skill = ""
        """The skill that the next turn follows."""
        self.goal_id = ""
        """Of the active goal; empty without one."""
        self.facts = TurnFacts()
        self._model: ReadyModel | None = None

    def begin(self, model: ReadyModel, goal_id: str) -> None:
        """`goal_id`: of the active goal; empty without one."""
        self.number += 1
        self.id = str(uuid.uuid4())
        self._began_ms = time.time_ns() // 1_000_000
        self.skill, self.next_skill = self.next_skill, ""
        self.goal_id = goal_id
        self.facts = TurnFacts()
        self._model = model

    @property
    def model(self) -> ReadyModel:
        assert self._model is not None, "asked within a turn"
        return self._model

    def variables(self) -> dict[str, str]:
        """The variables that every command and hook of the turn gets."""
        if not self._announced:
            return {}
        named = {
            "ACP_CODER_TURN_ID": self.id,
            "ACP_CODER_SESSION_ID": self._session_id,
            "ACP_CODER_TURN_TIMESTAMP_MS": str(self._began_ms),
            "ACP_CODER_SKILL_NAME": self.skill,
            "ACP_CODER_GOAL_ID": self.goal_id,
        }
        return {name: value for name, value in named.items() if value}
