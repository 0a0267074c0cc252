"""`MessagesProvider`: Anthropic's Messages API. `messages_request` builds the body, `messages_answer` reads the answer.

Other servers speak it, too (LiteLLM, llama.cpp, LM Studio, and vendors whose models are meant for Claude's clients).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from acp_agent.config.model import ProviderOptions
from acp_agent.llm.base import Message, ModelSettings, ToolDefinition
from acp_agent.llm.choose import ANTHROPIC_BASE_URL, complete_base_url
from acp_agent.llm.messages_answer import MessagesAnswer
from acp_agent.llm.messages_request import MessagesEncoder
from acp_agent.llm.transport.http_provider import Exchange, HttpProvider

API_VERSION = "2023-06-01"
BETA, FAST_MODE = "anthropic-beta", "fast-mode-2026-02-01"


class MessagesProvider(HttpProvider):
    """A server with the Messages API. What a model refuses (a way of thinking, too long an answer, the thoughts of
    another one) is learnt and not sent again."""

    path = "/messages"
    models_path = "/models?limit=1000"

    def __init__(self, options: ProviderOptions) -> None:
        headers = {"anthropic-version": API_VERSION}
        if key := (options.api_key or "").strip():
            headers["x-api-key"] = key
        super().__init__(options, complete_base_url(options.base_url or ANTHROPIC_BASE_URL), headers)
        self._encoder = MessagesEncoder()

    def _exchange(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], settings: ModelSettings
    ) -> Exchange:
        manner = self._encoder.manner(settings.model)
        body = self._encoder.encode(messages, tools, settings)
        learn, headers = partial(self._encoder.learn, settings.model, manner, messages), {}
        if settings.fast:
            own = [value for name, value in self._options.headers.items() if name.lower() == BETA]
            headers = {BETA: ",".join([*own, FAST_MODE])}
        return Exchange(body, MessagesAnswer(settings.model), learn, headers=headers)
