"""The extension methods of undo: what `_session/checkpoints`, `changes`, `undo` and `redo` take and answer.

The source of `schemas/undo.schema.json` and of what the extension for VS Code and the page read. What may be left out
has a default. What the methods do: docs/internals/undo.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from acp_agent.schema.decode import read_params

UNDO_VERSION = 1
"""Of the methods, as advertised in `agentCapabilities._meta.undo`."""

What: TypeAlias = Literal["files", "conversation", "both"]
HowChanged: TypeAlias = Literal["created", "changed", "deleted"]
Index: TypeAlias = Annotated[int, Meta(ge=0)]


class _Wire(Struct, rename="camel", frozen=True):
    """Names on the wire are in camel case."""


class SessionRequest(_Wire, frozen=True):
    session_id: str


class ChangesRequest(SessionRequest, frozen=True):
    since: Annotated[Index, Meta(description="From before this prompt on; 0: from the first.")] = 0
    until: Annotated[Index | None, Meta(description="To after this prompt; null: what is left of it now.")] = None
    call: Annotated[str | None, Meta(description="The id of a tool call, in place of prompts.")] = None


class RedoRequest(SessionRequest, frozen=True, omit_defaults=True):
    what: Annotated[What | None, Meta(description="Null: both; of a path or a call, files.")] = None
    merge: Annotated[bool, Meta(description="Keep what others changed since, where that is possible.")] = False
    dry_run: Annotated[bool, Meta(description="Say only what would happen.")] = False


class UndoRequest(RedoRequest, frozen=True, omit_defaults=True):
    """Without `to`, `call` and `path`: the last prompt."""

    to: Annotated[Index, Meta(description="This prompt and all after it; 0: the last one.")] = 0
    call: Annotated[str | None, Meta(description="The id of a tool call.")] = None
    path: Annotated[str | None, Meta(description="An absolute path: what was changed there.")] = None
    since: Annotated[Index, Meta(description="Of a path: from before this prompt on.")] = 0
    hunks: Annotated[
        Sequence[Index] | None, Meta(description="Of a path: of `_session/changes` with this `since`.")
    ] = None
    expect: Annotated[Sequence[str] | None, Meta(description="The `id` of each of the hunks.")] = None


Request: TypeAlias = SessionRequest | ChangesRequest | UndoRequest | RedoRequest


class UndoHunk(_Wire, frozen=True):
    """Lines counted from 1; of no lines, the line before."""

    id: Annotated[str, Meta(description="Made of its lines: it is known by that wherever it stands.")] = ""
    old_start: int = 0
    old_lines: int = 0
    new_start: int = 0
    new_lines: int = 0


class ChangedFile(_Wire, frozen=True):
    path: str
    kind: HowChanged = "changed"
    added: int = 0
    removed: int = 0
    cache: Annotated[bool, Meta(description="Programs make it again: it is listed last, and no count has it.")] = False


class UndoChange(ChangedFile, frozen=True):
    """A file's change; of an undo, from what is to what will be."""

    old_text: Annotated[str | UnsetType | None, Meta(description="Null: no file. Absent if not shown.")] = UNSET
    new_text: Annotated[str | UnsetType | None, Meta(description="The same.")] = UNSET
    shown: Annotated[bool, Meta(description="False: it is no text, too long, or not kept.")] = True
    words: Annotated[str, Meta(description="What changed besides the text, or why that is not shown.")] = ""
    mixed: Annotated[bool, Meta(description="Whether others have changed the file as well.")] = False
    calls: Annotated[Sequence[str], Meta(description="The ids of the tool calls that did it.")] = ()
    hunks: Sequence[UndoHunk] = ()


class UndoConflict(_Wire, frozen=True):
    """A path that is left alone."""

    path: str
    why: str = ""
    mergeable: Annotated[bool, Meta(description="Whether `merge` takes back the agent's part.")] = False


class UndoCheckpoint(_Wire, frozen=True):
    """A prompt, and what was done for it."""

    prompt: int
    time: str = ""
    title: Annotated[str, Meta(description="Its first words.")] = ""
    message_id: str = ""
    undone: Annotated[bool, Meta(description="Whether its changes were taken back.")] = False
    cut: Annotated[bool, Meta(description="Whether its messages were: who shows them loads the session anew.")] = False
    files: Sequence[ChangedFile] = ()
    not_covered: Annotated[Sequence[str], Meta(description="What cannot be taken back, and why.")] = ()


class CheckpointsResponse(_Wire, frozen=True):
    checkpoints: Annotated[Sequence[UndoCheckpoint], Meta(description="Oldest first.")] = ()
    redo: Annotated[bool, Meta(description="Whether there is an undo to take back.")] = False


class ChangesResponse(_Wire, frozen=True):
    changes: Sequence[UndoChange] = ()
    not_covered: Annotated[Sequence[str], Meta(description="What cannot be taken back, and why.")] = ()


class UndoResponse(_Wire, frozen=True):
    """Of `_session/redo`, too."""

    changes: Sequence[UndoChange] = ()
    conflicts: Sequence[UndoConflict] = ()
    done: Annotated[bool, Meta(description="False where only what would happen was asked for.")] = False
    words: Annotated[str, Meta(description="What happened, for the user.")] = ""


METHODS: dict[str, tuple[type[Request], type[Struct]]] = {
    "_session/checkpoints": (SessionRequest, CheckpointsResponse),
    "_session/changes": (ChangesRequest, ChangesResponse),
    "_session/undo": (UndoRequest, UndoResponse),
    "_session/redo": (RedoRequest, UndoResponse),
}
"""Method -> params, result."""


def read_request(method: str, params: object) -> Request:
    """The params of one of `METHODS`. Raises InvalidParams."""
    return read_params(params, METHODS[method][0])
