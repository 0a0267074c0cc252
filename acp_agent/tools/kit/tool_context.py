"""The context and the results of tools. Does not import pydantic: the first model call does not wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from acp_agent.config.model import ToolsConfig
from acp_agent.executors.base import Command, Files, FileVersion, OutputChunk, Process
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
    from acp_agent.tools.kit.registry import ToolEntry
    from acp_agent.tools.net.web_access import WebAccess


class Location(Struct, frozen=True):
    path: Path
    line: int | None = None
    """1-based."""


class Description(Struct, frozen=True):
    """What the user sees before the call runs."""

    title: str
    """The action in a few words: the exact command, `Edit src/app.py`."""
    locations: tuple[Location, ...] = ()


class Preview(Struct, frozen=True):
    """The result of a dry run."""

    content: tuple[ToolCallContent, ...] = ()
    """Shown with the permission request (a diff)."""
    state: Any = None
    """State for `run`; opaque to everyone else."""
    locations: tuple[Location, ...] = ()
    """Where it will happen, if known more precisely than before."""
    accesses: tuple[Access, ...] = ()
    """Further accesses of the call."""
    mode: str = ""
    """The mode that the user chose, set before `run`."""


class CommandOutput(Struct, frozen=True):
    """The raw output of a command, from which the text for the model and the user is made."""

    script: str
    streams: ShellOutput
    """Complete, except for what was not kept."""
    combined: str
    """Both streams in order of arrival."""
    heading: str = ""
    """Text shown above it."""
    running: bool = False
    """Whether the command continues, so that this is a part."""
    timed_out: bool = False
    lost: str = ""
    """What of it was not kept, in words."""


class Verbatim(str):
    """Text of a result of which nothing is marked as not the agent's: all is, or each line has a number before it."""


class ToolResult(Struct, frozen=True):
    """The result of a call."""

    text: str
    """Text for the model. With `command`: shown below its output."""
    content: tuple[ToolCallContent, ...] | None = None
    """Text for the user; `None`: the same text."""
    parts: tuple[Part, ...] = ()
    """More content for the model (images)."""
    command: CommandOutput | None = None
    """Output of the command, if the tool ran one."""
    raw_output: Any = None
    """JSON for programs; `None` omits it."""
    locations: tuple[Location, ...] | None = None
    """Replace those of the description if the call found better ones."""
    failed: bool = False
    """The call was performed but did not succeed (a command's exit code)."""
    error: ToolError | None = None
    """With `failed`: the reason as a category, if there is one; its consequences are reported to the model."""
    ends_turn: bool = False
    """End the turn after this message's calls: the user has to continue."""
    notes: tuple[str, ...] = ()
    """Notes on what was left out for the model, one line each; shown even if a terminal shows the output itself."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """For programs, in the `_meta` of the call's final update."""
    keep: bool = True
    """Whether the same call of an idempotent tool may be answered with it again."""


class Ledger:
    """Remembers which text of each file the model has seen, for edits that must not overwrite unseen changes."""

    def __init__(self) -> None:
        self._seen: dict[Path, FileVersion] = {}

    def saw(self, path: Path, version: FileVersion) -> None:
        """Records that the model knows this version of the file."""
        self._seen[path] = version

    def last_seen(self, path: Path) -> FileVersion | None:
        return self._seen.get(path)

    def seen_below(self, path: Path) -> list[Path]:
        """The files at or below `path` that the model has seen."""
        return [known for known in self._seen if known == path or path in known.parents]

    def forget(self, path: Path) -> None:
        self._seen.pop(path, None)

    def forget_below(self, path: Path) -> None:
        """As `forget`, for `path` and everything below it."""
        for known in self.seen_below(path):
            self.forget(known)

    def clear(self) -> None:
        """Call when the model no longer has any of it in context."""
        self._seen.clear()


class RunState(Struct, frozen=True):
    """The current state of a background command."""

    run_id: str
    command: str
    running: bool
    seconds: float
    """How long it has been running, or ran."""
    exit_code: int | None
    """124: it timed out. `None`: it is running, or its exit code is unknown."""
    text: str
    """Its output, both streams, truncated."""
    ending: str = ""
    """How it ended, if the exit code does not say."""
    lost: str = ""
    """What of its output is not in `text`."""

    @property
    def words(self) -> str:
        """`running for 12.3 s`, `exit_code=0`."""
        if self.running:
            return f"running for {self.seconds:.1f} s"
        code = "unknown" if self.exit_code is None else self.exit_code
        return f"exit_code={code}" + (f" ({self.ending})" if self.ending else "")

    def printed(self, text: str | None = None, left_out: int = 0) -> CommandOutput:
        """Its output (or `text`, a part of it preceded by `left_out` lines) as a call's result."""
        text = (self.text if text is None else text).removesuffix("\n") or "[no output]"
        streams = ShellOutput(text, "", self.exit_code, truncated=bool(self.lost))
        heading = f"[{self.words}]" + (f"\n[{left_out} lines before]" if left_out else "")
        return CommandOutput(self.command, streams, text, heading, running=self.running, lost=self.lost)


def left_running(run_id: str, printed: CommandOutput | None = None, waited: float | None = None) -> ToolResult:
    """Reports that it continues, after `waited` seconds; the user sees the rest in the same card."""
    told = f"[background] started run_id={run_id}"
    if waited is not None:
        told = f"[background] still running after {waited:g} s and continues: run_id={run_id}"
    return ToolResult(Verbatim(told), command=printed, raw_output={"run_id": run_id, "background": True})


class Question(Struct, frozen=True):
    """A question from the model to the user."""

    text: str
    choices: tuple[str, ...] = ()
    """Offered answers; if empty, any text."""
    several: bool = False
    """Whether more than one choice may be selected."""


class Answer(Struct, frozen=True):
    """The answer to a question, or why there is none."""

    text: str | None
    """`None`: nobody answered."""
    reason: str = ""
    """The reason in that case, in a sentence for the model."""
    cancelled: bool = False
    """The client is cancelling the turn."""
    ends_turn: bool = False
    """The question is in the conversation, and the user answers with the next prompt."""


class Task(Struct, frozen=True):
    """Work for a sub-agent."""

    prompt: str
    title: str
    tools: tuple[str, ...] | None
    """`None`: all tools of the mode."""
    max_iterations: int
    isolated: bool = False
    """In a git worktree of its own."""
    agent: str = ""
    """The name of the sub-agent, if it has instructions of its own."""


class CallHandle(Protocol):
    """The call as its tool sees it."""

    @property
    def id(self) -> str:
        """The call's id, as known to the client."""
        ...

    @property
    def mode(self) -> str:
        """The session's current mode."""
        ...

    @property
    def waited(self) -> float:
        """Seconds that it has waited for the user while it ran; a time limit does not count them."""
        ...

    @property
    def asked(self) -> bool:
        """Whether the user was asked, or hooks were, so that time has passed since the preview."""
        ...

    async def set_mode(self, mode: str) -> None:
        """Switches the session's mode and tells the client."""
        ...

    async def start(self, command: Command) -> Process:
        """Starts a command, shows it live in this call and closes it after the call's last update."""
        ...

    async def start_shell(self, command: Command, window: str = "", session: str = "") -> Process:
        """Starts one that does not end with this call; with a terminal, in that window of tmux, if there is tmux."""
        ...

    async def run_in(self, pane: tuple[str, str], command: Command) -> Process:
        """The same as `start`, in the shell of a pane (`Panes.key`)."""
        ...

    def show(self, chunk: OutputChunk) -> None:
        """Passes a chunk of a process's output on to the user; what the editor shows by itself is not sent again."""
        ...

    def say(self, line: str) -> None:
        """Shows a line in the call until the next one, or its end; not every line of many."""
        ...

    def to_background(self, process: Process, command: Command, *, timeout: float | None = None) -> str:
        """Hands a process of this call over to the session: it outlives the call and the turn. Returns its run_id.

        `timeout` in seconds from now, limited by the configured one. The call must end immediately: its card then
        belongs to the run. Raises ToolError if too many are running.
        """
        ...

    async def ask(self, question: Question) -> Answer:
        """Asks the user."""
        ...

    async def delegate(self, task: Task) -> ToolResult:
        """Runs a sub-agent to its end; its calls are shown below this one."""
        ...


class ToolOffer(Protocol):
    """Which tools the model has."""

    def bring(self, name: str) -> bool:
        """Adds a tool, which what the model has just seen calls for, to what is sent. Whether it is offered."""
        ...

    async def find_more(self, query: str) -> list[ToolEntry]:
        """Adds the tools that fit the words best to what is sent; returns them, best first."""
        ...

    def left_out(self) -> list[ToolEntry]:
        """What is offered, but not sent."""
        ...

    def sent(self) -> list[ToolEntry]: ...


class ToolContext(Struct, frozen=True):
    """The context of a call: the call itself, the parts of its session, and its folders."""

    call: CallHandle
    files: Files
    roots: Roots
    config: ToolsConfig
    shell: Shell
    memory: Memory
    languages: LanguageServices
    web: WebAccess
    scheduler: Scheduler
    offer: ToolOffer
    redactor: Redactor
    """Redacts credentials in texts."""
