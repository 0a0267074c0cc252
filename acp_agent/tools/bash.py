"""`bash`: run a command line."""

from __future__ import annotations

from typing import Any, ClassVar

import anyio
from pydantic import Field

from acp_agent.errors import ToolError
from acp_agent.executors.base import Command, ExitStatus, Process
from acp_agent.output.envelope import ShellOutput
from acp_agent.safety.access import Access, ExecuteAccess
from acp_agent.safety.paths import Roots
from acp_agent.schema.acp import ToolKind
from acp_agent.tools.base import Params, Tool
from acp_agent.tools.context import Description, Preview, ToolContext, ToolResult

__all__ = ["Bash", "BashParams"]


class BashParams(Params):
    command: str = Field(description="The bash command line to run.", min_length=1)
    timeout: float | None = Field(
        default=None, gt=0, description="Seconds the command may run; 60 when left out, 600 at most."
    )


class Bash(Tool[BashParams]):
    name: ClassVar[str] = "bash"
    aliases: ClassVar[tuple[str, ...]] = ("run_command", "shell", "run_shell", "execute_bash")
    kind: ClassVar[ToolKind] = "execute"
    Params: ClassVar[type[Params]] = BashParams

    def describe(self, params: BashParams, roots: Roots) -> Description:
        return Description(params.command.strip())

    def access(self, params: BashParams, ctx: ToolContext) -> list[Access]:
        if not params.command.strip():
            raise ToolError("The command is empty. Give the command line to run.", "invalid_parameters")
        if "\0" in params.command:
            raise ToolError("The command holds a NUL character, which no shell can take.", "invalid_parameters")
        return [ExecuteAccess(params.command, ctx.shell_cwd())]

    async def run(self, params: BashParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        config = ctx.config.bash
        timeout = min(params.timeout or config.timeout, config.max_timeout)
        command = Command(params.command, ctx.shell_cwd(), output_limit=config.output_limit, state_file=ctx.shell_state)
        process = await ctx.start(command)
        status = ExitStatus()
        with anyio.move_on_after(timeout) as scope:
            async for chunk in process.output():
                ctx.show_output(chunk)
            status = await process.wait()
        timed_out = scope.cancelled_caught
        if timed_out:
            await process.kill()
        return _result(process, status, timeout if timed_out else None, config.raw_output_chars)


def _result(process: Process, status: ExitStatus, timed_out_after: float | None, limit: int) -> ToolResult:
    text = process.combined
    notes = []
    if timed_out_after is not None:
        notes.append(
            f"[killed: the command ran longer than {timed_out_after:g} s. The output above is what it had printed. "
            "Give a longer `timeout`, or run less.]"
        )
    elif status.signal is not None:
        notes.append(f"[killed by {status.signal}]")
    elif status.exit_code is None:
        notes.append("[the exit status is not known]")
    elif status.exit_code != 0:
        notes.append(f"[exit code {status.exit_code}]")
    elif not text.strip():
        notes.append("[no output, exit code 0]")
    separator = "" if not text or text.endswith("\n") else "\n"
    envelope: dict[str, Any] = ShellOutput(
        stdout=process.stdout,
        stderr=process.stderr,
        exit_code=None if timed_out_after is not None else status.exit_code,
        truncated=process.truncated,
    ).as_json(limit)
    return ToolResult(
        text=text + separator + "\n".join(notes),
        raw_output=envelope,
        failed=timed_out_after is not None or status.exit_code != 0,
    )
