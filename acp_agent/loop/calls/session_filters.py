"""The filter rules of a session: the built-in ones, and those of the user's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from acp_agent.config.model import FiltersConfig
from acp_agent.config.xdg import config_file
from acp_agent.lazy import load

if TYPE_CHECKING:
    from acp_agent.output.filters import Filters


FILTERS_FILE = "filters.toml"
"""Beside the user's configuration file."""

READ = "acp_agent.output.filter_rules:read_user_filters"
LOAD = "acp_agent.output.filters:load_filters"
"""The filter engine is loaded when the first command has ended."""


class SessionFilters:
    """Read once, when first needed: changes to the file apply to new sessions."""

    def __init__(self, config: FiltersConfig, environ: Mapping[str, str]) -> None:
        self._config = config
        beside = Path(config_file(environ)).with_name(FILTERS_FILE)
        self._path = Path(config.path).expanduser() if config.path else beside

    @cached_property
    def _loaded(self) -> tuple[Filters, Sequence[str]]:
        text: str | None = None
        warnings: list[str] = []
        if self._config.path or self._path.exists():
            text, warnings = load(READ)(self._path)
        if self._config.path and text is None and not warnings:
            warnings = [
                f"There is no filter rules file at {self._path} (`tools.filters.path`). The built-in ones are used."
            ]
        filters, more = load(LOAD)(
            text, disabled=self._config.disabled, max_diff_lines=self._config.max_diff_lines, source=str(self._path)
        )
        return filters, [*warnings, *more]

    def get(self) -> Filters:
        return self._loaded[0]

    def trouble(self) -> Sequence[str]:
        """Lists what is wrong with the user's rules; reads nothing if there are none."""
        config = self._config
        if not config.enabled or not (config.path or config.disabled or self._path.exists()):
            return []
        return self._loaded[1]
