"""The requirements of ACP v1 for agents and clients: the rows of `schemas/REQUIREMENTS.md`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

Level = Literal["must", "should", "may"]

SCHEMAS = (Path(__file__).with_name("schemas"), Path(__file__).parents[2] / "schemas")
"""In a package, and in a checkout."""
ROW = re.compile(r"^\| ([A-Z0-9]+-\d+) \| (.+?) \| (MUST|SHOULD|MAY)(\*?) \| ?(.*?) ?\|$", re.MULTILINE)


class Requirement(Struct, frozen=True):
    id: str
    sentence: str
    level: Level
    implied: bool
    """Whether it follows from JSON-RPC, the schema or real clients, not from a sentence of the specification."""
    page: str
    """Of the specification."""


def schema_file(name: str) -> Path:
    """A file of the pinned schemas. Raises FileNotFoundError."""
    for folder in SCHEMAS:
        if (found := folder / name).exists():
            return found
    raise FileNotFoundError(name)


@cache
def requirements() -> dict[str, Requirement]:
    """By id, in the order of the document."""
    text = schema_file("REQUIREMENTS.md").read_text(encoding="utf-8")
    rows = (
        Requirement(id_, sentence, level.lower(), bool(star), page)
        for id_, sentence, level, star, page in ROW.findall(text)
    )
    return {row.id: row for row in rows}
