"""The user's plugins in a session: their skills, commands, sub-agents, hooks and MCP servers."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from acp_agent.config.mcp_settings import McpServerConfig
from acp_agent.config.safety_settings import DecidingHook, PluginsConfig
from acp_agent.loop.prompts.front_matter import read_front_matter
from acp_agent.loop.prompts.library import Library
from acp_agent.loop.prompts.skills import MAX_LISTED, Skill, skill_of
from acp_agent.plugins.installed import Shelf

log = logging.getLogger(__name__)


class SessionPlugins:
    """As they are when the session's parts are built."""

    def __init__(self, config: PluginsConfig, environ: Mapping[str, str]) -> None:
        self._shelf = Shelf(environ)
        self._found, self.trouble = self._shelf.usable(config.disabled) if config.enabled else ([], [])
        self.hooks: list[DecidingHook] = []
        self.servers: dict[str, McpServerConfig] = {}
        for each in self._found:
            self.hooks += each.plugin.hooks
            for name, server in each.plugin.servers.items():  # `a` with `b-c`, and `a-b` with `c`.
                if (other := self.servers.setdefault(name, server)) is not server:
                    words = f"The MCP server {name} of the {server.of or each.plugin.name} is not used"
                    self.trouble.append(f"{words}: one of the {other.of or 'another plugin'} is called like that.")
            if each.plugin.hooks or each.plugin.servers:
                self._make(self._shelf.data(each.plugin.name))

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            self.trouble.append(f"The folder {folder} of a plugin cannot be made: {error.strerror or error}.")

    def lend(self, skills: dict[str, Skill], library: Library) -> None:
        """Adds what they have for the model, by names that begin with theirs."""
        for each in self._found:
            plugin = each.plugin
            library.of_plugin(plugin.name, plugin.commands, plugin.agents)
            for name, path in plugin.skills.items():
                if (skill := _skill(f"{plugin.name}:{name}", Path(path))) is not None:
                    skills.setdefault(skill.name, skill)

    def is_whole(self, of: str) -> bool:
        """Whether the plugin's files are those that the user accepted. Blocks."""
        return self._shelf.is_whole(of)

    def lines(self) -> list[str]:
        return [f"`{each.plugin.name}` {each.plugin.version} {each.source}".strip() for each in self._found]


def _skill(name: str, file: Path) -> Skill | None:
    try:
        front, body = read_front_matter(file.read_text(encoding="utf-8", errors="replace"), file)
    except OSError as error:
        log.warning("%s cannot be read: %s", file, error)
        return None
    folder = file.parent
    files = [
        os.path.relpath(os.path.join(top, each), folder) for top, _, names in os.walk(folder) for each in sorted(names)
    ]
    others = tuple(each for each in files if each != file.name)
    more = len(others) > MAX_LISTED
    return replace(skill_of(name, front, body, folder, others[:MAX_LISTED], more), apart=True)
