"""The one place that assembles: configuration + client + session -> what a turn needs.

Loaded in stage two, in a thread, once the first session has been answered. Providers are shared by all sessions of the
process; everything else belongs to one session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
import anyio.to_thread

from acp_agent.config.credentials import find_key, stored_keys
from acp_agent.config.load import Config
from acp_agent.config.model import ProviderConfig
from acp_agent.credentials.redactor import Redactor, own_values
from acp_agent.engine import SessionEngine
from acp_agent.errors import AuthRequired, InvalidParams, ProviderError
from acp_agent.lazy import load
from acp_agent.llm.base import (
    PROVIDERS,
    ModelInfo,
    Provider,
    ProviderOptions,
)
from acp_agent.llm.choose import choose_api, needs_key
from acp_agent.llm.fenced import FencedProvider, ToolCalling
from acp_agent.loop.calls.redaction import Redaction
from acp_agent.loop.options import AUTO_MODEL
from acp_agent.loop.session import Session
from acp_agent.loop.toolbox.relevance import Embed
from acp_agent.models import ReadyModel
from acp_agent.store.session_store import SessionStore
from acp_agent.tools.kit.registry import builtin_registry

log = logging.getLogger(__name__)

EMBEDDER = "acp_agent.llm.embeddings:Embedder"

DEFAULT_MODEL = "gpt-5.1"
"""Used with OpenAI when no model is configured: its list of models is long and in no useful order."""


class _Server:
    """A provider, and what it told of its models."""

    def __init__(self, provider: Provider, embed: Embed | None) -> None:
        self.provider = provider
        self.embed = embed
        self.models: dict[str, ModelInfo] = {}
        self.asked = False
        self._asking = anyio.Lock()

    async def list(self) -> Mapping[str, ModelInfo]:
        """Raises ProviderError; the next who asks tries again."""
        self.asked = True
        async with self._asking:
            if not self.models:
                self.models.update({info.id: info for info in await self.provider.models()})
        return self.models


class Builder:
    """`spawn` runs something in the background until the agent closes. `loaded` is called once all is loaded."""

    def __init__(
        self,
        environ: Mapping[str, str],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        loaded: Callable[[], None] = lambda: None,
    ) -> None:
        self._loaded = loaded
        self.environ = environ
        self.spawn = spawn
        self._registry = builtin_registry()
        self._servers: dict[str, _Server] = {}
        self._making = anyio.Lock()
        self._warm = False
        self._redactions: dict[object, Redaction] = {}

    async def engine(self, session: Session, store: SessionStore) -> SessionEngine:
        """What a turn of `session` needs."""
        engine = SessionEngine(session, store, self._registry, self)
        self.spawn(engine.live())
        self.spawn(engine.language.live())  # Apart: what befalls a language server is no matter of the others.
        return engine

    def redaction(self, session: Session) -> Redaction:
        """With the agent's own keys, and those of the MCP servers. Sessions that share them share it."""
        settings = session.config.settings
        variables = [
            self.environ,
            *(server.env for server in settings.mcp.servers.values()),
            *({item.name: item.value for item in getattr(server, "env", ())} for server in session.mcp_servers),
        ]
        keys = [provider.api_key for provider in settings.providers.values()] + stored_keys(self.environ)
        values = tuple(
            dict.fromkeys([*(value for some in variables for value in own_values(some)), *filter(None, keys)])
        )
        identity = (values, tuple(settings.secrets.extra_patterns), settings.secrets.redact)
        if identity not in self._redactions:
            redactor = Redactor(values=values, extra_patterns=identity[1], enabled=settings.secrets.redact)
            self._redactions[identity] = Redaction(redactor)
        return self._redactions[identity]

    async def introduce(self, session: Session) -> None:
        """Tells the client the session's commands and models, and loads what the first prompt needs.

        In the order of need: the provider is asked long before a tool is, and loading the tools takes longest.
        """
        engine = await session.engine()
        session.emit(engine.command_list(), keep=False)
        try:
            await self._discover(session)
        except (AuthRequired, ProviderError, InvalidParams) as error:
            log.info("the models could not be listed: %s", error)
        if not self._warm:
            self._warm = True
            await anyio.to_thread.run_sync(self._registry.warm)
            self._loaded()
        if told := await engine.start():
            session.tell("\n".join(told))
        await engine.warm()

    async def _discover(self, session: Session) -> None:
        """Makes the provider, and fills the model picker from a server that has a short list of its own."""
        name = session.model.partition(":")[0]
        settings = self.provider_settings(session.config, name)
        server = await self._server(name, session.config)
        if settings.models or _api(settings) != "chat":
            return
        names = [f"{name}:{model}" for model in await server.list()]
        if any(model not in session.models for model in names):
            session.models = list(dict.fromkeys([*session.models, *names]))
            session.show_options()

    async def model(self, session: Session, choice: str) -> ReadyModel:
        """The model behind `provider:model`. Raises AuthRequired, ProviderError, InvalidParams."""
        name, _, model = choice.partition(":")
        settings = self.provider_settings(session.config, name)
        server = await self._server(name, session.config)
        if model == AUTO_MODEL:
            model = await self._first_model(name, settings, server)
        if not server.asked and not settings.context_window and _api(settings) == "chat":
            self.spawn(self._learn(server))
        return ReadyModel(server.provider, f"{name}:{model}", server.models, settings, server.embed)

    async def _learn(self, server: _Server) -> None:
        """Asks for the context windows beside the prompt, which does not wait for them."""
        try:
            await server.list()
        except ProviderError as error:
            log.info("%s: context windows are not known: %s", server.provider.name, error)

    async def _first_model(self, name: str, settings: ProviderConfig, server: _Server) -> str:
        if _api(settings) == "responses":
            return DEFAULT_MODEL
        found = await server.list()
        if not found:
            raise ProviderError("not_found", f"The provider {name!r} lists no models; set OPENAI_MODEL.")
        return next(iter(found))

    async def _server(self, name: str, config: Config) -> _Server:
        settings = self.provider_settings(config, name)
        api = _api(settings)
        key = find_key(name, settings, self.environ)
        if key is None and api != "scripted" and needs_key(settings.base_url):
            raise AuthRequired(
                f"No API key for the provider `{name}`: set {settings.api_key_env} or run `acp-coder login`"
            )
        options = ProviderOptions(
            name=name,
            base_url=settings.base_url,
            api_key=key.value if key else None,
            headers=settings.headers,
            models=tuple(settings.models),
            connect_timeout=settings.connect_timeout,
            idle_timeout=settings.idle_timeout,
            max_retries=settings.max_retries,
            retry_base_delay=settings.retry_base_delay,
            max_retry_delay=settings.max_retry_delay,
            script=settings.script,
        )
        identity = f"{api} {settings.tool_calling} {settings.embedding_model} {options!r}"
        async with self._making:
            if identity not in self._servers:
                self._servers[identity] = _Server(
                    await anyio.to_thread.run_sync(_make_provider, api, options, settings.tool_calling),
                    load(EMBEDDER)(options, settings.embedding_model).embed if settings.embedding_model else None,
                )
        return self._servers[identity]

    def provider_settings(self, config: Config, name: str) -> ProviderConfig:
        """Raises InvalidParams for a provider that is not set up."""
        settings = config.settings.provider(name)
        if settings is None:
            raise InvalidParams(f"There is no provider {name!r} in the configuration")
        return settings

    async def close(self) -> None:
        for server in self._servers.values():
            await server.provider.aclose()


def _make_provider(api: str, options: ProviderOptions, tool_calling: ToolCalling) -> Provider:
    provider: Provider = load(PROVIDERS[api])(options)
    return provider if tool_calling == "native" else FencedProvider(provider, tool_calling)


def _api(settings: ProviderConfig) -> str:
    return settings.api or choose_api(settings.base_url)
