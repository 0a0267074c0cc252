"""The form in which tools are sent: `full` as their guidance is written, `short` in plain sentences, `brief` (for small
contexts) without what they are not for.

Only built-in tools have guidance in sections and schemas of a known form; other tools are sent as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from acp_agent.llm.base import ToolDefinition
from acp_agent.tools.kit.registry import TOOLS, ToolEntry

Guidance = Literal["brief", "short", "full"]

SECTION = re.compile(r"\n\n(When to use|When not to use|Disambiguation|Examples): ")
BEGINS = ("for ", "to ", "if ", "while ", "before ", "as ")
"""Beginnings of what a tool is not for that need no other word before them."""

CHECKED_HERE = frozenset(("minLength", "maxLength", "minimum", "exclusiveMinimum", "additionalProperties"))
"""Parts of a schema that say nothing to a model; arguments are checked against the whole one."""


def rendered(entry: ToolEntry, guidance: Guidance) -> ToolDefinition:
    if entry.name not in TOOLS:
        return entry.definition
    description = entry.description if guidance == "full" else short(entry.description, brief=guidance == "brief")
    return ToolDefinition(entry.name, description, lean(entry.parameters))


def short(description: str, *, brief: bool = False) -> str:
    """What the tool does, what it is not for, and what one must know; without headings and examples."""
    what, *sections = SECTION.split(description.strip())
    told = dict(zip(sections[::2], sections[1::2], strict=True))
    parts = [what]
    if (unfit := told.get("When not to use")) and not brief:
        parts.append(f"Not {unfit}" if unfit.startswith(BEGINS) else f"Not for {unfit}")
    parts.append(told.get("Disambiguation", ""))
    return " ".join(_sentence(" ".join(part.split())) for part in parts if part)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def lean(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without what only a validator needs. A parameter that may be null may as well be left out."""
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in CHECKED_HERE or (key == "default" and (value is None or value is False or value in ("", []))):
            continue
        if key == "properties" and isinstance(value, Mapping):
            out[key] = {name: lean(inner) for name, inner in value.items()}
        elif key == "items" and isinstance(value, Mapping):
            out[key] = lean(value)
        elif key == "anyOf":
            kinds = [lean(kind) for kind in value if kind != {"type": "null"}]
            if len(kinds) == 1:
                out |= kinds[0]
            elif all(kind.keys() == {"type"} for kind in kinds):
                out["type"] = [kind["type"] for kind in kinds]
            else:
                out[key] = kinds
        else:
            out[key] = value
    return out
