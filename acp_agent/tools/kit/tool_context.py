"""The context and the results of tools. Free of pydantic: the first model call does not wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from acp_agent.config.model import ToolsConfig
from acp_agent.executors.base import Command, Executor, OutputChunk, Process
from acp_agent.llm.base import Part
from acp_agent.lsp.base import LanguageServices
from acp_agent.output.envelope import ShellOutput
from acp_agent.safety.access import Access
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import ToolCallContent

if TYPE_CHECKING:
    from acp_agent.credentials.redactor import Redactor
    from acp_agent.errors import ToolError
    from acp_agent.loop.beside.scheduler import Scheduler
    from acp_agent.loop.memory.memory import Memory
    from acp_agent.loop.shell.session_shell import Shell
    from acp_agent.tools.net.web_access import WebAccess


class Location(Struct, frozen=True):
    path: Path
    line: int | None = None
    """1-based."""


class Description(Struct, frozen=True):
    """The description that the user sees before the call runs."""

    title: str
    """The action, in a few words: the exact command, `Edit src/app.py`."""
    locations: tuple[Location, ...] = ()


class Preview(Struct, frozen=True):
    """The result of looking ahead."""

    content: tuple[ToolCallContent, ...] = ()
    """Shown with the permission request (a diff)."""
    state: Any = None
    """State for `run`; opaque to everybody else."""
    locations: tuple[Location, ...] = ()
    """Where it will happen, if that is known more closely than before."""
    accesses: tuple[Access, ...] = ()
    """Further things that the call touches."""


class CommandOutput(Struct, frozen=True):
    """The output of a command, as it came. The text for the model and the user is made of it later."""

    script: str
    streams: ShellOutput
    """Whole, as far as it was kept."""
    combined: str
    """Both streams in the order of arrival."""
    heading: str = ""
    """Stands above it."""
    running: bool = False
    """It goes on: this is a part."""
    timed_out: bool = False


class ToolResult(Struct, frozen=True):
    """The result of a call."""

    text: str
    """For the model. With `command`: what is below its output."""
    content: tuple[ToolCallContent, ...] | None = None
    """For the user; `None`: the same text."""
    parts: tuple[Part, ...] = ()
    """More for the model (images)."""
    command: CommandOutput | None = None
    """Of a tool that ran one: what it printed."""
    raw_output: Any = None
    """JSON for programs; `None` leaves it out."""
    locations: tuple[Location, ...] | None = None
    """Replaces those of the description where the call found better ones."""
    failed: bool = False
    """The call did what was asked but what was asked did not succeed (a command's exit code)."""
    error: ToolError | None = None
    """With `failed`: why, where the taxonomy has a word for it; the model is told what follows from it."""
    ends_turn: bool = False
    """The turn ends after this message's calls: the user has to continue."""
    notes: tuple[str, ...] = ()
    """Notes on what was left out for the model, a line each; shown also where a terminal shows the output itself."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """For programs, in the `_meta` of the call's final update."""
    keep: bool = True
    """Whether the same call of an idempotent tool may be answered with it again."""


class Seen(Struct, frozen=True):
    """A file as the model knows it."""

    text: str
    """As the editor had it."""
    disk: bytes | None
    """A digest of the file itself; `None` where there was none."""


class Ledger:
    """Remembers which text of each file the model has seen, for edits that must not overwrite what it has not."""

    def __init__(self) -> None:
        self._seen: dict[Path, Seen] = {}

    def saw(self, path: Path, text: str, disk: bytes | None) -> None:
        """The model now knows that `path` holds `text`, while the disk held what `disk` is the digest of."""
        self._seen[path] = Seen(text, disk)

    def last_seen(self, path: Path) -> Seen | None:
        return self._seen.get(path)

    def seen_below(self, path: Path) -> list[Path]:
        """The files at or below `path` that the model has seen."""
        return [known for known in self._seen if known == path or path in known.parents]

    def forget(self, path: Path) -> None:
        self._seen.pop(path, None)

    def forget_below(self, path: Path) -> None:
        """As `forget`, for `path` and all that is below it."""
        for known in self.seen_below(path):
            self.forget(known)

    def clear(self) -> None:
        """The model has forgotten all of it."""
        self._seen.clear()


class RunState(Struct, frozen=True):
    """A command in the background, as it is now."""

    run_id: str
    command: str
    running: bool
    seconds: float
    """How long it has run, or ran."""
    exit_code: int | None
    """124: it ran into its timeout. `None`: it runs, or no exit code is known."""
    text: str
    """Its output, both streams; bounded."""
    ending: str = ""
    """How it ended, where the exit code does not say it."""

    @property
    def words(self) -> str:
        """`running for 12.3 s`, `exit_code=0`."""
        if self.running:
            return f"running for {self.seconds:.1f} s"
        code = "unknown" if self.exit_code is None else self.exit_code
        return f"exit_code={code}" + (f" ({self.ending})" if self.ending else "")

    def printed(self, text: str | None = None, left_out: int = 0) -> CommandOutput:
        """Its output (or `text`, a part of it that `left_out` lines are before) as a call's result."""
        text = (self.text if text is None else text).removesuffix("\n") or "[no output]"
        streams = ShellOutput(text, "", self.exit_code, truncated=False)
        heading = f"[{self.words}]" + (f"\n[{left_out} lines before]" if left_out else "")
        return CommandOutput(self.command, streams, text, heading, running=self.running)


class Question(Struct, frozen=True):
    """A question of the model to the user."""

    text: str
    choices: tuple[str, ...] = ()
    """Offered answers; empty: any text."""
    several: bool = False
    """Whether more than one choice may be taken."""


class Answer(Struct, frozen=True):
    """The answer to a question, or why there is none."""

    text: str | None
    """`None`: nobody answered."""
    reason: str = ""
    """Then: why, in a sentence for the model."""
    cancelled: bool = False
    """The client is cancelling the turn."""
    ends_turn: bool = False
    """The question is in the conversation, and the user answers by the next prompt."""


class Task(Struct, frozen=True):
    """Work for a sub-agent."""

    prompt: str
    title: str
    tools: tuple[str, ...] | None
    """`None`: all tools of the mode."""
    max_iterations: int


class CallHandle(Protocol):
    """The call itself, as its tool sees it."""

    @property
    def id(self) -> str:
        """The call's own id, as the client knows it."""
        ...

    @property
    def mode(self) -> str:
        """The session's mode now."""
        ...

    def set_mode(self, mode: str) -> None:
        """Switches the session's mode and tells the client."""
        ...

    async def start(self, command: Command) -> Process:
        """Starts a command, shows it live in this call and closes it after the call's last update."""
        ...

    def show(self, chunk: OutputChunk) -> None:
        """Passes a chunk of a process on to the user; what the editor shows by itself is not sent again."""
        ...

    def to_background(self, process: Process, command: Command, *, timeout: float | None = None) -> str:
        """Hands a process of this call over to the session: it outlives the call and the turn. Returns its run_id.

        `timeout` in seconds from now; the configured one bounds it. The call is to end at once: its card is the run's
        then. Raises ToolError where too many run.
        """
        ...

    async def ask(self, question: Question) -> Answer:
        """Asks the user."""
        ...

    async def delegate(self, task: Task) -> ToolResult:
        """Runs a sub-agent to its end; its calls are shown below this one."""
        ...


class ToolContext(Struct, frozen=True):
    """The context of a call: the call itself, the parts of its session, and where it works."""

    call: CallHandle
    executor: Executor
    roots: Roots
    config: ToolsConfig
    shell: Shell
    memory: Memory
    languages: LanguageServices
    web: WebAccess
    scheduler: Scheduler
    redactor: Redactor
    """Takes credentials out of texts."""
