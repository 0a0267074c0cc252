"""The available models and their providers, which all sessions of the process share."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread

from acp_agent.config.credentials import find_key
from acp_agent.config.load import Config
from acp_agent.config.model import ProviderConfig, ProviderOptions
from acp_agent.config.provider_rows import row_of
from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.errors import AuthRequired, InvalidParams, ProviderError
from acp_agent.lazy import load
from acp_agent.llm.adapters import AdaptedProvider
from acp_agent.llm.base import ModelInfo, Provider
from acp_agent.llm.choose import choose_api, is_azure, is_loopback, needs_key, shown_url
from acp_agent.llm.lacks.fenced import Fenced
from acp_agent.llm.lacks.tolerant import Tolerant
from acp_agent.llm.provider_errors import server_label
from acp_agent.loop.choices import Choices
from acp_agent.loop.model.recorded import Recorded
from acp_agent.loop.options import AUTO_MODEL
from acp_agent.loop.toolbox.relevance import Embed

log = logging.getLogger(__name__)

EMBEDDER = "acp_agent.llm.embeddings:Embedder"

LOCAL_ANSWER = 0.5
"""Seconds that the first request waits for what a server on this machine says about its models."""
NAMED_ANSWER = 2.0
"""The same of any server, where the user has just named the model."""

DATED = r"-(\d{3,8}|\d{4}-\d\d-\d\d|\d\d-\d{4}|latest)"
"""What a listed name has behind that of its alias."""


class ServedModel:
    """A model and its server. `known`: what that says about its models, filled while the model answers."""

    def __init__(
        self,
        provider: Provider,
        name: str,
        known: Mapping[str, ModelInfo],
        settings: ProviderConfig,
        embed: Embed | None,
    ) -> None:
        self.provider = provider
        self.embed = embed
        self.name = name
        self.id = name.partition("/")[2]
        self.settings = settings
        self._known = known

    @property
    def server(self) -> str:
        """What a user calls its server."""
        return server_label(self.name.partition("/")[0], self.settings.base_url)

    def unlisted(self) -> Sequence[str]:
        """What the server lists, if that is known and the model is not among it. Another form of a listed name is: an
        alias without the date, a tag or a prefix that the list leaves out or has."""
        if self.settings.models or is_azure(self.settings.base_url):
            return ()  # Azure lists models, and is asked for deployments.
        return () if any(_same(self.id, listed) for listed in self._known) else tuple(self._known)

    @property
    def known_window(self) -> int | None:
        """Tokens, if the configuration or the server says."""
        info = self._known.get(self.id)
        return self.settings.context_window or (info.context_window if info else None)


class _Server:
    """A provider, and what it says about its models."""

    def __init__(self, provider: Provider, embed: Embed | None) -> None:
        self.provider = provider
        self.embed = embed
        self.models: dict[str, ModelInfo] = {}
        self.asked = self.failed = False
        self._asking = anyio.Lock()

    async def list(self) -> Mapping[str, ModelInfo]:
        """Raises ProviderError; the next caller tries again."""
        self.asked = True
        async with self._asking:
            if not self.models:
                try:
                    found = await self.provider.models()
                except ProviderError:
                    self.failed = True
                    raise
                self.models.update({info.id: info for info in found})
        return self.models


class Models:
    """`spawn` runs something in the background until the agent closes."""

    def __init__(self, environ: Mapping[str, str], spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._environ = environ
        self._spawn = spawn
        self.recorded = Recorded(environ)
        self._servers: dict[str, _Server] = {}
        self._making = anyio.Lock()

    async def discover(self, config: Config, choices: Choices) -> None:
        """Creates the provider, and fills the model picker if the server has a short list. Raises
        AuthRequired, ProviderError, InvalidParams."""
        name = choices.model.partition("/")[0]
        settings = self.settings(config, name)
        server = await self._server(name, config)
        if settings.models:
            choices.found([f"{name}/{model}" for model in settings.models])
        if settings.models or not _lists(settings):
            return
        choices.found([f"{name}/{model}" for model in await server.list()])

    async def ready(self, config: Config, choice: str, *, named: bool = False) -> ServedModel:
        """The model behind `provider/model`. `named`: by the user, just now. Raises AuthRequired, ProviderError,
        InvalidParams."""
        name, _, model = choice.partition("/")
        settings = self.settings(config, name)
        server = await self._server(name, config)
        if model == AUTO_MODEL:
            row = row_of(settings.base_url) if name in config.found else None
            model = (row.model if row is not None else "") or await self._first_model(name, settings, server)
        if not server.asked and not settings.context_window and _lists(settings):
            await self._learn_soon(server, is_loopback(settings.base_url))
        wait = NAMED_ANSWER if named else LOCAL_ANSWER if is_loopback(settings.base_url) else 0
        if wait and _lists(settings) and not server.models and not server.failed:
            with anyio.move_on_after(wait):
                await self._learn(server)
        return ServedModel(server.provider, f"{name}/{model}", server.models, settings, server.embed)

    async def learn(self, config: Config, choice: str) -> None:
        """Waits until the server has said what it says about its models; never longer than connecting may take."""
        name = choice.partition("/")[0]
        settings = self.settings(config, name)
        if _lists(settings):
            server = await self._server(name, config)
            with anyio.move_on_after(settings.connect_timeout):
                await self._learn(server)

    async def _learn_soon(self, server: _Server, local: bool) -> None:
        """A small window decides what the first request has in it; a server on this machine says it at once."""
        if local:
            with anyio.move_on_after(LOCAL_ANSWER) as scope:
                await self._learn(server)
            if not scope.cancelled_caught:
                return
        self._spawn(self._learn(server))

    async def _learn(self, server: _Server) -> None:
        """Requests the context windows while the prompt runs, without delaying it."""
        try:
            await server.list()
        except ProviderError as error:
            log.info("%s: context windows are unknown: %s", server.provider.name, error)

    async def _first_model(self, name: str, settings: ProviderConfig, server: _Server) -> str:
        if not _lists(settings) and (default := WIRE_APIS[_api(settings)].model):
            return default
        found = await server.list()
        if not found:
            raise ProviderError("not_found", f"The provider {name!r} lists no models; set OPENAI_MODEL.")
        return next(iter(found))

    async def _server(self, name: str, config: Config) -> _Server:
        settings = self.settings(config, name)
        api = _api(settings)
        key = find_key(name, settings, self._environ)
        if key is None and settings.api_key_env and needs_key(settings.base_url, api):
            named = "" if name == "default" else f" {name}"
            words = f"set {settings.api_key_env} or run `acp-coder login{named}`"
            raise AuthRequired(f"{server_label(name, settings.base_url)} needs an API key: {words}")
        options = ProviderOptions.of(name, settings, key.value if key else None)
        record = config.settings.agent.record
        identity = f"{api} {record} {options!r}"
        embeds = settings.embedding_model and not WIRE_APIS[api].recorded
        async with self._making:
            if identity not in self._servers:
                made: Provider = await anyio.to_thread.run_sync(WIRE_APIS[api].load(), options)
                adapters = self.recorded.adapters(made, config.settings)
                if not WIRE_APIS[api].recorded:
                    adapters += [Fenced(options.tool_calling), Tolerant(made.name)]
                self._servers[identity] = _Server(
                    AdaptedProvider(made, *adapters), load(EMBEDDER)(options).embed if embeds else None
                )
        return self._servers[identity]

    def state(self, config: Config, choice: str) -> str:
        """Where the model is and which key is used, for a user. Raises InvalidParams."""
        settings, origin = self.settings(config, choice.partition("/")[0]), self.key_origin(config, choice)
        choice = choice.removeprefix("default/")
        where = shown_url(settings.base_url) or "the OpenAI API"
        if origin:
            return f"Model: `{choice}` at {where}. Key: {origin}."
        if not settings.api_key_env or not needs_key(settings.base_url, _api(settings)):
            return f"Model: `{choice}` at {where}, which needs no key."
        words = f"set {settings.api_key_env}, or run `acp-coder login` in a terminal"
        return f"Model: `{choice}` at {where}. **There is no key**: {words}."

    def key_origin(self, config: Config, choice: str) -> str:
        """Where the key of this model's server is from, in words; empty without one."""
        name = choice.partition("/")[0]
        settings = config.settings.provider(name)
        key = None if settings is None else find_key(name, settings, self._environ)
        return "" if key is None else key.origin

    def settings(self, config: Config, name: str) -> ProviderConfig:
        """Raises InvalidParams for a provider that is not configured."""
        settings = config.settings.provider(name)
        if settings is None:
            raise InvalidParams(config.settings.no_provider(name))
        return settings

    async def close(self) -> None:
        for server in self._servers.values():
            await server.provider.aclose()


def _same(model: str, listed: str) -> bool:
    """Whether a server that lists this one may know that one."""
    model, listed = model.lower(), listed.lower().removeprefix("models/")
    alias = re.escape(model.removesuffix("-latest"))
    forms = (model, f"{model}:latest", model.partition(":")[0])
    return (
        listed in forms
        or listed.rpartition("/")[2].removesuffix(".gguf") == model
        or bool(re.fullmatch(alias + DATED, listed))
    )


def _lists(settings: ProviderConfig) -> bool:
    """Whether the server's list of models is of use."""
    api = _api(settings)
    lists = WIRE_APIS[api].lists
    return lists == "always" or (lists == "elsewhere" and choose_api(settings.base_url) != api)


def _api(settings: ProviderConfig) -> str:
    return settings.api or choose_api(settings.base_url)
