"""A model that can be asked now: its provider, its name, and what its server told of it."""

from __future__ import annotations

from collections.abc import Mapping

from acp_agent.config.model import ProviderConfig
from acp_agent.llm.base import ModelInfo, Provider
from acp_agent.loop.toolbox.relevance import Embed

DEFAULT_CONTEXT_WINDOW = 128_000
"""Tokens, where neither the configuration nor the server tells."""


class ReadyModel:
    """A model that can be asked now. `known`: what its server told of its models, filled while the model answers."""

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
        self.id = name.partition(":")[2]
        self._known = known
        self._window = settings.context_window

    @property
    def known_window(self) -> int | None:
        """Tokens, where the configuration or the server has told."""
        info = self._known.get(self.id)
        return self._window or (info.context_window if info else None)

    @property
    def context_window(self) -> int:
        """Tokens; a guess until somebody has told."""
        return self.known_window or DEFAULT_CONTEXT_WINDOW
