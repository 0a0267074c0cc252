"""`bash_list`, `bash_output`, `bash_kill`: the background commands."""

from __future__ import annotations

from pydantic import Field, field_validator

from acp_agent.tools.kit.base import HarmlessTool, Params
from acp_agent.tools.kit.durations import wait_of
from acp_agent.tools.kit.tool_context import Preview, ToolContext, ToolResult


class BashListParams(Params):
    """No parameters."""


class BashList(HarmlessTool[BashListParams]):
    name = "bash_list"
    verbatim = True
    title = "List the background commands"
    kind = "read"
    reads_only = True

    async def run(self, params: BashListParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        states = ctx.shell.runs.states()
        lines = [f"{state.run_id} [{state.words}] {' '.join(state.command.split())}" for state in states]
        return ToolResult("\n".join(lines) or "[no background commands in this session]")


MAX_WAIT = 60.0


class BashOutputParams(Params):
    run_id: str = Field(description="The run_id from `bash`.")
    wait: bool | float | str = Field(
        default=False, description='Wait for it to end: seconds or "30s", at most 60 s (true: 60 s).'
    )
    tail: int | None = Field(default=None, ge=1, description="Only this many of the last lines.")

    @field_validator("wait")
    @classmethod
    def _duration(cls, wait: bool | float | str) -> bool | float:
        return wait_of(wait)

    @property
    def seconds(self) -> float:
        if isinstance(self.wait, bool | str):
            return MAX_WAIT if self.wait else 0.0
        return min(self.wait, MAX_WAIT)


class BashOutput(HarmlessTool[BashOutputParams]):
    name = "bash_output"
    verbatim = True
    title = "Output of the background command {run_id:.8}"
    kind = "read"
    reads_only = True

    async def run(self, params: BashOutputParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        state = await ctx.shell.runs.look(params.run_id, params.seconds)
        if params.tail is None:
            return ToolResult("", command=state.printed())
        lines = state.text.splitlines()
        left_out = max(0, len(lines) - params.tail)
        return ToolResult("", command=state.printed("\n".join(lines[left_out:]), left_out))


class BashKillParams(Params):
    run_id: str = Field(description="The run_id from `bash`.")


class BashKill(HarmlessTool[BashKillParams]):
    """It ends only commands that this session started."""

    name = "bash_kill"
    title = "End the background command {run_id:.8}"
    kind = "execute"

    async def run(self, params: BashKillParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        state = await ctx.shell.runs.kill(params.run_id)
        return ToolResult("", command=state.printed())
