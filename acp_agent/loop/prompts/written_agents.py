"""Sub-agents that are written down: Markdown files with a front matter, whose text is what the sub-agent is told."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from acp_agent.loop.prompts.front_matter import read_front_matter

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:-]{0,79}")
INHERITS = frozenset(("", "inherit", "default"))
MODES: Mapping[str, str] = {"plan": "architect", "default": "code", "acceptEdits": "code", "bypassPermissions": "auto"}
"""Claude Code's names for ours."""


class WrittenAgent(Struct, frozen=True):
    name: str
    description: str
    instructions: str
    tools: tuple[str, ...] | None = None
    """`None`: all that sub-agents have."""
    model: str = ""
    """As in `/model`; empty: the session's."""
    mode: str = ""
    """At most this one; empty: the session's."""
    title: str = ""
    """Whose it is, for people."""


def read_agent(name: str, text: str, where: object, *, title: str) -> WrittenAgent | None:
    """The sub-agent in a file, by its front matter's name or that of the file; `None` if it is none."""
    front, body = read_front_matter(text, where)
    name = front.line("name") or name
    if NAME.fullmatch(name) is None or not body.strip():
        return None
    model, mode = front.line("model"), front.line("mode", "permissionMode")
    return WrittenAgent(
        name,
        front.line("description"),
        body.strip(),
        front.texts("tools"),
        "" if model in INHERITS else model,
        MODES.get(mode, mode),
        title,
    )
