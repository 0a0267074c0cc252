"""The skills of a project: ways of doing something, written down in it (`.agents/skills/NAME/SKILL.md`)."""

from __future__ import annotations

import logging
import re
import stat
from pathlib import Path

from msgspec import Struct

from acp_agent.loop.prompts.front_matter import Front, description_of, read_front_matter
from acp_agent.loop.prompts.instructions import read_text
from acp_agent.loop.prompts.project_rules import MAX_SKILLS, skill_files
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.safety.folders.paths import Roots, read_regular

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
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
    more: bool = False
    """Whether there are others."""
    apart: bool = False
    """Whether its folder is on this machine, outside of the session's."""
    compatibility: str = ""
    """What it needs, in its author's words."""
    of_user: bool = True
    """Whether it is a command of the user's."""
    of_model: bool = True
    """Whether the model may take it by itself."""

    def text(self, roots: Roots, arguments: str = "") -> str:
        """Returns the instructions for the model."""
        where = str(self.folder) if self.apart else roots.display(self.folder)
        how = " (the tool `skill` reads one: `file`)" if self.apart else ""
        names = ", ".join([*self.files, *(["and others"] if self.more else [])])
        files = f"\n\nFiles of this skill, below {where}/{how}: {names}" if names else ""
        asked = f"\n\nArguments: {arguments}" if arguments else ""
        needs = f"Needs: {self.compatibility}\n\n" if self.compatibility else ""
        return f'<skill name="{self.name}" folder="{where}">\n{needs}{self.body.strip()}{files}\n</skill>{asked}'


class Skills:
    """Of one session. `turn` is told which skill it follows."""

    def __init__(self, known: dict[str, Skill], roots: Roots, turn: RunningTurn) -> None:
        self._known = known
        self._roots = roots
        self._turn = turn

    def names(self) -> list[str]:
        """Of those that the model may take."""
        return list(self.described())

    def described(self) -> dict[str, str]:
        """Name and description of each that the model may take."""
        return {skill.name: skill.description for skill in self._known.values() if skill.of_model}

    def commands(self) -> dict[str, str]:
        """Of each that the user may take."""
        return {skill.name: skill.description for skill in self._known.values() if skill.of_user}

    def use(self, name: str) -> str | None:
        """The text of a skill, which the running turn follows from now on."""
        if (skill := self._known.get(name)) is None or not skill.of_model:
            return None
        self._turn.skill = name
        return skill.text(self._roots)

    def file(self, name: str, path: str) -> str | None:
        """The text of a file of a skill that is apart; `None` if it has no such file."""
        skill = self._known.get(name)
        if skill is None or not skill.apart or path not in skill.files:
            return None
        try:
            data = read_regular(skill.folder / path, MAX_SKILL_BYTES)
        except OSError as error:
            return f"[{path} cannot be read: {error.strerror or error}]"
        too_large = f"[{path} is no regular file, or larger than {MAX_SKILL_BYTES} bytes]"
        return too_large if data is None else data.decode("utf-8", "replace")

    def use_next(self, name: str, arguments: str) -> str | None:
        """The text of a skill that the next turn follows."""
        if (skill := self._known.get(name)) is None or not skill.of_user:
            return None
        self._turn.next_skill = name
        return skill.text(self._roots, arguments)


def read_skills(roots: Roots) -> dict[str, Skill]:
    """The skills of the session's folders by name; unusable ones are skipped, and the log says why."""
    skills: dict[str, Skill] = {}
    for root in roots.all:
        files = skill_files(root, roots.disk)
        if len(files) == MAX_SKILLS:
            log.warning("%s: no more than %d skills are looked at", root, MAX_SKILLS)
        for file in files:
            skill = _read_skill(file, roots)
            if skill is not None and skill.name not in skills:
                skills[skill.name] = skill
    return skills


def _read_skill(file: Path, roots: Roots) -> Skill | None:
    text = read_text(file, roots, MAX_SKILL_BYTES)
    if text is None:
        return None
    front, text = read_front_matter(text, file)
    name = front.text("name") or file.parent.name
    if NAME.fullmatch(name) is None:
        log.warning("%s: %r is not a valid name for a skill (letters, digits, `-` and `_`)", file, name)
        return None
    folder, (others, more) = roots.disk.real_path(file.parent), _others(file, roots)
    return skill_of(name, front, text, folder, others, more)


def skill_of(name: str, front: Front, body: str, folder: Path, files: tuple[str, ...], more: bool) -> Skill:
    """What its front matter says of it (the fields of agentskills.io and Claude Code)."""
    for_user, for_model = front.text("user-invocable").lower(), front.text("disable-model-invocation").lower()
    about = {"of_user": for_user != "false", "of_model": for_model != "true"}
    compatibility = front.line("compatibility")
    return Skill(name, description_of(front, body), body, folder, files, more, compatibility=compatibility, **about)


def _others(file: Path, roots: Roots) -> tuple[tuple[str, ...], bool]:
    """Lists the other files in a skill's folder; none of a very large one. Whether there are more."""
    found: list[str] = []
    below = roots.disk.below(file.parent, MAX_SEEN)
    for name, mode in sorted(below or ()):
        path = file.parent / name
        if not stat.S_ISDIR(mode) and path != file and not roots.rules.hides(path) and len(found) <= MAX_LISTED:
            found.append(name)
    return tuple(found[:MAX_LISTED]), below is None or len(found) > MAX_LISTED
