"""Tools that are not always available."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from acp_agent.config.model import ToolsConfig
from acp_agent.loop.prompts.skills import Skills
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.net.chromium import missing_browser

if TYPE_CHECKING:
    from acp_agent.loop.beside.background_runs import SessionRuns
    from acp_agent.loop.beside.languages import Languages

ASK_LANGUAGE_SERVERS = frozenset(("definition", "references", "symbols", "hover", "rename"))
TYPE_INTO_RUNS = frozenset(("capture_pane", "send_keys"))
LOOK_AT_RUNS = frozenset(("bash_output", "bash_kill", "bash_list"))

NO_RUNS = (
    "Nothing was started in the background in this session (`bash` with `background`). "
    "Runs end with their session, so those of earlier sessions are gone."
)
OF_TMUX = frozenset(("tmux_create_session", "tmux_kill_session", "tmux_create_pane", "tmux_kill_pane"))
NO_TMUX = "There is no tmux in this session (`tools.tmux.session`, `--tmux`)."
NO_TERMINALS = "No program runs in a terminal (`bash` with `terminal`)."


class Absent:
    def __init__(
        self, config: ToolsConfig, skills: Skills, runs: SessionRuns, languages: Languages, roots: Roots
    ) -> None:
        self._roots = roots
        self._config = config
        self._skills = skills
        self._runs = runs
        self._languages = languages

    @cached_property
    def _browser(self) -> str | None:
        return missing_browser(self._config.browser, self._roots.clients)

    def why(self, tool: str) -> str | None:
        """Why a tool is unavailable, as a sentence; `None` if it is available."""
        if tool in ASK_LANGUAGE_SERVERS:
            return self._languages.missing()
        if tool in LOOK_AT_RUNS:
            return None if self._runs.any else NO_RUNS
        if tool in TYPE_INTO_RUNS:
            return None if self._runs.any_terminal or self._runs.panes.on else NO_TERMINALS
        if tool in OF_TMUX:
            return None if self._runs.panes.on else NO_TMUX
        match tool:
            case "browser":
                return self._browser
            case "diagnostics" if not self._roots.disk.here:
                return f"It does not work {self._roots.disk.where}; run the project's own checks with `bash`."
            case "delegate" if not self._config.delegate.max_depth:
                return "Sub-agents are turned off (`tools.delegate.max_depth`)."
            case "skill" if not self._skills.names():
                return "This project has no skills (`.agents/skills/NAME/SKILL.md`)."
        return None
