"""The commands and sub-agents of a session that are written down in Markdown files.

The first of a name counts: the agent's own, the user's, the project's, those of a folder that the user trusts, those of
plugins. The files of `.agents` are read as instructions are; those of `.claude` count only in a trusted folder.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from acp_agent.legible import legible, look
from acp_agent.loop.prompts.command_names import BUILT_IN as OTHER_COMMANDS
from acp_agent.loop.prompts.instructions import read_text
from acp_agent.loop.prompts.written_agents import WrittenAgent, read_agent
from acp_agent.loop.prompts.written_commands import WrittenCommand, read_command
from acp_agent.safety.folders.paths import Roots, read_regular

log = logging.getLogger(__name__)

COMMANDS, AGENTS = "commands", "agents"
PROJECT = ".agents"
PROJECT_TITLE = "project"
OTHERS = ".claude"
"""Whose files count only if the folder is trusted."""
OWN = Path(__file__).with_name("built_in")
BUILT_IN = {
    "init": ("Write an AGENTS.md for this project", "what matters most"),
    "review": ("Let a sub-agent review changes", "branch|commit|uncommitted|words"),
    "commit": ("Commit what was changed, with a message from the diff", "words about it"),
}
"""The agent's own written commands: description and hint, so that none is read before it is used."""
LOOKS = {look(name): name for name in (*BUILT_IN, *OTHER_COMMANDS)}
"""What our commands look like -> their names."""
REVIEWER = "reviewer"
REVIEWS = "Reviews changes and reports findings with their places"

MAX_FILES = 200
MAX_ENTRIES = 5_000
MAX_BYTES = 200_000
TOO_MANY = "%s has too many files: only %d are looked at"


class Library:
    """Of one session."""

    def __init__(self, roots: Roots, config_dir: Path, *, reads: bool) -> None:
        """`reads`: whether the project's and the user's are looked for (`agent.skills`)."""
        self._commands: dict[str, WrittenCommand] = {}
        self._agents: dict[str, WrittenAgent] = {}
        self._plugins: set[str] = set()
        if reads:
            for kind in (COMMANDS, AGENTS):
                self._take(kind, dict(_of_user(config_dir / kind)), "yours", trusted=True)
                for root in roots.all:
                    self._take(kind, dict(_of_project(root / PROJECT / kind, roots)), PROJECT_TITLE, trusted=False)

    def trust(self, files: Mapping[str, bytes]) -> None:
        """Takes what a trusted folder has for other agents: path below it -> bytes."""
        for kind in (COMMANDS, AGENTS):
            top = f"{OTHERS}/{kind}/"
            texts = {
                path.removeprefix(top): data.decode("utf-8", "replace")
                for path, data in files.items()
                if path.startswith(top)
            }
            self._take(kind, texts, "trusted folder", trusted=True)

    def of_plugin(self, name: str, commands: Mapping[str, str], agents: Mapping[str, str]) -> None:
        """Takes those of a plugin, whose names begin with its name."""
        self._plugins.add(name)
        self._take(COMMANDS, commands, name, trusted=True, prefix=f"{name}:")
        self._take(AGENTS, agents, name, trusted=True, prefix=f"{name}:")

    def _take(self, kind: str, files: Mapping[str, str], title: str, *, trusted: bool, prefix: str = "") -> None:
        for path, text in files.items():
            name = prefix + path.removesuffix(".md").replace("/", ":")
            made: WrittenCommand | WrittenAgent | None
            if kind == COMMANDS:
                made = read_command(name, text, f"{title}: {path}", title=title, trusted=trusted)
                if made is not None and (own := LOOKS.get(look(made.name))) is not None:
                    log.warning("%s: the command /%s is left out: it looks like our /%s", title, legible(name), own)
                elif made is not None:
                    self._put(self._commands, made.name, made)
            else:
                made = read_agent(name, text, f"{title}: {path}", title=title)
                if made is not None and made.name != REVIEWER:
                    self._put(self._agents, prefix + made.name.removeprefix(prefix), made)
            if made is None:
                log.warning("%s: %s/%s has no name that can be used, or no text", title, kind, path)

    def _put(self, known: dict[str, Any], name: str, made: WrittenCommand | WrittenAgent) -> None:
        """The first counts, but no project has the name of a plugin's."""
        if name not in known or (known[name].title == PROJECT_TITLE and made.title in self._plugins):
            known[name] = made

    # --- commands ---------------------------------------------------------------------------------------------

    def offered(self) -> Iterator[tuple[str, str, str]]:
        """Name, description and hint of each command."""
        yield from ((name, *words) for name, words in BUILT_IN.items())
        yield from ((each.name, f"{each.description} ({each.title})", each.hint) for each in self._commands.values())

    def command(self, name: str) -> WrittenCommand | None:
        if name in BUILT_IN:
            text = (OWN / f"{name}.md").read_text(encoding="utf-8")
            return read_command(name, text, name, title="acp-coder", trusted=True)
        return self._commands.get(name)

    # --- sub-agents -------------------------------------------------------------------------------------------

    def agents(self) -> dict[str, str]:
        """Name and description of each that the model may name."""
        return {
            name: f"{each.description} ({each.title}{'; may only read' if each.trouble else ''})"
            for name, each in self._agents.items()
        }

    @property
    def trouble(self) -> list[str]:
        """What is to be said of them."""
        return [
            f"The sub-agent `{legible(name)}` ({each.title}) may only read: {each.trouble}."
            for name, each in self._agents.items()
            if each.trouble
        ]

    def agent(self, name: str) -> WrittenAgent | None:
        if name == REVIEWER:
            text = (OWN / f"{name}.md").read_text(encoding="utf-8")
            return read_agent(name, text, name, title="acp-coder")
        return self._agents.get(name)


def _of_user(folder: Path) -> Iterator[tuple[str, str]]:
    for path in _below(folder):
        try:
            data = read_regular(folder / path, MAX_BYTES)
        except OSError as error:
            log.warning("%s cannot be read: %s", folder / path, error)
            continue
        if data is None:
            log.warning("%s is no regular file or larger than %d bytes, and left out", folder / path, MAX_BYTES)
        else:
            yield path, data.decode("utf-8", "replace")


def _below(folder: Path) -> list[str]:
    found: list[str] = []
    for top, folders, names in os.walk(folder):
        folders.sort()
        found += [os.path.relpath(os.path.join(top, name), folder) for name in sorted(names) if name.endswith(".md")]
        if len(found) > MAX_FILES:
            log.warning(TOO_MANY, folder, MAX_FILES)
            break
    return found[:MAX_FILES]


def _of_project(folder: Path, roots: Roots) -> Iterator[tuple[str, str]]:
    if roots.disk.kind(folder) != "dir":
        return
    entries = roots.disk.below(folder, MAX_ENTRIES)
    found = sorted(name for name, _ in entries or () if name.endswith(".md"))
    if entries is None or len(found) > MAX_FILES:
        log.warning(TOO_MANY, folder, MAX_FILES if entries is not None else 0)
    for path in found[:MAX_FILES]:
        if (text := read_text(folder / path, roots, MAX_BYTES)) is not None:
            yield path, text
