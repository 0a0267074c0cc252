"""Sub-agents that are written down: Markdown files with a front matter, whose text is what the sub-agent is told."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from acp_agent.loop.prompts.front_matter import read_front_matter

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:-]{0,79}")
INHERITS = frozenset(("", "inherit", "default"))
MODES: Mapping[str, str] = {
    "plan": "architect", "default": "code", "acceptEdits": "code", "dontAsk": "code", "bypassPermissions": "auto",
}  # fmt: skip
"""Claude Code's names for ours."""
READS = "ask"
"""The mode of one that may only read."""
WITHOUT = ("disallowedTools", "disallowed-tools")
KNOWN = frozenset(("", "ask", *MODES, *MODES.values()))


class WrittenAgent(Struct, frozen=True):
    name: str
    description: str
    instructions: str
    tools: tuple[str, ...] | None = None
    """`None`: all that sub-agents have."""
    without: tuple[str, ...] = ()
    """Tools that it has not."""
    model: str = ""
    """As in `/model`; empty: the session's."""
    mode: str = ""
    """At most this one; empty: the session's."""
    title: str = ""
    """Whose it is, for people."""
    trouble: str = ""
    """Why it may only read though it may have been meant to do more."""
    client_prompt: bool = False
    """Whether it has the client's system prompt, too."""


def read_agent(name: str, text: str, where: object, *, title: str) -> WrittenAgent | None:
    """The sub-agent in a file, by its front matter's name or that of the file; `None` if it is none."""
    front, body = read_front_matter(text, where)
    name = front.line("name") or name
    if NAME.fullmatch(name) is None or not body.strip():
        return None
    model, mode = front.line("model"), front.line("mode", "permissionMode")
    tools, without, trouble = front.texts("tools"), front.texts(*WITHOUT), front.trouble
    for names, is_read in ((("tools",), tools), (WITHOUT, without), (("mode", "permissionMode"), mode or None)):
        if is_read is None and front.has(*names):
            trouble = trouble or f"`{names[0]}` cannot be read"
    if mode not in KNOWN:
        trouble = trouble or f"there is no mode `{mode}`"
    return WrittenAgent(
        name,
        front.line("description"),
        body.strip(),
        tools,
        without or (),
        "" if model in INHERITS else model,
        READS if trouble else MODES.get(mode, mode),
        title,
        trouble,
        front.line("client-prompt", "clientPrompt") == "true",
    )
