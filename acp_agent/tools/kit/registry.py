"""The table of tools. Definitions come from a generated file, so that the first request needs no pydantic; the classes
are loaded at the first call (or earlier, by `loaders`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from acp_agent.lazy import load
from acp_agent.llm.base import ToolDefinition
from acp_agent.schema.acp import ToolKind

if TYPE_CHECKING:
    from acp_agent.tools.kit.base import Tool

ENTRY_POINTS = "acp_coder.tools"
"""The entry point group under which packages offer tools."""

TOOLS: dict[str, str] = {
    "bash": "acp_agent.tools.bash:Bash",
    "bash_output": "acp_agent.tools.background_tools:BashOutput",
    "bash_kill": "acp_agent.tools.background_tools:BashKill",
    "bash_list": "acp_agent.tools.background_tools:BashList",
    "capture_pane": "acp_agent.tools.terminal.capture_pane:CapturePane",
    "send_keys": "acp_agent.tools.terminal.send_keys:SendKeys",
    "tmux_create_session": "acp_agent.tools.terminal.tmux_tools:TmuxCreateSession",
    "tmux_kill_session": "acp_agent.tools.terminal.tmux_tools:TmuxKillSession",
    "tmux_create_pane": "acp_agent.tools.terminal.tmux_tools:TmuxCreatePane",
    "tmux_kill_pane": "acp_agent.tools.terminal.tmux_tools:TmuxKillPane",
    "read": "acp_agent.tools.files.read:Read",
    "read_overflow": "acp_agent.tools.read_overflow:ReadOverflow",
    "edit": "acp_agent.tools.files.edit:Edit",
    "apply_patch": "acp_agent.tools.files.apply_patch:ApplyPatch",
    "write": "acp_agent.tools.files.write:Write",
    "edit_notebook": "acp_agent.tools.files.edit_notebook:EditNotebook",
    "find_path": "acp_agent.tools.files.find_path:FindPath",
    "grep": "acp_agent.tools.files.grep:Grep",
    "list_directory": "acp_agent.tools.files.entry_tools:ListDirectory",
    "create_directory": "acp_agent.tools.files.entry_tools:CreateDirectory",
    "delete_path": "acp_agent.tools.files.entry_tools:DeletePath",
    "move_path": "acp_agent.tools.files.entry_tools:MovePath",
    "copy_path": "acp_agent.tools.files.entry_tools:CopyPath",
    "diagnostics": "acp_agent.tools.code.diagnostics:Diagnostics",
    "definition": "acp_agent.tools.code.symbol_tools:Definition",
    "references": "acp_agent.tools.code.symbol_tools:References",
    "symbols": "acp_agent.tools.code.symbol_tools:Symbols",
    "hover": "acp_agent.tools.code.symbol_tools:Hover",
    "rename": "acp_agent.tools.code.rename:Rename",
    "plan": "acp_agent.tools.plan:Plan",
    "fetch": "acp_agent.tools.web.fetch:Fetch",
    "web_scrape": "acp_agent.tools.web.web_scrape:WebScrape",
    "http_request": "acp_agent.tools.web.http_request:HttpRequest",
    "web_search": "acp_agent.tools.web.web_search:WebSearch",
    "ask_user": "acp_agent.tools.session_tools:AskUser",
    "delegate": "acp_agent.tools.session_tools:Delegate",
    "browser": "acp_agent.tools.web.browser:Browser",
    "memory_forget": "acp_agent.tools.memory_tools:MemoryForget",
    "memory_recall": "acp_agent.tools.memory_tools:MemoryRecall",
    "memory_store": "acp_agent.tools.memory_tools:MemoryStore",
    "schedule_add": "acp_agent.tools.schedule_tools:ScheduleAdd",
    "schedule_list": "acp_agent.tools.schedule_tools:ScheduleList",
    "schedule_remove": "acp_agent.tools.schedule_tools:ScheduleRemove",
    "skill": "acp_agent.tools.session_tools:Skill",
    "switch_mode": "acp_agent.tools.session_tools:SwitchMode",
    "time": "acp_agent.tools.session_tools:Time",
    "tools": "acp_agent.tools.session_tools:FindTools",
}
"""Name -> `"module:Class"`."""

STEP_AWAY = frozenset(
    "create_directory delete_path move_path copy_path diagnostics memory_store memory_recall memory_forget "
    "schedule_add schedule_list schedule_remove browser http_request web_scrape time "
    "edit_notebook".split()
)
"""Tools that few tasks need: found and added by `tools`, or by what the model sees (`Offer.bring`)."""

ESSENTIAL = frozenset(
    "bash bash_output bash_kill read edit apply_patch write find_path grep list_directory skill switch_mode "
    "tools".split()
)
"""Those of ours that a model with a small context gets, since the definitions of all tools would fill it; `tools` finds
the others."""

OF_CONVERSATION = frozenset(("plan", "ask_user", "switch_mode", "schedule_add", "schedule_remove"))
"""Tools that belong to the conversation with the user: sub-agents do not have them."""

SHARED = "acp_agent.tools.kit.base:Tool"
"""Imports pydantic."""


class ToolEntry(msgspec.Struct, frozen=True):
    """The entry of a tool, known without loading it."""

    name: str
    aliases: tuple[str, ...]
    kind: ToolKind
    reads_only: bool
    description: str
    parameters: dict[str, Any]
    idempotent: bool = False
    core: bool = True
    """Always among the definitions that are sent; others only if relevant."""

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(self.name, self.description, self.parameters)


def plain_name(name: str) -> str:
    """The name as ours are written: `WebFetch` is `web_fetch`, `LS` is `ls`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


class Tools(ABC):
    """A table of tools."""

    @abstractmethod
    def entries(self) -> tuple[ToolEntry, ...]: ...

    @abstractmethod
    def find(self, name: str) -> ToolEntry | None:
        """By name or alias."""

    @abstractmethod
    def tool(self, name: str) -> Tool[Any]:
        """The tool itself, loaded if necessary. `name` is its own name, not an alias."""

    @abstractmethod
    def loaded(self, name: str) -> Tool[Any] | None:
        """The same, but only if already loaded."""

    def own_name(self, name: str) -> str:
        """The tool's own name for an alias; an unknown name is returned unchanged."""
        entry = self.find(name)
        return name if entry is None else entry.name

    def knows(self, name: str) -> bool:
        return self.find(name) is not None


class Registry(Tools):
    """`rows`: name -> `"module:Class"` of the tools that are not loaded yet."""

    def __init__(self, entries: Iterable[ToolEntry], rows: Mapping[str, str]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._rows = rows
        self._names = {alias: entry.name for entry in self._entries.values() for alias in (entry.name, *entry.aliases)}
        self._tools: dict[str, Tool[Any]] = {}

    def entries(self) -> tuple[ToolEntry, ...]:
        return tuple(self._entries.values())

    def find(self, name: str) -> ToolEntry | None:
        return self._entries.get(self._names.get(name) or self._names.get(plain_name(name), ""))

    def tool(self, name: str) -> Tool[Any]:
        found = self._tools.get(name)
        if found is None:
            found = self._tools[name] = load(self._rows[name])()
        return found

    def loaded(self, name: str) -> Tool[Any] | None:
        return self._tools.get(name)

    def loaders(self) -> Iterator[Callable[[], object]]:
        """Functions that together load all tools; the first loads their shared modules, which takes longest."""
        yield partial(load, SHARED)
        for name in self._entries:
            yield partial(self.tool, name)


class SessionRegistry(Tools):
    """The built-in tools and those of one session: from MCP servers, the project, and packages.

    They come in groups, each replaced as a whole when it changes. The first tool to take a name keeps it; `set_group`
    returns the names of later ones.
    """

    def __init__(self, base: Registry) -> None:
        self._base = base
        self._groups: dict[str, dict[str, tuple[ToolEntry, Tool[Any]]]] = {}

    def set_group(self, group: str, tools: Iterable[tuple[ToolEntry, Tool[Any]]]) -> list[str]:
        """Replaces the tools of `group`. Returns the names that were already taken and left out."""
        self._groups[group] = {}
        left_out = []
        for entry, tool in tools:
            if any(self.find(name) is not None for name in (entry.name, *entry.aliases)):
                left_out.append(entry.name)
            else:
                self._groups[group][entry.name] = (entry, tool)
        return left_out

    def entries(self) -> tuple[ToolEntry, ...]:
        own = (entry for group in self._groups.values() for entry, _ in group.values())
        return (*self._base.entries(), *own)

    def find(self, name: str) -> ToolEntry | None:
        if (found := self._base.find(name)) is not None:
            return found
        for group in self._groups.values():
            for entry, _ in group.values():
                if name == entry.name or name in entry.aliases:
                    return entry
        return None

    def tool(self, name: str) -> Tool[Any]:
        return self._own(name) or self._base.tool(name)

    def loaded(self, name: str) -> Tool[Any] | None:
        return self._own(name) or self._base.loaded(name)

    def _own(self, name: str) -> Tool[Any] | None:
        for group in self._groups.values():
            if name in group:
                return group[name][1]
        return None


def user_words() -> dict[str, str]:
    """What each tool of this package does, in a sentence for the user."""
    text = (Path(__file__).parents[1] / "user_words.toml").read_text(encoding="utf-8")
    return msgspec.convert(load("tomllib:loads")(text), dict[str, str])


def builtin_registry() -> Registry:
    """The tools of this package."""
    data = (Path(__file__).parents[1] / "definitions.json").read_bytes()
    return Registry(msgspec.json.decode(data, type=list[ToolEntry]), TOOLS)
