"""Finds a project's instruction files and skills by name.

Light: the response to `session/new` names them.
"""

from __future__ import annotations

import re
from pathlib import Path

from acp_agent.disk import HERE
from acp_agent.safety.folders.repository import repository_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acp_agent.disk import Disk
    from acp_agent.safety.folders.paths import Roots

INSTRUCTION_FILES = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "GEMINI.md")
"""The first that a folder has counts."""

SKILLS_FOLDER = ".agents/skills"
SKILL_FILE = "SKILL.md"

MAX_SKILLS = 200
MAX_ENTRIES = 5_000
"""Of the folder of skills."""

HEAD_BYTES = 4096
NAME = re.compile(r"---[ \t]*\r?\n(?:(?!---).*\n)*?name:[ \t]*[\"']?([A-Za-z0-9][\w-]{0,63})[\"']?[ \t]*\r?\n")


def instruction_file(folder: Path, disk: Disk = HERE) -> Path | None:
    for name in INSTRUCTION_FILES:
        if disk.kind(folder / name) == "file":
            return folder / name
    return None


def folders_above(folder: Path, roots: Roots) -> list[Path]:
    """The folders above one of the session's, from the top of its repository down, if that is the user's own."""
    found = repository_of(folder, roots) if roots.disk.here and folder == roots.cwd else None
    if found is None or found.top not in found.readable:
        return []
    return [each for each in reversed(folder.parents) if each.is_relative_to(found.top) and not roots.contains(each)]


def skill_files(folder: Path, disk: Disk = HERE) -> list[Path]:
    """The `SKILL.md` of every skill of a project, by name."""
    base = folder / SKILLS_FOLDER
    try:
        names = sorted(name for name, _ in disk.names(base, MAX_ENTRIES))[:MAX_SKILLS]
    except OSError:
        return []
    return [file for name in names if disk.kind(file := base / name / SKILL_FILE) == "file"]


def _skill_name(file: Path) -> str:
    """Its name from the front matter, without a YAML parser; else its folder's."""
    try:
        with open(file, "rb") as opened:
            begin = opened.read(HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return file.parent.name
    found = NAME.match(begin)
    return found[1] if found is not None else file.parent.name


def project_rules(roots: Roots, *, instructions: bool, skills: bool) -> list[str]:
    """The names of what is there: `AGENTS.md`, and each skill by its name."""
    found: list[str] = []
    for folder in roots.all:
        above = folders_above(folder, roots) if instructions else []
        files = [instruction_file(each) for each in (*above, folder)] if instructions else []
        found += [file.name for file in files if file is not None]
        if skills:
            found += [_skill_name(file) for file in skill_files(folder)]
    return list(dict.fromkeys(found))
