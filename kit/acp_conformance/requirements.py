"""The requirements of ACP: the rows of `schemas/REQUIREMENTS.md` (v1, for agents and clients), `REQUIREMENTS-v2.md`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

Level = Literal["must", "should", "may"]

SCHEMAS = (Path(__file__).with_name("schemas"), Path(__file__).parents[2] / "schemas")
"""In a package, and in a checkout."""
DOCUMENTS = ("REQUIREMENTS.md", "REQUIREMENTS-v2.md")
V2 = "V2-"
"""With which the ids of v2 begin."""
ROW = re.compile(r"^\| ((?:V2-)?[A-Z0-9]+-\d+) \| (.+?) \| (MUST|SHOULD|MAY)(\*?)[^|]* \| ?(.*?) ?\|$", re.MULTILINE)
"""A row of several levels counts as the first of them."""


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
    """By id, in the order of the documents."""
    text = "\n".join(schema_file(name).read_text(encoding="utf-8") for name in DOCUMENTS)
    rows = (
        Requirement(id_, sentence, level.lower(), bool(star), page)
        for id_, sentence, level, star, page in ROW.findall(text)
    )
    return {row.id: row for row in rows}
