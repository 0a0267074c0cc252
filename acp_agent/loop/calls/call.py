"""One call in progress, and its outcome."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from acp_agent.errors import ToolError
from acp_agent.executors.base import Process
from acp_agent.llm.base import ToolMessage, ToolUse
from acp_agent.loop.calls.live import Feed
from acp_agent.tools.kit.registry import ToolEntry
from acp_agent.tools.kit.tool_context import Description

if TYPE_CHECKING:
    from acp_agent.loop.beside.background_runs import Run
    from acp_agent.loop.hooks.deciding_hooks import Decided
    from acp_agent.loop.shell.session_shell import Shell
    from acp_agent.safety.deciding.deciders import CallFacts
    from acp_agent.safety.lines.examined import Examined
    from acp_agent.tools.kit.base import Tool
    from acp_agent.undo.base import Change


class Ready(Struct, frozen=True):
    """Everything needed to run a reported call."""

    entry: ToolEntry
    tool: Tool[Any]
    params: Any
    description: Description
    arguments: dict[str, Any]
    shell: Shell
    """Where it runs."""
    above: tuple[str, ...] = ()
    """The calls that its conversation works for."""
    hooked: Decided | None = None
    """What hooks said about it."""


class Ran(Struct, frozen=True):
    """How the command of a call ended."""

    workdir: str
    exit_code: int | None
    timed_out: bool
    denied: tuple[str, ...] = ()
    """Paths that the sandbox has denied to it, by its output."""
    stderr: str | None = None
    """As it came; `None` where the streams came merged."""


class Looked(Struct):
    """What its command changed, as far as that was seen when it ended."""

    changes: list[Change] = []
    done: bool | None = None
    """Whether all of it was seen; `None` if no command ran."""
    whole: bool = False
    """Whether nothing in the session's folders was left out."""
    began_early: bool = False
    """Whether the first look was not done when it began."""
    lines: list[Examined] | None = None
    """The command lines, once they were examined."""
    alone: bool = True
    """Whether nothing else ran meanwhile that may have changed it."""
    uncovered: str = ""
    """What of it cannot be taken back, in words."""


class Outcome(Struct):
    """The outcome of a call, as far as it is known."""

    ended: bool = False
    """Its final status was reported."""
    result: ToolMessage | None = None
    """The message for the model."""
    failed: bool = False
    error: ToolError | None = None
    """Set if it failed with an error."""
    category: str = ""
    """The failure category of a failed result."""
    cancelled: bool = False
    ends_turn: bool = False
    ran: Ran | None = None
    """Set if it ran a command."""
    cut: bool = False
    """Whether the model got less than all of the output."""
    audited: bool = False
    writer: Any = None
    """Of the undo log, once the call changes something."""
    looked: Looked = field(default_factory=Looked)


class Waits(Struct):
    """How long a running call has waited for answers of the user; a time limit does not count it."""

    asked: bool = False
    """Whether it has waited for somebody, the user or hooks, between its preview and its run."""
    _since: float | None = None
    _before: float = 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._before, self._since = self.seconds, None

    @property
    def seconds(self) -> float:
        return self._before + (0.0 if self._since is None else time.monotonic() - self._since)


class Call(Struct, eq=False):
    """One call in progress. `id` is ours: unique in the session, whatever the model made up."""

    use: ToolUse
    name: str = ""
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    reported: bool = False
    ready: Ready | None = None
    facts: CallFacts | None = None
    """The facts it was judged by, once it has been."""
    began: float | None = None
    """When it started to run, by the monotonic clock."""
    feed: Feed | None = None
    processes: list[Process] = []
    """Processes that it started and must end."""
    goes_on: Run | None = None
    """The command it left running in the background: neither the process nor the feed ends with the call."""
    waits: Waits = field(default_factory=Waits)
    outcome: Outcome = field(default_factory=Outcome)
