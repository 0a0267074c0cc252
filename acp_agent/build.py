"""The one place that assembles: configuration + client + session -> what a turn needs.

Loaded in stage two, in a thread, once the first session has been answered. Providers are shared by all sessions of the
process; everything else belongs to one session.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from acp_agent.config.credentials import find_key
from acp_agent.config.load import Config
from acp_agent.config.model import ProviderConfig
from acp_agent.errors import AuthRequired, InvalidParams, ProviderError
from acp_agent.executors.dyn import DynExecutor, Offer, route
from acp_agent.executors.editor import EditorExecutor
from acp_agent.executors.local import LocalExecutor
from acp_agent.executors.shell_state import forget_state, last_cwd
from acp_agent.lazy import load
from acp_agent.llm.base import (
    PROVIDERS,
    Message,
    ModelInfo,
    ModelSettings,
    Provider,
    ProviderOptions,
    ThoughtLevel,
    ToolDefinition,
    UserMessage,
)
from acp_agent.llm.choose import choose_api, needs_key
from acp_agent.loop.calls import Display, ToolRunner, offered
from acp_agent.loop.commands import Commands, commands_update
from acp_agent.loop.gate import Gate
from acp_agent.loop.history import History
from acp_agent.loop.options import AUTO_MODEL
from acp_agent.loop.prompt import parts_of, system_prompt, title_of
from acp_agent.loop.replay import rebuild_history
from acp_agent.loop.session import Session
from acp_agent.loop.turn import TurnHost, run_turn
from acp_agent.schema.acp import ContentBlock, StopReason
from acp_agent.store.base import SessionStore
from acp_agent.tools.context import Ledger, Services, ToolContext
from acp_agent.tools.registry import Registry, builtin_registry

__all__ = ["Builder", "SessionEngine"]

log = logging.getLogger(__name__)

DEFAULT_MODEL = "gpt-5.1"
"""Used with OpenAI when no model is configured: its list of models is long and in no useful order."""

DEFAULT_CONTEXT_WINDOW = 128_000
"""Tokens, where neither the configuration nor the server tells."""

THOUGHT_LEVELS: dict[str, ThoughtLevel] = {"off": "off", "low": "low", "medium": "medium", "high": "high"}

SAFE_FOLDER = "/tmp"
"""For script files where the system's temporary folder has a name that a shell would split."""


class ReadyModel:
    """A model that can be asked now. `known`: what its server told of its models, filled while the model answers."""

    def __init__(self, provider: Provider, name: str, known: Mapping[str, ModelInfo], settings: ProviderConfig) -> None:
        self.provider = provider
        self.name = name
        self.id = name.partition(":")[2]
        self._known = known
        self._window = settings.context_window

    @property
    def context_window(self) -> int:
        """Tokens; a guess until the server has told."""
        info = self._known.get(self.id)
        return self._window or (info.context_window if info else None) or DEFAULT_CONTEXT_WINDOW


class _Server:
    """A provider, and what it told of its models."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
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
    """`spawn` runs something in the background until the agent closes."""

    def __init__(self, environ: Mapping[str, str], spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self.environ = environ
        self._spawn = spawn
        self._registry = builtin_registry()
        self._servers: dict[str, _Server] = {}
        self._making = anyio.Lock()
        self._warm = False

    async def engine(self, session: Session, store: SessionStore) -> SessionEngine:
        """What a turn of `session` needs."""
        return SessionEngine(session, store, self._registry, self)

    async def introduce(self, session: Session) -> None:
        """Tells the client the session's commands and models, and loads what the first prompt needs.

        In the order of need: the provider is asked long before a tool is, and loading the tools takes longest.
        """
        session.emit(commands_update(), keep=False)
        try:
            await self._discover(session)
        except (AuthRequired, ProviderError, InvalidParams) as error:
            log.info("the models could not be listed: %s", error)
        if not self._warm:
            self._warm = True
            await anyio.to_thread.run_sync(self._registry.warm)

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
            self._spawn(self._learn(server))
        return ReadyModel(server.provider, f"{name}:{model}", server.models, settings)

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
                f"No API key for the provider `{name}`: set {settings.api_key_env} or run `acp-agent login`"
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
        identity = f"{api} {options!r}"
        async with self._making:
            if identity not in self._servers:
                self._servers[identity] = _Server(await anyio.to_thread.run_sync(_make_provider, api, options))
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


def _make_provider(api: str, options: ProviderOptions) -> Provider:
    provider: Provider = load(PROVIDERS[api])(options)
    return provider


def _api(settings: ProviderConfig) -> str:
    return settings.api or choose_api(settings.base_url)


class SessionEngine:
    """Provider, tools, permission gate and executors of one session."""

    def __init__(self, session: Session, store: SessionStore, registry: Registry, builder: Builder) -> None:
        settings = session.config.settings
        client = session.client
        self._session = session
        self._builder = builder
        self._settings = settings
        self.registry = registry
        self.commands = Commands(store)
        self._folder = _private_folder()
        self._local = LocalExecutor(
            environ=builder.environ,
            hidden=_own_keys(session.config),
            terminate_grace=settings.tools.bash.terminate_grace,
        )
        editor = EditorExecutor(client, self._local, self._folder, kill_timeout=settings.limits.kill_timeout)
        offer = Offer(
            terminal=client.has_terminals and settings.tools.bash.editor_terminal,
            read_text=client.reads_files and settings.tools.files.editor_buffers,
            write_text=client.writes_files and settings.tools.files.editor_buffers,
        )
        self._executor = DynExecutor(editor, self._local, offer)
        self._ledger = Ledger()
        self._services = Services()
        self._turn = 0
        self.runner = ToolRunner(
            registry,
            Gate(client, store, session.roots, session.mode),
            session,
            session.roots,
            self._context,
            Display(
                terminal_meta=client.shows_terminal_output and route("run", offer) == "local",
                updates_per_second=settings.limits.updates_per_second,
                live_chars=settings.limits.live_output_chars,
            ),
            max_output_chars=settings.tools.max_output_chars,
        )

    def _context(self, **of_the_call: Any) -> ToolContext:
        state = self._shell_state
        return ToolContext(
            executor=self._executor,
            roots=self._session.roots,
            config=self._settings.tools,
            ledger=self._ledger,
            services=self._services,
            shell_state=state,
            shell_cwd=partial(last_cwd, state, self._session.roots.cwd),
            **of_the_call,
        )

    async def model(self, choice: str) -> ReadyModel:
        return await self._builder.model(self._session, choice)

    def history(self) -> tuple[History, list[Message]]:
        return rebuild_history(self._session.stored())

    def user_message(self, blocks: Sequence[ContentBlock], choice: str) -> Message:
        provider = self._builder.provider_settings(self._session.config, choice.partition(":")[0])
        parts = parts_of(
            blocks,
            images=provider.images,
            audio=provider.audio,
            max_resource_bytes=self._settings.limits.max_prompt_bytes,
        )
        return UserMessage(parts)

    def title(self, blocks: Sequence[ContentBlock]) -> str:
        return title_of(blocks)

    def tools(self) -> Sequence[ToolDefinition]:
        return [entry.definition for entry in offered(self.registry, self._session.mode())]

    def settings(self, model: ReadyModel) -> ModelSettings:
        session = self._session
        agent = self._settings.agent
        return ModelSettings(
            model=model.id,
            system=system_prompt(session.roots, session.mode(), agent.instructions),
            thought_level=THOUGHT_LEVELS.get(session.thought_level),
            max_output_tokens=agent.max_output_tokens or None,
            cache_key=session.id,
        )

    async def run_turn(self, host: TurnHost, model: ReadyModel) -> StopReason:
        self._turn += 1  # A new turn's shell starts from the session's folder, with nothing exported.
        try:
            return await run_turn(
                model.provider, host, self.runner.run_all, max_iterations=self._settings.agent.max_tool_iterations
            )
        finally:
            forget_state(self._shell_state)

    @property
    def _shell_state(self) -> Path:
        return self._folder / f"shell-{self._turn}"

    async def close(self) -> None:
        await self._local.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _own_keys(config: Config) -> frozenset[str]:
    """The variables that hold the agent's own keys: no command the model runs needs them."""
    providers = (ProviderConfig(), *config.settings.providers.values())
    return frozenset(provider.api_key_env for provider in providers)


def _private_folder() -> Path:
    """For script files and shell state; only we can look into it."""
    parent = tempfile.gettempdir()
    if not parent.replace("/", "").replace("_", "").replace("-", "").replace(".", "").isalnum():
        parent = SAFE_FOLDER
    return Path(tempfile.mkdtemp(prefix="acp-agent-", dir=parent))
