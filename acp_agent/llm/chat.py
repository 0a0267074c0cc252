"""`ChatProvider`: any server that speaks chat completions. `chat_request` builds the body, `chat_answer` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from acp_agent.config.model import ProviderOptions
from acp_agent.config.provider_rows import row_of
from acp_agent.llm.base import Message, ModelSettings, ToolDefinition
from acp_agent.llm.chat_answer import ChatAnswer
from acp_agent.llm.chat_request import Dialect, RequestEncoder, learn
from acp_agent.llm.choose import choose_api, complete_base_url, host_of, is_loopback, key_headers
from acp_agent.llm.translate import MISTRAL_ID
from acp_agent.llm.transport.http_provider import Exchange, HttpProvider


class ChatProvider(HttpProvider):
    """A server with the chat-completions API: OpenRouter, vLLM, llama.cpp, Ollama, LM Studio and many more.

    Fields a server rejects (`stream_options`, a missing `reasoning_content`) are learnt and not sent again.
    """

    path = "/chat/completions"

    def __init__(self, options: ProviderOptions) -> None:
        base_url = complete_base_url(options.base_url)
        super().__init__(options, base_url, key_headers(base_url, options.api_key))
        self._encoder = RequestEncoder(_dialect(base_url))

    def _exchange(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], settings: ModelSettings
    ) -> Exchange:
        body = self._encoder.encode(messages, tools, settings)
        return Exchange(body, ChatAnswer(self._encoder.dialect.origin), partial(self._learn, self._encoder.dialect))

    def _learn(self, dialect: Dialect, words: str) -> bool:
        learnt = learn(dialect, words)
        if learnt is not None:
            self._encoder.dialect = learnt
        return learnt is not None


def _dialect(base_url: str) -> Dialect:
    """What is known of the server before it was asked. Those on this machine render chat templates, and pass over
    fields that they do not know."""
    origin = host_of(base_url)
    if choose_api(base_url) == "responses":
        return Dialect(openai=True, documents=True, origin=origin)
    if is_loopback(base_url):
        return Dialect(thinking="template", origin=origin)
    row = row_of(base_url)
    if row is None:
        return Dialect(origin=origin)
    return Dialect(
        stream_options="stream_options" not in row.lacks,
        documents=row.documents,
        breakpoints=row.cache == "breakpoints",
        thinking=row.thinking,
        ids=MISTRAL_ID if row.ids == "mistral" else None,
        origin=origin,
    )
