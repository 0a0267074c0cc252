"""`capture_pane`: what the screen of a program in a terminal shows."""

from __future__ import annotations

from typing import Literal

import anyio
from msgspec.structs import replace
from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from acp_agent.errors import ExecutorError, ToolError
from acp_agent.executors.base import Command, Terminal
from acp_agent.output.envelope import ShellOutput
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.durations import wait_of
from acp_agent.tools.kit.tool_context import CommandOutput, Description, Preview, ToolContext, ToolResult

MOST_DELAY = 60.0


def delay_of(value: bool | float | str) -> float:
    """Seconds, at most a minute. Raises ValueError."""
    seconds = wait_of(value)
    if isinstance(seconds, bool | str):
        return 0.0
    return min(seconds, MOST_DELAY)


class CapturePaneParams(Params):
    target: str = Field(default="", description="The run_id of `bash` with `terminal`.")
    session: SkipJsonSchema[str | None] = None
    pane: SkipJsonSchema[str | None] = None
    include_escape_sequences: SkipJsonSchema[bool] = False
    escape_non_printable: SkipJsonSchema[bool] = False
    include_alternate_screen: SkipJsonSchema[bool] = False
    start: int | Literal["-"] = Field(
        default=0, description='First row; 0: the topmost shown, -10: ten rows above it, "-": the first kept.'
    )
    end: int | Literal["-"] = Field(default="-", description='Last row; "-": the last shown.')
    join_wrapped_lines: bool = Field(default=True, description="Rows that go on in the next are one line.")
    preserve_trailing_spaces: bool = Field(default=False, description="Keep spaces at the ends of rows.")
    delay: bool | float | str = Field(default=0.0, description='Wait first: seconds or "2s", at most 60 s.')

    @field_validator("delay")
    @classmethod
    def _seconds(cls, delay: bool | float | str) -> float:
        return delay_of(delay)


class CapturePane(HarmlessTool[CapturePaneParams]):
    name = "capture_pane"
    verbatim = True
    aliases = ("capture-pane", "read_terminal", "tmux_capture_pane")
    kind = "read"
    reads_only = True

    def describe(self, params: CapturePaneParams, roots: Roots) -> Description:
        return Description(f"Look at the {place_words(params.target, params.session, params.pane)}")

    async def run(self, params: CapturePaneParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        said: list[str] = []
        try:
            _, command, terminal = terminal_of(params.target, params.session, params.pane, ctx)
        except ToolError as error:
            shared = None if ctx.shell.runs.knows(params.target) else ctx.shell.runs.panes.shared()
            if shared is None:
                raise
            _, command, terminal = shared
            said += [f"[{error}]", "[instead: the shared pane]"]
        assert isinstance(params.delay, float)
        await anyio.sleep(params.delay)
        whole = "\n".join(terminal.rows(join=True)[0])
        join = params.join_wrapped_lines or ctx.redactor.redact(whole) != whole  # No credential is cut at a row's end.
        rows, above = terminal.rows(join=join, keep_spaces=params.preserve_trailing_spaces)
        if params.include_escape_sequences or params.escape_non_printable or params.include_alternate_screen:
            drawn = await _drawn(params, terminal, said, secret=ctx.redactor.redact(whole) != whole)
            return _headed(said, shown(drawn, 0, len(drawn), terminal, command, ctx))
        first = 0 if params.start == "-" else min(len(rows), max(0, above + params.start))
        last = len(rows) if params.end == "-" else min(len(rows), max(first, above + params.end + 1))
        return _headed(said, shown(rows, first, last, terminal, command, ctx))


async def _drawn(params: CapturePaneParams, terminal: Terminal, said: list[str], *, secret: bool) -> list[str]:
    """As tmux shows it. `said` gets what is to be said of it. `secret`: a credential is shown, which would not be found
    with other characters in it. Raises ToolError."""
    behind, escapes = params.include_alternate_screen, params.include_escape_sequences
    if behind and not terminal.alternate:
        behind = False
        said.append("[there is no alternate screen: this is the main one]")
    if secret and (escapes or params.escape_non_printable):
        escapes = False
        said.append("[without escape sequences, since it shows a credential]")
    flags = ["-J", *(["-a"] if behind else ["-S", str(params.start), "-E", str(params.end)])]
    flags += ["-e", "-C"] if escapes else ["-C"] if params.escape_non_printable and not secret else []
    try:
        text = await terminal.captured(*flags)
    except ExecutorError as error:
        raise ToolError(f"The screen cannot be had: {error}.") from error
    if text is None:
        raise ToolError("Only tmux can show that (`tools.tmux.session`, `--tmux`).", "invalid_parameters")
    rows = text.split("\n")
    return rows if params.preserve_trailing_spaces else [row.rstrip() for row in rows]


def _headed(said: list[str], result: ToolResult) -> ToolResult:
    if not said or (printed := result.command) is None:
        return result
    return replace(result, command=replace(printed, heading="\n".join([*said, printed.heading])))


def place_words(target: str, session: str | None, pane: str | None) -> str:
    """Which terminal it is, for the user."""
    if not target and (session or pane):
        return f"pane {':'.join(filter(None, (session, pane)))}"
    return f"terminal {target:.8}" if target else "shared pane"


def terminal_of(
    target: str, session: str | None, pane: str | None, ctx: ToolContext, *, types: bool = False
) -> tuple[str, Command, Terminal]:
    """By the run_id of a program, or by the names of a pane; by neither: the shared one, if there is, to look at. With
    an id that no other has. `types`: whether something is to be typed into it. Raises ToolError."""
    runs, place = ctx.shell.runs, ctx.shell.place if types else ""
    if target and not (session or pane) and not (runs.panes.on and not runs.knows(target)):
        return target.strip(), *runs.terminal(target, place)
    if not runs.panes.on or (types and not (target or session or pane)):
        names = ", or `pane`" if runs.panes.on else ""
        raise ToolError(f"Which terminal? Give the run_id as `target`{names}.", "invalid_parameters")
    if target and not (session or pane):
        session, _, pane = target.rpartition(":")
    return runs.panes.terminal(runs.panes.key(session, pane), place)


def screen(terminal: Terminal, command: Command, ctx: ToolContext) -> ToolResult:
    """The rows that are shown."""
    rows, above = terminal.rows(join=True)
    return shown(rows, above, len(rows), terminal, command, ctx)


def shown(rows: list[str], first: int, last: int, terminal: Terminal, command: Command, ctx: ToolContext) -> ToolResult:
    """Those from `first` to before `last` as a result, with the program that gets the keys."""
    before_end = len(rows) - first, len(rows) - last
    rows = ctx.redactor.redact("\n".join(rows)).split("\n")  # Whole: a credential may begin above.
    first, last = (max(0, len(rows) - number) for number in before_end)
    text, limit = "\n".join(rows[first:last]), ctx.config.terminal.capture_chars
    if left_out := max(0, len(text) - limit):
        text = f"[truncated {left_out} chars from start]\n{text[left_out:]}"
    foreground = terminal.foreground()
    heading = f"[running: {foreground.program or 'unknown'}{', full screen' if terminal.alternate else ''}]"
    streams = ShellOutput(text, "", None, truncated=bool(left_out))
    text = text.rstrip("\n") or "[the screen is empty]"
    return ToolResult("", command=CommandOutput(command.script, streams, text, heading, running=True))
