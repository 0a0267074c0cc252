"""The project's words for agents: `AGENTS.md` (else `CLAUDE.md`, else `GEMINI.md`), and its skills.

The files of the session's own folders are read when the session begins and stand in the system prompt, which stays the
same as long as the session does. Those of sub-folders are told with the first result that touches a file below them.
Links that lead out of the session's folders are not followed.
"""

from __future__ import annotations

import copy
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from acp_agent.errors import ExecutorError
from acp_agent.executors import files
from acp_agent.lazy import load
from acp_agent.loop.prompts.project_rules import instruction_file, skill_files
from acp_agent.safety.folders.paths import Roots, real_path

log = logging.getLogger(__name__)

YAML = "yaml:load"
YAML_LOADER = "yaml:BaseLoader"
"""Knows texts, lists and tables only: no dates, no merged tables that grow without end."""
YAML_ERROR = "yaml:YAMLError"

FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
MAX_DESCRIPTION = 1024
MAX_FRONT_MATTER = 8192
MAX_SKILL_BYTES = 200_000
MAX_LISTED = 50
"""Further files of a skill that are named with it."""
MAX_SEEN = 5_000
"""Entries of its folder that are looked at for that."""


class Instructions:
    """Of one session. `max_bytes` bounds the text of each file and of all in the system prompt together."""

    def __init__(self, roots: Roots, *, enabled: bool, max_bytes: int) -> None:
        self._roots = roots
        self._enabled = enabled
        self._max_bytes = max_bytes
        self._told: set[Path] = set()
        self.text = self._of_roots()
        """For the system prompt; empty where there is nothing."""

    def _of_roots(self) -> str:
        if not self._enabled:
            return ""
        parts, left = [], self._max_bytes
        for folder in self._roots.all:
            file = instruction_file(folder)
            if file is not None and left > 0 and (text := self._read(file, left)):
                left -= len(text.encode())
                parts.append(f"\nInstructions of the project ({self._roots.display(real_path(file))}):\n{text}\n")
        return "".join(parts)

    def for_paths(self, paths: Iterable[Path]) -> str:
        """What the folders between the session's and these files say, where it has not been told yet."""
        if not self._enabled:
            return ""
        parts = []
        for path in paths:
            for folder in self._between(path):
                file = instruction_file(folder)
                if file is None or file in self._told:
                    continue
                self._told.add(file)
                if text := self._read(file, self._max_bytes):
                    shown = self._roots.display(folder)
                    parts.append(f"[Instructions for everything below {shown}/ ({file.name}):\n{text}\n]")
        return "\n".join(parts)

    def for_sub_agent(self) -> Instructions:
        """The same for a model that has been told nothing yet of sub-folders."""
        other = copy.copy(self)
        other._told = set()
        return other

    def forget(self) -> None:
        """The model has forgotten the conversation, and what it was told in it."""
        self._told.clear()

    def _between(self, path: Path) -> list[Path]:
        """The folders from below a root down to `path`, outermost first."""
        folders: list[Path] = []
        for folder in (path, *path.parents):
            if self._roots.is_root(folder):
                return folders[::-1]
            if folder != path or path.is_dir():
                folders.append(folder)
        return []

    def _read(self, file: Path, limit: int) -> str:
        text = _read_text(file, self._roots, limit)
        return text.strip() if text is not None else ""


def _read_text(file: Path, roots: Roots, limit: int) -> str | None:
    try:
        real = real_path(file)
        if not roots.contains(real):
            log.warning("%s leads out of the session's folders and is not read", file)
            return None
        if roots.rules.hides(real):
            log.warning("%s is hidden by `tools.files.deny_read` and is not read", file)
            return None
        data = files.read(real, limit + 1)
    except (OSError, ExecutorError) as error:
        log.warning("%s cannot be read: %s", file, error)
        return None
    text = data[:limit].decode("utf-8", "replace")
    return f"{text}\n[... the rest is left out: more than {limit} bytes]" if len(data) > limit else text


# --- skills ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Skill:
    """A way of doing something, written down in the project."""

    name: str
    description: str
    body: str
    folder: Path
    files: tuple[str, ...] = ()
    """What else is in its folder, relative to it."""

    def text(self, roots: Roots, arguments: str = "") -> str:
        """What the model is to follow."""
        where = roots.display(self.folder)
        files = f"\n\nFiles of this skill, below {where}/: {', '.join(self.files)}" if self.files else ""
        asked = f"\n\nArguments: {arguments}" if arguments else ""
        return f'<skill name="{self.name}" folder="{where}">\n{self.body.strip()}{files}\n</skill>{asked}'


def read_skills(roots: Roots) -> dict[str, Skill]:
    """The skills of the session's folders by name; one that cannot be used is left out, and the log says why."""
    skills: dict[str, Skill] = {}
    for root in roots.all:
        for file in skill_files(root):
            skill = _read_skill(file, roots)
            if skill is not None and skill.name not in skills:
                skills[skill.name] = skill
    return skills


def _read_skill(file: Path, roots: Roots) -> Skill | None:
    text = _read_text(file, roots, MAX_SKILL_BYTES)
    if text is None:
        return None
    facts: dict[str, str] = {}
    if (front := FRONT_MATTER.match(text)) is not None:
        facts = _facts(front[1], file)
        text = text[front.end() :]
    name = facts.get("name") or file.parent.name
    if NAME.fullmatch(name) is None:
        log.warning("%s: %r is no name for a skill (letters, digits, `-` and `_`)", file, name)
        return None
    described = facts.get("description") or _first_line(text)
    description = " ".join(described.split())[:MAX_DESCRIPTION]
    return Skill(name, description, text, real_path(file.parent), _others(file, roots))


def _facts(front: str, file: Path) -> dict[str, str]:
    """The texts of a front matter; whatever else it holds is left out."""
    if len(front) > MAX_FRONT_MATTER:
        log.warning("%s: the front matter is longer than %d characters and is not used", file, MAX_FRONT_MATTER)
        return {}
    try:
        read = load(YAML)(front, Loader=load(YAML_LOADER))
    except (load(YAML_ERROR), ValueError, RecursionError) as error:
        log.warning("%s: the front matter is no YAML and is not used: %s", file, error)
        return {}
    if not isinstance(read, dict):
        return {}
    return {key: value for key, value in read.items() if isinstance(key, str) and isinstance(value, str)}


def _first_line(text: str) -> str:
    return next((line.strip("# ").strip() for line in text.splitlines() if line.strip("# ").strip()), "")


def _others(file: Path, roots: Roots) -> tuple[str, ...]:
    """What else is in a skill's folder; a folder with very much in it is not searched to its end."""
    found: list[str] = []
    seen = 0
    for folder, folders, names in os.walk(file.parent):
        folders.sort()
        for name in sorted(names)[:MAX_LISTED]:
            path = Path(folder, name)
            if path != file and not roots.rules.hides(path) and len(found) < MAX_LISTED:
                found.append(str(path.relative_to(file.parent)))
        seen += len(names) + len(folders)
        if len(found) >= MAX_LISTED or seen > MAX_SEEN:
            break
    return tuple(found)
