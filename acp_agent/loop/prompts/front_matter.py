"""Markdown files with a front matter: skills, commands and sub-agents."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from acp_agent.lazy import load

log = logging.getLogger(__name__)

YAML = "yaml:load"
YAML_LOADER = "yaml:BaseLoader"
"""Loads only strings, lists and mappings: no dates, and no merge keys that could grow without bound."""
YAML_ERROR = "yaml:YAMLError"

FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
PLAIN = re.compile(r"([A-Za-z][\w-]*):[ ]+([A-Za-z0-9$(/](?:[^:#\t]|:(?=\S)|(?<=\S)#)*[^\s:#]|[A-Za-z0-9])[ ]*")
"""A line of YAML that is a key and a plain scalar in any reading."""
MAX_FRONT_MATTER = 8192
MAX_BRACKETS = 200
"""YAML takes long for many."""
MAX_DESCRIPTION = 1024


class Front:
    """What stands in a front matter. `trouble`: why it is not used, in words; empty if it is."""

    def __init__(self, facts: Mapping[str, Any], trouble: str = "") -> None:
        self._facts = facts
        self.trouble = trouble

    def text(self, *names: str) -> str:
        """The text of the first of these keys that has one, without surrounding spaces."""
        for name in names:
            if isinstance(value := self._facts.get(name), str):
                return value.strip()
        return ""

    def line(self, *names: str) -> str:
        return " ".join(self.text(*names).split())[:MAX_DESCRIPTION]

    def texts(self, *names: str) -> tuple[str, ...] | None:
        """A list, or the parts of a text between commas outside of parentheses; `None` if there is none."""
        for name in names:
            value = self._facts.get(name)
            if isinstance(value, str):
                value = re.split(r",(?![^(]*\))", value)
            if isinstance(value, list):
                parts = (part.strip() for part in value if isinstance(part, str))
                return tuple(part for part in parts if part)
        return None


def read_front_matter(text: str, where: object) -> tuple[Front, str]:
    """The front matter of a file and what follows it; `where` names the file in the log."""
    found = FRONT_MATTER.match(text)
    if found is None:
        return Front({}), text
    front = _read(found[1])
    if front.trouble:
        log.warning("%s: %s", where, front.trouble)
    return front, text[found.end() :]


def _read(text: str) -> Front:
    if len(text) > MAX_FRONT_MATTER:
        return Front({}, f"the front matter is longer than {MAX_FRONT_MATTER} characters and is not used")
    if text.count("[") + text.count("{") > MAX_BRACKETS:
        return Front({}, f"the front matter has more than {MAX_BRACKETS} brackets and is not used")
    if (plain := _plain(text)) is not None:
        return Front(plain)
    try:
        read = load(YAML)(text, Loader=load(YAML_LOADER))
    except (load(YAML_ERROR), ValueError, RecursionError) as error:
        return Front({}, f"the front matter is not YAML and is not used: {' '.join(str(error).split())}")
    return Front(read) if isinstance(read, dict) else Front({}, "the front matter is no table and is not used")


def _plain(text: str) -> dict[str, str] | None:
    """The texts of a front matter that has nothing but plain ones, a line each, as most do: loading YAML takes longer
    than all else. `None` for any other."""
    lines = [PLAIN.fullmatch(line) for line in text.splitlines()]
    if not all(lines):
        return None
    found = {line[1]: line[2] for line in lines if line is not None}
    return found if len(found) == len(lines) else None


def description_of(front: Front, body: str) -> str:
    """The front matter's, else the first line that says something, without the marks of a heading."""
    lines = (line.strip("# ").strip() for line in body.splitlines())
    return front.line("description") or next(filter(None, lines), "")[:MAX_DESCRIPTION]
