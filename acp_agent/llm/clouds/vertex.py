"""`VertexProvider`: models on Google's Vertex AI, by application default credentials (extra `vertex`).

Claude is spoken to by Anthropic's Messages API, all others (Gemini, Llama, ...) by chat completions, each at an address
of its own below the same project. There is no list of models: they have to be named.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from acp_agent.config.model import ProviderOptions
from acp_agent.errors import ConfigError, ProviderError
from acp_agent.lazy import load
from acp_agent.llm import base as llm
from acp_agent.llm.chat import ChatProvider
from acp_agent.llm.messages import MessagesProvider
from acp_agent.llm.transport.http_provider import Exchange

VERSION = "vertex-2023-10-16"
"""Of the Messages API there, instead of the header `anthropic-version`."""
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
MISSING = "Vertex AI needs the package google-auth: pip install 'acp-coder[vertex]'"
UNNAMED = (
    "Vertex AI does not list its models. Name one: `vertex/google/gemini-2.5-pro`, `vertex/claude-sonnet-4-5@20250929`."
)
_GLOBAL = re.compile(r"^https://global-")


class GoogleToken:
    """An access token, refreshed when it is about to expire."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._credentials: Any = None
        self._guard = anyio.Lock()

    async def headers(self) -> Mapping[str, str]:
        """Raises ProviderError."""
        async with self._guard:
            token = await anyio.to_thread.run_sync(self._token, abandon_on_cancel=True)
        return {"Authorization": f"Bearer {token}"}

    def _token(self) -> str:
        try:
            failure = load("google.auth.exceptions:GoogleAuthError")
            if self._credentials is None:
                self._credentials, _ = load("google.auth:default")(scopes=SCOPES)
            if not self._credentials.valid:
                self._credentials.refresh(load("google.auth.transport.requests:Request")())
        except ImportError as error:
            raise ProviderError("auth", f"{self._name}: {MISSING}") from error
        except failure as error:
            words = f"{self._name}: no Google credentials: {error}. Run `gcloud auth application-default login`."
            raise ProviderError("auth", words) from error
        return str(self._credentials.token)


class _Chat(ChatProvider):
    def __init__(self, options: ProviderOptions, token: GoogleToken) -> None:
        super().__init__(options)
        self._token = token

    async def _authorized(self, method: str, url: str, body: bytes | None) -> Mapping[str, str]:
        return await self._token.headers()


class _Claude(MessagesProvider):
    def __init__(self, options: ProviderOptions, token: GoogleToken) -> None:
        super().__init__(options)
        self._token = token

    async def _authorized(self, method: str, url: str, body: bytes | None) -> Mapping[str, str]:
        return await self._token.headers()

    def _exchange(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> Exchange:
        made = super()._exchange(messages, tools, settings)
        body = msgspec.json.decode(made.body, type=dict[str, msgspec.Raw])
        del body["model"]
        sent = {"anthropic_version": VERSION, **body}
        model = settings.model.removeprefix("anthropic/")
        return msgspec.structs.replace(
            made, body=msgspec.json.encode(sent), path=f"/publishers/anthropic/models/{model}:streamRawPredict"
        )


class VertexProvider:
    """`options.base_url`: `https://LOCATION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/LOCATION`."""

    def __init__(self, options: ProviderOptions) -> None:
        self.name = options.name
        if not options.base_url:
            raise ConfigError(f"{options.name}: set GOOGLE_CLOUD_PROJECT, or the base URL of the project.")
        base_url = _GLOBAL.sub("https://", options.base_url.rstrip("/"))
        self._models = options.models
        token = GoogleToken(options.name)
        plain = msgspec.structs.replace(options, api_key=None)
        self._claude = _Claude(msgspec.structs.replace(plain, base_url=base_url), token)
        self._chat = _Chat(msgspec.structs.replace(plain, base_url=f"{base_url}/endpoints/openapi"), token)

    def stream(
        self, messages: Sequence[llm.Message], tools: Sequence[llm.ToolDefinition], settings: llm.ModelSettings
    ) -> AsyncGenerator[llm.ModelEvent, None]:
        """Runs one model call; see `Provider.stream`."""
        provider = self._claude if "claude" in settings.model else self._chat
        return provider.stream(messages, tools, settings)

    async def models(self) -> list[llm.ModelInfo]:
        """The configured models."""
        if not self._models:
            raise ProviderError("not_found", UNNAMED)
        return [llm.ModelInfo(name) for name in self._models]

    async def aclose(self) -> None:
        await self._claude.aclose()
        await self._chat.aclose()
