"""The table of tools. Definitions come from a generated file, so that the first request needs no pydantic; the classes
behind them are loaded when they are first called (or ahead of that, by `warm`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from acp_agent.lazy import load
from acp_agent.llm.base import ToolDefinition
from acp_agent.schema.acp import ToolKind

if TYPE_CHECKING:
    from acp_agent.tools.base import Tool

__all__ = ["TOOLS", "Registry", "ToolEntry", "builtin_registry"]

TOOLS: dict[str, str] = {
    "bash": "acp_agent.tools.bash:Bash",
    "read": "acp_agent.tools.read:Read",
    "edit": "acp_agent.tools.edit:Edit",
    "write": "acp_agent.tools.write:Write",
    "find_path": "acp_agent.tools.find_path:FindPath",
    "grep": "acp_agent.tools.grep:Grep",
    "list_directory": "acp_agent.tools.list_directory:ListDirectory",
    "plan": "acp_agent.tools.plan:Plan",
}
"""Name -> `"module:Class"`."""


class ToolEntry(msgspec.Struct, frozen=True):
    """What is known of a tool without loading it."""

    name: str
    aliases: tuple[str, ...]
    kind: ToolKind
    reads_only: bool
    description: str
    parameters: dict[str, Any]
    idempotent: bool = False
    core: bool = True
    """Always among the definitions that are sent; the others only where they are relevant."""

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(self.name, self.description, self.parameters)


class Registry:
    """`rows`: name -> `"module:Class"` of the tools that are not loaded yet."""

    def __init__(self, entries: Iterable[ToolEntry], rows: Mapping[str, str]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._rows = rows
        self._names = {alias: entry.name for entry in self._entries.values() for alias in (entry.name, *entry.aliases)}
        self._tools: dict[str, Tool[Any]] = {}

    def entries(self) -> tuple[ToolEntry, ...]:
        return tuple(self._entries.values())

    def find(self, name: str) -> ToolEntry | None:
        """By name or alias."""
        return self._entries.get(self._names.get(name, ""))

    def tool(self, name: str) -> Tool[Any]:
        """The tool itself, loaded now if need be. `name` is its own name, not an alias."""
        found = self._tools.get(name)
        if found is None:
            found = self._tools[name] = load(self._rows[name])()
        return found

    def loaded(self, name: str) -> Tool[Any] | None:
        """The same, where it is loaded already."""
        return self._tools.get(name)

    def warm(self) -> None:
        """Loads every tool; takes a while (pydantic), so it is called in a thread."""
        for name in self._entries:
            self.tool(name)


def builtin_registry() -> Registry:
    """The tools of this package."""
    data = files("acp_agent.tools").joinpath("definitions.json").read_bytes()
    return Registry(msgspec.json.decode(data, type=list[ToolEntry]), TOOLS)
