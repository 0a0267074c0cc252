"""How often a session may call tools."""

from __future__ import annotations

from collections.abc import Sequence

from acp_agent.errors import ToolError
from acp_agent.llm.base import AssistantMessage, Message


class CallQuota:
    """How often a session may call tools, until `/clear`. All calls of one message count once.

    `used` comes from the history: it survives restarts like the session. `limit` 0: no limit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    def take(self) -> ToolError | None:
        if self._limit and self.used >= self._limit:
            return ToolError(
                f"quota_blocked: this session has used its {self._limit} tool calls "
                "(`tools.max_tool_calls_per_session`). Nothing was run.",
                "policy_blocked",
                suggestion="Say what you have found so far and what is left. The user can reset the limit with /clear.",
            )
        self.used += 1
        return None

    def reset(self) -> None:
        self.used = 0

    def count(self, messages: Sequence[Message]) -> None:
        """Takes for used what this history has."""
        self.used = sum(isinstance(message, AssistantMessage) and bool(message.tool_calls) for message in messages)
