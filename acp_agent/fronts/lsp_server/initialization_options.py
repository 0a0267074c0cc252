"""`initializationOptions`: the user's settings for the editor's side. Invalid ones are reported and count as unset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from acp_agent.fronts.lsp_server.buffers import Save

TranscriptSync = Literal["turn", "live"]


class Options(Struct, frozen=True):
    save: Save = "never"
    """Who saves a document without unsaved changes after the agent edited it: nobody, the editor on request
    (`acpCoder/save`), or this server."""
    updates: bool = False
    """Whether every `session/update` is forwarded to the editor, as the notification `acpCoder/update`."""
    transcript: TranscriptSync = "turn"
    """When an open transcript is updated: at the end of a turn, or every second during it."""
    diagnostics: bool = True
    hints: bool = True
    lenses: bool = True
    """Whether tool calls are shown in these ways; progress depends on the editor's capabilities."""


def read_options(given: object) -> tuple[Options, list[str]]:
    """Returns the options, and descriptions of invalid ones."""
    if given is None:
        return Options(), []
    if not isinstance(given, Mapping):
        return Options(), ["initializationOptions must be an object"]
    found: dict[str, Any] = {}
    problems = []
    words = {"save": get_args(Save), "transcript": get_args(TranscriptSync)}
    switches = ("updates", "diagnostics", "hints", "lenses")
    for name, value in given.items():
        if name in words:
            if value in words[name]:
                found[name] = value
            else:
                problems.append(f"`{name}` must be one of {', '.join(words[name])}, not {value!r}")
        elif name in switches:
            if isinstance(value, bool):
                found[name] = value
            else:
                problems.append(f"`{name}` must be true or false, not {value!r}")
        else:
            problems.append(f"unknown option {name!r}")
    return Options(**found), problems
