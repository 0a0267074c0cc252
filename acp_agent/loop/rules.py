"""Where a project keeps its words for agents: instruction files and skills. Only looks for names; reads nothing.

Standard library only: the answer to `session/new` names them.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["INSTRUCTION_FILES", "SKILL_FILE", "instruction_file", "project_rules", "skill_files"]

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
"""The first that a folder has counts."""

SKILLS_FOLDER = ".agents/skills"
SKILL_FILE = "SKILL.md"

MAX_SKILLS = 200


def instruction_file(folder: Path) -> Path | None:
    for name in INSTRUCTION_FILES:
        if os.path.isfile(folder / name):
            return folder / name
    return None


def skill_files(folder: Path) -> list[Path]:
    """The `SKILL.md` of every skill of a project, by name."""
    base = folder / SKILLS_FOLDER
    try:
        names = sorted(os.listdir(base))[:MAX_SKILLS]
    except OSError:
        return []
    return [file for name in names if os.path.isfile(file := base / name / SKILL_FILE)]


def project_rules(folders: tuple[Path, ...], *, instructions: bool, skills: bool) -> list[str]:
    """The names of what is there: `AGENTS.md`, and for each skill the name of its folder."""
    found: list[str] = []
    for folder in folders:
        if instructions and (file := instruction_file(folder)) is not None:
            found.append(file.name)
        if skills:
            found += [file.parent.name for file in skill_files(folder)]
    return list(dict.fromkeys(found))
