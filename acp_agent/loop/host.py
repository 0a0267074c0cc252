"""What `run_turn` sees of a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acp_agent.llm.base import ModelSettings, ToolDefinition, UsageReport
from acp_agent.loop.limits import context_full
from acp_agent.loop.session import Model, Session
from acp_agent.schema.acp import SessionUpdate

__all__ = ["SessionHost"]


class SessionHost:
    """One turn of `session` with `model`. `settings` and `tools` are asked anew for each request."""

    def __init__(
        self,
        session: Session,
        model: Model,
        settings: Callable[[], ModelSettings],
        tools: Callable[[], Sequence[ToolDefinition]],
    ) -> None:
        self._session = session
        self._model = model
        self._counted = session.usage.used if session.usage is not None else 0
        self.settings = settings
        self.tools = tools
        self.messages = session.messages
        self.add = session.add
        self.drain = session.drain
        self.say = session.say

    def emit(self, update: SessionUpdate) -> None:
        self._session.emit(update)

    def report_usage(self, usage: UsageReport) -> None:
        self._counted = usage.input_tokens + usage.output_tokens
        self._session.report_usage(self._counted, self._model.context_window)

    def context_full(self) -> str | None:
        budget = self._session.config.settings.agent.context_budget
        system_chars = len(self.settings().system)
        return context_full(self.messages(), self._counted, system_chars, self._model.known_window, budget)
