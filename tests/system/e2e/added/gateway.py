"""`GatewayProvider`: chat completions behind a gateway that has a path and a header for the key of its own."""

from __future__ import annotations

from acp_agent.config.model import ProviderOptions
from acp_agent.llm.chat import ChatProvider


class GatewayProvider(ChatProvider):
    """A gateway. The answers are those of the server behind it."""

    path = "/gateway/answers"

    def __init__(self, options: ProviderOptions) -> None:
        super().__init__(options)
        if key := self._headers.pop("Authorization", ""):
            self._headers["X-Gateway-Key"] = key.removeprefix("Bearer ")
