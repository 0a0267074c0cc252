"""The skills of a project: ways of doing something, written down in it (`.agents/skills/NAME/SKILL.md`)."""

from __future__ import annotations

import logging
import re
import stat
from pathlib import Path

from msgspec import Struct

from acp_agent.lazy import load
from acp_agent.loop.prompts.instructions import read_text
from acp_agent.loop.prompts.project_rules import skill_files
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.safety.folders.paths import Roots

log = logging.getLogger(__name__)

YAML = "yaml:load"
YAML_LOADER = "yaml:BaseLoader"
"""Loads only strings, lists and mappings: no dates, and no merge keys that could grow without bound."""
YAML_ERROR = "yaml:YAMLError"

FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
MAX_DESCRIPTION = 1024
MAX_FRONT_MATTER = 8192
MAX_SKILL_BYTES = 200_000
MAX_LISTED = 50
"""Maximum number of other files listed with a skill."""
MAX_SEEN = 5_000
"""Entries of its folder that are checked for that."""


class Skill(Struct, frozen=True):
    """A way of doing something, written down in the project."""

    name: str
    description: str
    body: str
    folder: Path
    files: tuple[str, ...] = ()
    """The other files in its folder, relative to it."""

    def text(self, roots: Roots, arguments: str = "") -> str:
        """Returns the instructions for the model."""
        where = roots.display(self.folder)
        files = f"\n\nFiles of this skill, below {where}/: {', '.join(self.files)}" if self.files else ""
        asked = f"\n\nArguments: {arguments}" if arguments else ""
        return f'<skill name="{self.name}" folder="{where}">\n{self.body.strip()}{files}\n</skill>{asked}'


class Skills:
    """Of one session. `turn` is told which skill it follows."""

    def __init__(self, known: dict[str, Skill], roots: Roots, turn: RunningTurn) -> None:
        self._known = known
        self._roots = roots
        self._turn = turn

    def names(self) -> list[str]:
        return list(self._known)

    def described(self) -> dict[str, str]:
        """Name and description of each."""
        return {skill.name: skill.description for skill in self._known.values()}

    def use(self, name: str) -> str | None:
        """The text of a skill, which the running turn follows from now on."""
        if (skill := self._known.get(name)) is None:
            return None
        self._turn.skill = name
        return skill.text(self._roots)

    def use_next(self, name: str, arguments: str) -> str | None:
        """The text of a skill that the next turn follows."""
        if (skill := self._known.get(name)) is None:
            return None
        self._turn.next_skill = name
        return skill.text(self._roots, arguments)


def read_skills(roots: Roots) -> dict[str, Skill]:
    """The skills of the session's folders by name; unusable ones are skipped, and the log says why."""
    skills: dict[str, Skill] = {}
    for root in roots.all:
        for file in skill_files(root, roots.disk):
            skill = _read_skill(file, roots)
            if skill is not None and skill.name not in skills:
                skills[skill.name] = skill
    return skills


def _read_skill(file: Path, roots: Roots) -> Skill | None:
    text = read_text(file, roots, MAX_SKILL_BYTES)
    if text is None:
        return None
    facts: dict[str, str] = {}
    if (front := FRONT_MATTER.match(text)) is not None:
        facts = _facts(front[1], file)
        text = text[front.end() :]
    name = facts.get("name") or file.parent.name
    if NAME.fullmatch(name) is None:
        log.warning("%s: %r is not a valid name for a skill (letters, digits, `-` and `_`)", file, name)
        return None
    described = facts.get("description") or _first_line(text)
    description = " ".join(described.split())[:MAX_DESCRIPTION]
    return Skill(name, description, text, roots.disk.real_path(file.parent), _others(file, roots))


def _facts(front: str, file: Path) -> dict[str, str]:
    """The texts of a front matter; whatever else it holds is left out."""
    if len(front) > MAX_FRONT_MATTER:
        log.warning("%s: the front matter is longer than %d characters and is not used", file, MAX_FRONT_MATTER)
        return {}
    try:
        read = load(YAML)(front, Loader=load(YAML_LOADER))
    except (load(YAML_ERROR), ValueError, RecursionError) as error:
        log.warning("%s: the front matter is not YAML and is not used: %s", file, error)
        return {}
    if not isinstance(read, dict):
        return {}
    return {key: value for key, value in read.items() if isinstance(key, str) and isinstance(value, str)}


def _first_line(text: str) -> str:
    return next((line.strip("# ").strip() for line in text.splitlines() if line.strip("# ").strip()), "")


def _others(file: Path, roots: Roots) -> tuple[str, ...]:
    """Lists the other files in a skill's folder; none of a very large one."""
    found: list[str] = []
    for name, mode in sorted(roots.disk.below(file.parent, MAX_SEEN) or ()):
        path = file.parent / name
        if not stat.S_ISDIR(mode) and path != file and not roots.rules.hides(path) and len(found) < MAX_LISTED:
            found.append(name)
    return tuple(found)
