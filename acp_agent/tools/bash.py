"""`bash`: run a command line, to completion or in the background."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import anyio
from msgspec.structs import replace
from pydantic import Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from acp_agent.config.model import ToolsConfig
from acp_agent.config.place_settings import TerminalConfig
from acp_agent.errors import ToolError
from acp_agent.executors.base import Command, ExitStatus, Process, TerminalSize
from acp_agent.output.envelope import NO_OUTPUT, ShellOutput
from acp_agent.safety.access import RISK_METADATA, Access, Claim, ExecuteAccess, ToolAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.lines.interactive import wants_terminal
from acp_agent.safety.lines.shared_line import ends_shell, stays
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.durations import wait_of
from acp_agent.tools.kit.sandbox_limits import denied_paths, limit_reached, was_forbidden
from acp_agent.tools.kit.tool_context import CommandOutput, Description, Preview, ToolContext, ToolResult, left_running

COMMAND_NAMES = ("command", "cmd", "script", "shell_command", "bash", "sh")
"""Names that models use for the command line."""

BROKEN_JSON = re.compile(r"\s*(?:\{|\[\s*[\"'{]|\[\s*\[\S|null\s*$)")
"""Plain text that was meant to be JSON, not a command line."""


LEAST_WAIT = 0.5
"""Seconds more, at least, for a command that was asked about while it ran."""

SETTLED_WITHIN, QUIET_FOR = 3.0, 0.4
"""Seconds until the first screen of a program in a terminal is shown, at most; and without a change of it."""

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""The shell's own exit codes."""


class BashParams(Params):
    command: str = Field(description="The bash command line to run.", min_length=1)
    timeout: float | None = Field(
        default=None,
        gt=0,
        description="Seconds before the command is killed; default 60, at most 600 (in the background: 1800).",
    )
    background: bool = Field(default=False, description="Start it and continue; you are told when it ends.")
    wait: bool | float | str = Field(
        default=True,
        description='true: until it ends; false: not at all, like `background`; seconds, "30s" or "10m": that long, '
        "then it continues in the background.",
    )
    terminal: bool = Field(
        default=False,
        description="Run it in a terminal, for a program that asks or draws: look with `capture_pane`, answer with "
        "`send_keys`.",
    )
    outside_sandbox: bool = Field(
        default=False,
        description="Run it outside the sandbox: only if it failed because of the sandbox and there is no other way. "
        "The user is asked every time.",
    )
    risk: SkipJsonSchema[Literal["low", "medium", "high"] | None] = None
    mutation: SkipJsonSchema[bool | None] = None
    privesc: SkipJsonSchema[bool | None] = None
    why: SkipJsonSchema[str | None] = None
    place: SkipJsonSchema[str | None] = None
    session: SkipJsonSchema[str | None] = None
    pane: SkipJsonSchema[str | None] = None

    @field_validator("wait")
    @classmethod
    def _duration(cls, wait: bool | float | str) -> bool | float:
        return wait_of(wait)

    @model_validator(mode="after")
    def _agree(self) -> BashParams:
        if self.background and self.wait is not False and "wait" in self.model_fields_set:
            raise ValueError("give either `background` or `wait`: background commands are not waited for")
        if self.in_pane and (self.terminal or self.outside_sandbox):
            raise ValueError("a command in a pane is typed into its shell: neither `terminal` nor `outside_sandbox`")
        return self

    @property
    def in_pane(self) -> bool:
        """Whether the shell of a pane runs it."""
        return self.session is not None or self.pane is not None

    @property
    def in_background(self) -> bool:
        return self.background or self.wait is False or self.terminal

    @property
    def patience(self) -> float | None:
        """Seconds after which the call returns without waiting further; `None`: it waits for the command to end."""
        if isinstance(self.wait, bool | str):
            return None
        return self.wait if self.timeout is None or self.timeout > self.wait else None


def _claim(params: BashParams) -> Claim | None:
    if params.risk is None or params.mutation is None or params.privesc is None or not params.why:
        return None
    return Claim(params.risk, params.mutation, params.privesc, params.why)


class Bash(Tool[BashParams]):
    name = "bash"
    verbatim = True
    aliases = ("run_command", "shell", "run_shell", "execute_bash", "run_terminal_cmd", "execute_command")
    kind = "execute"

    def parse(self, arguments: dict[str, Any]) -> BashParams:
        given = [name for name in COMMAND_NAMES if name in arguments]
        if len(given) > 1:
            names = " and ".join(f"`{name}`" for name in given)
            raise ToolError(
                f"The arguments of `bash` are wrong: {names} both contain a command line.",
                "invalid_parameters",
                suggestion="Give one, as `command`.",
            )
        if given:
            arguments = {"command" if name == given[0] else name: value for name, value in arguments.items()}
        return super().parse(arguments)

    def from_text(self, text: str) -> dict[str, Any] | None:
        return {"command": text} if text.strip() and BROKEN_JSON.match(text) is None else None

    def describe(self, params: BashParams, roots: Roots) -> Description:
        pane = ":".join(filter(None, (params.session, params.pane)))
        return Description(params.command.strip() + (f" (in pane {pane})" if params.in_pane else ""))

    def access(self, params: BashParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        if not params.command.strip():
            raise ToolError("The command is empty.", "invalid_parameters", suggestion="Give the command line to run.")
        if "\0" in params.command:
            raise ToolError("The command contains a NUL character, which shells cannot handle.", "invalid_parameters")
        claim = _claim(params)
        if claim is None and config.require_risk_metadata:
            missing = ", ".join(f"`{name}`" for name in RISK_METADATA if getattr(params, name) in (None, ""))
            raise ToolError(f"The arguments of `bash` are not complete: {missing} missing.", "invalid_parameters")
        return [] if params.in_pane else [ExecuteAccess(params.command, cwd, not params.outside_sandbox, claim)]

    async def preview(self, params: BashParams, ctx: ToolContext) -> Preview:
        preview = _in_pane(params, ctx) if params.in_pane else Preview()
        watched = params.terminal or (params.in_pane and params.in_background)
        if ctx.config.bash.refuse_interactive and not watched:
            found = wants_terminal(params.command, background=params.in_background)
            if found is not None:
                words = f"{found.instead} If it has to be this: `terminal`: true, and `send_keys` answers it."
                raise ToolError(f"The command was not run: {found.why}.", suggestion=words)
        if params.in_background or params.patience is not None:
            ctx.shell.runs.check_room()
        return preview

    async def run(self, params: BashParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        config = ctx.config.bash
        patience = params.patience
        command = Command(
            params.command,
            ctx.shell.cwd(),
            output_limit=config.output_limit,
            state_file=ctx.shell.state,
            keeps_state=not params.in_background and patience is None,
            confined=not params.outside_sandbox,
            login=config.login_shell,
            terminal=_size(ctx.config.terminal) if params.terminal else None,
        )
        if preview.state is None:
            process = await ctx.call.start(command)
        else:
            key, folder = preview.state
            process = await ctx.call.run_in(key, replace(command, cwd=folder))
        if params.terminal:
            return await _in_terminal(process, command, params, ctx)
        if params.in_background:
            return left_running(ctx.call.to_background(process, command, timeout=params.timeout))
        limit = min(patience or params.timeout or config.timeout, config.max_timeout)
        status = ExitStatus()
        left, before = limit, ctx.call.waited
        while left > 0:
            with anyio.move_on_after(left) as scope:
                async for chunk in process.output():
                    ctx.call.show(chunk)
                status = await process.wait()
            left, before = ctx.call.waited - before, ctx.call.waited
            if not scope.cancelled_caught:
                break
            left = max(left, LEAST_WAIT) if left > 0 else 0.0
        if not scope.cancelled_caught:
            return _result(process, command, status, None, ctx)
        if patience is not None:
            await process.look()
            rest = None if params.timeout is None else params.timeout - limit
            printed = _printed(process, params.command, ExitStatus(), running=True)
            return left_running(ctx.call.to_background(process, command, timeout=rest), printed, limit)
        await process.kill()
        return _result(process, command, status, limit, ctx)


def _in_pane(params: BashParams, ctx: ToolContext) -> Preview:
    """What the shell of a pane may do with it. Raises ToolError."""
    panes = ctx.shell.runs.panes
    key = panes.key(params.session, params.pane)
    shell = panes.find(key) if panes.may_make(key) else panes.needed(key)
    if ends := ends_shell(params.command):
        raise ToolError(
            f"Nothing was typed: `{ends}` would end the shell of the pane, which others share.",
            "invalid_parameters",
            suggestion="Put it into a sub-shell: `( … )`; or run it without `pane`.",
        )
    folder = ctx.roots.cwd if shell is None else shell.folder
    accesses: list[Access] = [ExecuteAccess(params.command, folder, True, _claim(params))]
    if word := stays(params.command):
        accesses.append(ToolAccess(f"pane {word}", f"{word}, which may decide what later lines run", once=True))
    return Preview(state=(key, folder), accesses=tuple(accesses))


def _size(config: TerminalConfig) -> TerminalSize:
    return TerminalSize(config.columns, config.rows, config.history)


async def _in_terminal(process: Process, command: Command, params: BashParams, ctx: ToolContext) -> ToolResult:
    """Waits until it prints nothing more for a moment, or ends."""
    status: ExitStatus | None = None
    wait = params.wait if not isinstance(params.wait, bool | str) else SETTLED_WITHIN
    with anyio.move_on_after(wait) as scope:
        end = scope.deadline
        async for chunk in process.output():
            ctx.call.show(chunk)
            if wait == SETTLED_WITHIN:
                scope.deadline = min(end, anyio.current_time() + QUIET_FOR)
        status = await process.wait()
    if status is not None:
        return _result(process, command, status, None, ctx)
    printed = _printed(process, params.command, ExitStatus(), running=True)
    run_id = ctx.call.to_background(process, command, timeout=params.timeout)
    told = f"[terminal] running, its screen is above: run_id={run_id}; `send_keys` types, `bash_kill` ends it"
    return ToolResult(told, command=printed, raw_output={"run_id": run_id, "background": True})


def _printed(
    process: Process, script: str, status: ExitStatus, *, timed_out: bool = False, running: bool = False
) -> CommandOutput:
    exit_code = None if timed_out else status.exit_code
    streams = ShellOutput(process.stdout, process.stderr, exit_code, process.truncated)
    return CommandOutput(script, streams, process.combined, running=running, timed_out=timed_out, lost=process.lost)


def _limits(output: str, command: Command, ctx: ToolContext) -> str:
    """Describes what the sandbox forbids, for the model; empty if the command did not fail because of that."""
    limits = ctx.shell.limits() if command.confined else ""
    if not was_forbidden(output, limits, command.cwd, ctx.roots):
        return ""
    denied = denied_paths(output, limits, command.cwd, ctx.roots)
    return f"Denied: {', '.join(denied)}. {limits}" if denied else limits


def _result(
    process: Process, command: Command, status: ExitStatus, timed_out_after: float | None, ctx: ToolContext
) -> ToolResult:
    printed = _printed(process, command.script, status, timed_out=timed_out_after is not None)
    notes = []
    if timed_out_after is not None:
        notes.append(
            f"[killed: the command ran longer than {timed_out_after:g} s. The output above is what it had printed. "
            "Give a longer `timeout`, use `background`, or run less.]"
        )
    elif status.signal is not None:
        notes.append(f"[killed by {status.signal}]")
    elif status.exit_code is None:
        notes.append("[the exit status is unknown]")
    elif status.exit_code != 0:
        notes.append(f"[exit code {status.exit_code}]")
        if command.confined and (limit := limit_reached(printed.combined, status.exit_code, ctx.config.sandbox)):
            notes.append(f"[{limit}]")
        if limits := _limits(printed.combined, command, ctx):
            notes.append(f"[{limits}]")
    elif not printed.combined.strip():
        notes.append(NO_OUTPUT)
    if process.remark:
        notes.append(f"[{process.remark}]")
    return ToolResult(
        text="\n".join(notes),
        command=printed,
        failed=timed_out_after is not None or status.exit_code != 0,
        error=_error(status, timed_out_after),
    )


def _error(status: ExitStatus, timed_out_after: float | None) -> ToolError | None:
    """Why the command failed, if its output cannot say so."""
    if timed_out_after is not None:
        return ToolError(f"the command ran longer than {timed_out_after:g} s", "timeout")  # As its note says.
    if status.exit_code == NOT_FOUND:
        return ToolError(
            "a program in this command line was not found",
            suggestion="Check the spelling, look for it (`command -v`), or use another program. Ask before installing.",
        )
    if status.exit_code == NOT_EXECUTABLE:
        return ToolError(
            "a program in this command line cannot be executed",
            suggestion="Run it with its interpreter (`bash x.sh`, `python x.py`), or make it executable.",
        )
    return None
