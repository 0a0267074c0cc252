"""Markdown files with a front matter: skills, commands and sub-agents."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from acp_agent.lazy import load, pattern
from acp_agent.limits.decoding import BOM

log = logging.getLogger(__name__)

YAML = "yaml:load"
YAML_LOADER = "yaml:BaseLoader"
"""Loads only strings, lists and mappings: no dates, and no merge keys that could grow without bound."""
YAML_ERROR = "yaml:YAMLError"

FRONT_MATTER = pattern(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
PLAIN = pattern(r"([A-Za-z][\w-]*):[ ]+([A-Za-z0-9$(/](?:[^:#\t]|:(?=\S)|(?<=\S)#)*[^\s:#]|[A-Za-z0-9])[ ]*")
"""A line of YAML that is a key and a plain scalar in any reading."""
MAX_FRONT_MATTER = 8192
"""Characters above which no YAML is read: line by line all is."""
ENTRY = pattern(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*)|)")
ITEM = pattern(r"[ \t]*-(?:[ \t]+(.*)|)")
BLOCK = frozenset(("|", ">", "|-", ">-", "|+", ">+"))
QUOTED = pattern(r"""([\"'])((?:(?!\1).)*)\1""")
LIST = pattern(r"\[([^\[\]]*)\]")
MAX_BRACKETS = 200
"""YAML takes long for many."""
MAX_DESCRIPTION = 1024
MAX_SHOWN = 80


class Front:
    """What stands in a front matter. `trouble`: what of it could not be read, in words; empty if all could."""

    def __init__(self, facts: Mapping[str, Any], trouble: str = "") -> None:
        self._facts = facts
        self.trouble = trouble

    def has(self, *names: str) -> bool:
        """Whether one of these keys has a value."""
        return any(self._facts.get(name) not in (None, "") for name in names)

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
            if isinstance(value, list) and all(isinstance(part, str) for part in value):
                parts = (part.strip() for part in value)
                return tuple(part for part in parts if part)
        return None


def read_front_matter(text: str, where: object) -> tuple[Front, str]:
    """The front matter of a file and what follows it; `where` names the file in the log."""
    text = text.removeprefix(BOM)
    found = FRONT_MATTER.match(text)
    if found is None:
        return Front({}), text
    front = _read(found[1])
    if front.trouble:
        log.warning("%s: %s", where, front.trouble)
    return front, text[found.end() :]


def _read(text: str) -> Front:
    """By YAML; by lines what is none, since people write `description: Use when: ...`, back-ticks, tabs, and more."""
    if len(text) > MAX_FRONT_MATTER or text.count("[") + text.count("{") > MAX_BRACKETS:
        return _by_lines(text)
    if (plain := _plain(text)) is not None:
        return Front(plain)
    try:
        read = load(YAML)(text, Loader=load(YAML_LOADER))
    except (load(YAML_ERROR), ValueError, RecursionError):
        return _by_lines(text)
    return Front(read) if isinstance(read, dict) else _by_lines(text)


def _by_lines(text: str) -> Front:
    """Each `key: value` that begins a line; what is indented, or a list, belongs to the key before it. What is neither
    is trouble."""
    found: dict[str, list[str]] = {}
    last, wrong = "", []
    for line in text.splitlines():
        entry = ENTRY.fullmatch(line)
        if entry is not None and entry[1] not in found:
            last = entry[1]
            found[last] = [(entry[2] or "").strip()]
        elif last and (line[:1] in " \t" or ITEM.fullmatch(line)):
            found[last].append(line)
        elif line.strip() and not line.startswith("#"):
            wrong.append(line.strip())
    trouble = f"the front matter is not YAML, and this line says nothing: {wrong[0][:MAX_SHOWN]}" if wrong else ""
    return Front({key: _value(*lines) for key, lines in found.items()}, trouble)


def _value(first: str, *more: str) -> str | list[str]:
    items = [ITEM.fullmatch(line) for line in more]
    if not first and more and all(items):
        return [_unquoted((item[1] or "").strip()) for item in items if item is not None]
    if (listed := LIST.fullmatch(first)) is not None and not more:
        return [_unquoted(part.strip()) for part in listed[1].split(",")]
    kept = [] if first in BLOCK else [first]
    return _unquoted("\n".join((*kept, *(line.strip() for line in more))).strip())


def _unquoted(text: str) -> str:
    quoted = QUOTED.fullmatch(text)
    return text if quoted is None else quoted[2]


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
