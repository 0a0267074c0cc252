"""Holds what the editor's language servers publish for a session (`_lsp/publishDiagnostics`, `_lsp/didSave`).

Cheap to import: every session has one from the start, and most never need more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp_agent.config.language_settings import LspConfig
from acp_agent.lazy import load

if TYPE_CHECKING:
    from acp_agent.loop.beside.published_diagnostics import DiagnosticsCache

DIAGNOSTICS = "acp_agent.loop.beside.published_diagnostics:DiagnosticsCache"


class Published:
    def __init__(self, config: LspConfig) -> None:
        self._config = config
        self.known: DiagnosticsCache | None = None
        """`None` until something was published, or waited for."""

    def take(self, note: Any) -> None:
        if self._config.enabled:
            self.cache().take(note)

    def cache(self) -> DiagnosticsCache:
        """Returns what was published; stored from now on."""
        if self.known is None:
            config = self._config
            self.known = load(DIAGNOSTICS)(files=config.max_diagnostic_files, per_file=config.max_diagnostics_per_file)
        return self.known
