"""The values of the session store.

One log, two readers: an entry is either for the client (`update`) or for the model (`message`, `reset`). Loading a
session sends the first kind again and rebuilds the history from the second. `turn` stands before a prompt; `rewind` and
`unrewind` say what of the log was taken back (`loop/memory/rewinding.py`); a `note` is for the model's next turn;
a `fork` says where the log came from.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar, overload

import msgspec

from acp_agent.errors import StoreError

T = TypeVar("T")

EntryKind = Literal["update", "message", "reset", "turn", "rewind", "unrewind", "note", "fork"]
Decision = Literal["allow", "reject"]


class ClientPrompt(msgspec.Struct, frozen=True):
    """What a client added to the system prompt of a session, or put in the place of its default part."""

    mode: Literal["append", "override"]
    text: str


class ListedSession(msgspec.Struct, frozen=True):
    """What lists have of a session."""

    id: str
    cwd: str
    additional_directories: tuple[str, ...] = ()
    title: str | None = None
    created_at: str = ""
    """ISO 8601, UTC."""
    updated_at: str = ""
    """ISO 8601, UTC, with microseconds: the order of lists."""
    mode: str = ""
    model: str = ""
    turns: int = 0
    """Prompts so far."""
    real: str = ""
    """What `cwd` led to when it was stated; empty in sessions of earlier versions."""
    archived: bool = False
    """What is made of it (a fork, a sub-agent) is not."""


class SessionRecord(ListedSession, frozen=True):
    """A session, whole."""

    thought_level: str = ""
    place: str = ""
    """As in `agent.place`, if one was chosen for it."""
    client_prompt: ClientPrompt | None = None
    """No part of the conversation."""


class LogEntry(msgspec.Struct, frozen=True):
    kind: EntryKind
    payload: bytes
    """JSON: a `SessionUpdate`, a `Message`, for `reset` the list of messages that replaces all earlier ones, for the
    others what `rewinding` reads."""


class Permission(msgspec.Struct, frozen=True):
    """A remembered "always" answer."""

    id: int
    project: str
    """The session's working directory."""
    tool: str
    scope: str
    """The scope it covers, in the words of the permission gate: a command's program and sub-command, `*`, ..."""
    decision: Decision
    created_at: str = ""


MemoryCategory = Literal["core", "daily", "conversation"]


class Memory(msgspec.Struct, frozen=True):
    """Something a model wanted to remember."""

    key: str
    """Unique in its project."""
    content: str
    category: MemoryCategory
    project: str
    """A working directory; empty: for all projects."""
    updated_at: str
    """ISO 8601, UTC."""


class Schedule(msgspec.Struct, frozen=True):
    """A prompt that is run repeatedly."""

    id: str
    project: str
    timing: str
    """A cron expression, or an interval as the user wrote it (`30m`)."""
    prompt: str
    mode: str
    """Of the session it was added in: a run is never freer than that."""
    created_at: str
    next_run: float
    """Unix time in seconds."""
    last_run: float | None = None
    runs: int = 0


class OverflowEntry(msgspec.Struct, frozen=True):
    """An output too long for the model, stored in full."""

    id: str
    """A UUID."""
    tool: str
    chars: int
    """Of what is kept."""
    created_at: str
    """ISO 8601, UTC."""
    complete: bool = True
    """Whether it is the whole output: false if it exceeded the limit of an entry."""


class OverflowPart(msgspec.Struct, frozen=True):
    entry: OverflowEntry
    offset: int
    """Characters before it."""
    text: str


GoalStatus = Literal["active", "paused", "completed", "abandoned"]
TaskStatus = Literal["pending", "in_progress", "completed"]
TaskPriority = Literal["high", "medium", "low"]


class GoalTask(msgspec.Struct, frozen=True):
    """A node of a goal's task graph."""

    id: str
    """Unique in its goal."""
    content: str
    priority: TaskPriority = "medium"
    status: TaskStatus = "pending"
    depends_on: tuple[str, ...] = ()
    """Tasks that must be done before it."""


class Goal(msgspec.Struct, frozen=True):
    """The goal a session works towards (`/plan`)."""

    id: str
    """A UUID: that of its task graph."""
    session_id: str
    text: str
    status: GoalStatus
    created_at: str
    """ISO 8601, UTC."""
    tasks: tuple[GoalTask, ...] = ()
    """In the order of the plan."""


class Trajectory(msgspec.Struct, frozen=True):
    """Calls in a row that went wrong."""

    steps: str
    """JSON; equal calls give equal text."""
    failures: int = 0
    """Since they last succeeded."""
    rejected: bool = False
    """Whether the user marked them as unacceptable."""


class Asked(msgspec.Struct, frozen=True):
    """How often the user was asked about something, and the answers."""

    tool: str
    scope: str
    """In the words of the permission gate."""
    allowed: int
    rejected: int


@overload
def read_stored(data: bytes | str) -> Any: ...
@overload
def read_stored(data: bytes | str, type: type[T]) -> T: ...
@overload
def read_stored(data: bytes | str, *, decoder: msgspec.json.Decoder[T]) -> T: ...
def read_stored(data: bytes | str, type: Any = Any, *, decoder: msgspec.json.Decoder[Any] | None = None) -> Any:
    """What was stored as JSON. Raises StoreError if it is damaged."""
    try:
        return decoder.decode(data) if decoder is not None else msgspec.json.decode(data, type=type)
    except (ValueError, RecursionError) as error:
        raise damaged("a stored entry", error) from error


def damaged(where: str, error: Exception) -> StoreError:
    return StoreError(
        f"{where}: the session database is damaged ({error}). It was left as is: move it away to start afresh, or "
        "choose another file with store.path"
    )
