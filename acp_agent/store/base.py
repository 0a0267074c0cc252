"""The contract of the session store.

One log, two readers: an entry is either what the client was told (`update`) or what the model is told (`message`,
`reset`). Loading a session sends the first kind again and rebuilds the history from the second.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

import msgspec

EntryKind = Literal["update", "message", "reset"]
Decision = Literal["allow", "reject"]


class SessionRecord(msgspec.Struct, frozen=True):
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
    thought_level: str = ""
    turns: int = 0
    """Prompts so far."""


class LogEntry(msgspec.Struct, frozen=True):
    kind: EntryKind
    payload: bytes
    """JSON: a `SessionUpdate`, a `Message`, or for `reset` the list of messages that replaces all earlier ones."""


class Permission(msgspec.Struct, frozen=True):
    """A remembered "always" answer."""

    id: int
    project: str
    """The session's working directory."""
    tool: str
    scope: str
    """What it covers, in the words of the permission gate: a command's program and sub-command, `*`, ..."""
    decision: Decision
    created_at: str = ""


MemoryCategory = Literal["core", "daily", "conversation"]


class Memory(msgspec.Struct, frozen=True):
    """Something a model wanted to know again."""

    key: str
    """Unique in its project."""
    content: str
    category: MemoryCategory
    project: str
    """A working directory; empty: of no project, known in all."""
    updated_at: str
    """ISO 8601, UTC."""


class MemoryStore(Protocol):
    """All raise StoreError."""

    def store(self, project: str, key: str, content: str, category: MemoryCategory) -> bool:
        """Keeps it; True where it replaces an earlier one of the same key."""
        ...

    def recall(
        self, projects: tuple[str, ...], query: str, limit: int, category: MemoryCategory | None = None
    ) -> list[Memory]:
        """Those that share words with `query`, the best first (BM25; words of the key count twice)."""
        ...

    def keys(self, project: str, limit: int) -> list[str]:
        """The newest first."""
        ...

    def forget(self, project: str, key: str) -> bool:
        """False where there was none."""
        ...


class Schedule(msgspec.Struct, frozen=True):
    """A prompt that is run again and again."""

    id: str
    project: str
    timing: str
    """A cron expression, or an interval as the person wrote it (`30m`)."""
    prompt: str
    mode: str
    """Of the session it was added in: a run is never freer than that."""
    created_at: str
    next_run: float
    """Unix time in seconds."""
    last_run: float | None = None
    runs: int = 0


class ScheduleStore(Protocol):
    """All raise StoreError."""

    def add(self, project: str, timing: str, prompt: str, next_run: float, mode: str = "code") -> Schedule: ...

    def list(self, project: str) -> list[Schedule]:
        """The next first."""
        ...

    def remove(self, project: str, schedule_id: str) -> bool:
        """False where there was none."""
        ...

    def claim(self, schedule: Schedule, next_run: float, *, at: float | None) -> bool:
        """Sets when it runs next. True for exactly one of all agents that claim the same run. `at`: it runs now;
        `None`: the run is left out."""
        ...


class OverflowEntry(msgspec.Struct, frozen=True):
    """An output that was too long for the model, kept aside."""

    id: str
    """A UUID."""
    tool: str
    chars: int
    """Of what is kept."""
    created_at: str
    """ISO 8601, UTC."""
    complete: bool = True
    """Whether it is all of the output: false where an entry may not be so large."""


class OverflowPart(msgspec.Struct, frozen=True):
    entry: OverflowEntry
    offset: int
    """Characters before it."""
    text: str


class OverflowStore(Protocol):
    """All raise StoreError."""

    def keep(self, session_id: str, tool: str, text: str, max_bytes: int) -> OverflowEntry:
        """Keeps `text`, in UTF-8 at most `max_bytes` of it (0: all; else its middle is left out)."""
        ...

    def read(self, session_id: str, entry_id: str, offset: int, limit: int) -> OverflowPart | None:
        """`limit` characters from `offset`; `None` where this session has no such entry."""
        ...

    def expire(self, days: float) -> int:
        """Removes what is older; how many."""
        ...


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
    """What a session works towards (`/plan`)."""

    id: str
    """A UUID: that of its task graph."""
    session_id: str
    text: str
    status: GoalStatus
    created_at: str
    """ISO 8601, UTC."""
    tasks: tuple[GoalTask, ...] = ()
    """In the order of the plan."""


class GoalStore(Protocol):
    """All raise StoreError."""

    def begin(self, session_id: str, text: str) -> Goal:
        """A new goal, active; the one before it is abandoned."""
        ...

    def current(self, session_id: str) -> Goal | None:
        """The goal that is active or paused."""
        ...

    def set_tasks(self, goal_id: str, tasks: Sequence[GoalTask]) -> None:
        """Replaces the task graph."""
        ...

    def set_status(self, goal_id: str, status: GoalStatus) -> None: ...


class Trajectory(msgspec.Struct, frozen=True):
    """Calls in a row that went wrong."""

    steps: str
    """JSON; equal calls give equal text."""
    failures: int = 0
    """Since they last succeeded."""
    rejected: bool = False
    """Whether the person marked them as unacceptable."""


class TrajectoryStore(Protocol):
    """All raise StoreError."""

    def learned(self, project: str) -> list[Trajectory]:
        """The newest first."""
        ...

    def keep(self, project: str, trajectory: Trajectory, limit: int) -> None:
        """Replaces the one of the same steps; beyond `limit` the oldest go."""
        ...

    def forget(self, project: str) -> int:
        """Removes all; how many they were."""
        ...


class Asked(msgspec.Struct, frozen=True):
    """How often a person was asked about one thing, and what came of it."""

    tool: str
    scope: str
    """In the words of the permission gate."""
    allowed: int
    rejected: int


class QuestionStore(Protocol):
    """All raise StoreError."""

    def answered(self, project: str, tool: str, scopes: Sequence[str], *, allowed: bool) -> None:
        """Counts one question."""
        ...

    def counts(self, project: str, limit: int) -> list[Asked]:
        """The most often asked first."""
        ...


class SessionStore(Protocol):
    """Every method has its effect on disk when it returns, in the sense that `kill -9` cannot lose it.

    All raise StoreError, with a sentence that says what to do.
    """

    @property
    def memories(self) -> MemoryStore: ...

    @property
    def schedules(self) -> ScheduleStore: ...

    @property
    def overflow(self) -> OverflowStore: ...

    @property
    def goals(self) -> GoalStore: ...

    @property
    def trajectories(self) -> TrajectoryStore: ...

    @property
    def questions(self) -> QuestionStore: ...

    def create(self, record: SessionRecord) -> None: ...

    def get(self, session_id: str) -> SessionRecord | None: ...

    def change(
        self,
        session_id: str,
        *,
        cwd: str | None = None,
        additional_directories: tuple[str, ...] | None = None,
        title: str | None = None,
        mode: str | None = None,
        model: str | None = None,
        thought_level: str | None = None,
        new_turn: bool = False,
    ) -> str:
        """Changes what is given and sets `updated_at`, which it returns."""
        ...

    def sessions(
        self, *, cwd: str | None, before: tuple[str, str] | None, limit: int, include: Collection[str] = ()
    ) -> list[SessionRecord]:
        """Newest first. Only sessions that have a turn, and those in `include`. `before`: `(updated_at, id)` of the
        last one already seen."""
        ...

    def delete(self, session_id: str) -> bool:
        """Removes the session and its log; False when there was none."""
        ...

    def append(self, session_id: str, entries: Sequence[LogEntry]) -> None: ...

    def entries(self, session_id: str) -> list[LogEntry]:
        """The whole log, oldest first."""
        ...

    def permissions(self, project: str) -> list[Permission]: ...

    def remember(self, project: str, tool: str, scope: str, decision: Decision) -> None:
        """Replaces an earlier answer of the same scope."""
        ...

    def revoke(self, project: str, permission_id: int) -> bool: ...

    def close(self) -> None: ...
