"""From a written command to the prompt it stands for.

Its commands are run and its files read as calls of tools: they are judged, shown and logged as the model's own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from acp_agent.llm.base import TextPart, ToolMessage, ToolUse
from acp_agent.loop.calls.runner import Calls
from acp_agent.loop.judging import judged
from acp_agent.loop.modes import MODES, Mode
from acp_agent.loop.prompts.library import Library
from acp_agent.loop.prompts.written_commands import Piece, WrittenCommand
from acp_agent.loop.session_state import SessionState

TITLE_CHARS = 60


class Asked(Struct, frozen=True):
    """What a prompt asks for besides its text, in its turn only."""

    model: str = ""
    mode: Mode | None = None
    """At most this one."""
    allowed: tuple[str, ...] = ()
    """Calls that need no question, as a written command names them."""
    command: str = ""
    """Which one that is."""
    first: ToolUse | None = None
    """The call that is made before the model is asked."""


async def text_of(command: WrittenCommand, arguments: str, calls: Calls) -> str:
    """Its prompt with these arguments."""
    pieces = command.pieces(arguments)
    uses = await judged(calls.shell.roots, lambda: [_use(piece, calls) for piece in pieces])
    said = iter(await _made([use for use in uses if use is not None], calls))
    texts = [_plain(piece) if use is None else next(said).strip() for piece, use in zip(pieces, uses, strict=True)]
    return "".join(texts).strip()


def asked(command: WrittenCommand, text: str, session: SessionState, library: Library) -> tuple[Asked, list[str]]:
    """What the command asks for besides its text, and what of it cannot be, in words."""
    trouble: list[str] = []
    model = session.choices.meant(command.model) if command.model else ""
    if model is None:
        trouble.append(f"/{command.name} names the model `{command.model}`, which is not there; the session's is used.")
    mode = next((mode for mode in MODES.values() if mode.id == command.mode), None)
    if command.mode and mode is None:
        known = ", ".join(f"`{each}`" for each in MODES)
        trouble.append(f"/{command.name} names the mode `{command.mode}`; the modes are {known}.")
    first = None
    if command.agent and library.agent(command.agent) is None:
        trouble.append(f"/{command.name} names the sub-agent `{command.agent}`, which is not there.")
    elif command.agent:
        title = f"/{command.name}"[:TITLE_CHARS]
        first = _call("delegate", {"prompt": text, "title": title, "agent": command.agent})
    return Asked(model or "", mode, command.tools, command.name, first), trouble


def _use(piece: Piece, calls: Calls) -> ToolUse | None:
    if piece.kind == "command":
        return _call("bash", {"command": piece.text})
    roots = calls.shell.roots
    if piece.kind == "file" and roots.disk.kind(roots.named(piece.text)) == "file":
        return _call("read", {"path": piece.text})
    return None  # An `@` may mean something else.


def _plain(piece: Piece) -> str:
    return f"@{piece.text}" if piece.kind == "file" else piece.text


def _call(name: str, arguments: dict[str, Any]) -> ToolUse:
    return ToolUse(f"command-{uuid.uuid4().hex}", name, json.dumps(arguments))


async def _made(uses: Sequence[ToolUse], calls: Calls) -> list[str]:
    """What these calls say, in their order."""
    said: list[str] = []
    if not uses:
        return said

    def add(message: ToolMessage) -> None:
        said.append("".join(part.text for part in message.content if isinstance(part, TextPart)))

    await calls.run_all(uses, add)
    calls.shell.forget_state()
    return said
