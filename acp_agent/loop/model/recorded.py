"""Recordings of a process: which providers are recorded, and what is known of folders and credentials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from acp_agent.config.model import AgentConfig, Settings
from acp_agent.lazy import load
from acp_agent.llm.adapters import Adapter
from acp_agent.llm.base import Provider

RECORDER = "acp_agent.llm.recordings.recorder:Recorder"
TAPE_OF = "acp_agent.llm.recordings.tape:tape_of"
CLEANER = "acp_agent.llm.recordings.cleaning:Cleaner"
REDACTOR = "acp_agent.credentials.redactor:Redactor"


class Recorded:
    """Nothing is loaded before something is recorded or played."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._values: dict[str, None] = {}
        self._patterns: dict[str, None] = {}
        self._folders: dict[Path, None] = {}
        self._cleaners: list[Any] = []

    def know(self, folder: Path, values: Iterable[str], patterns: Iterable[str]) -> None:
        """Takes a session's folder and the credentials that are known to it."""
        self._folders[folder] = None
        self._values.update(dict.fromkeys(values))
        self._patterns.update(dict.fromkeys(patterns))
        for cleaner in self._cleaners:
            self._teach(cleaner)

    def adapters(self, made: Provider, settings: Settings) -> list[Adapter]:
        """A recorder of what is said with the provider, if there is to be one."""
        self._add(getattr(made, "cleaner", None))
        if not settings.agent.record:
            return []
        tape = load(TAPE_OF)(path_of(settings.agent.record), self._cleaner, about(settings.agent))
        self._add(tape.cleaner)
        return [load(RECORDER)(made.name, tape)]

    def _cleaner(self) -> Any:
        return load(CLEANER)(load(REDACTOR)(), self._environ)

    def _add(self, cleaner: Any) -> None:
        if cleaner is not None and cleaner not in self._cleaners:
            self._cleaners.append(cleaner)
            self._teach(cleaner)

    def _teach(self, cleaner: Any) -> None:
        """It redacts, whatever `secrets.redact` says."""
        cleaner.redactor = load(REDACTOR)(values=tuple(self._values), extra_patterns=tuple(self._patterns))
        for folder in self._folders:
            cleaner.folder(str(folder))


def path_of(text: str) -> Path:
    return Path(text).expanduser().absolute()


def about(config: AgentConfig) -> dict[str, Any]:
    """What the header of a recording says of the configuration."""
    return {"fallback_models": list(config.fallback_models)} if config.fallback_models else {}
