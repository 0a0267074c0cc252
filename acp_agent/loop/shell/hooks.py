"""The user's commands that run before and after tools, and after a file or the shell's folder has changed.

A hook gets facts as variables; its output goes to the log. It never stops a call: if it fails or takes too long, that
is reported, and the call continues. Hooks are in the user's own configuration only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct, field

from acp_agent.config.model import HookConfig, HooksConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command
from acp_agent.loop.outbox import Outbox
from acp_agent.loop.running_turn import RunningTurn

if TYPE_CHECKING:
    from acp_agent.executors.local import LocalExecutor
    from acp_agent.loop.shell.session_shell import Late

log = logging.getLogger(__name__)

MAX_VARIABLE = 32_000
"""Maximum characters of one variable: the operating system accepts 128 KiB."""

MAX_TROUBLE = 300


class Hooks(Struct):
    """The hooks of one session. They run on this machine."""

    config: HooksConfig
    run_with: Late[LocalExecutor]
    cwd: Path
    outbox: Outbox
    turn: RunningTurn
    _reported: set[str] = field(default_factory=set)

    @property
    def any(self) -> bool:
        """Whether any run for the calls of tools."""
        config = self.config
        return bool(config.tool_before or config.tool_after or config.file_changed or config.cwd_changed)

    async def close(self) -> None:
        await self.run_with.close()

    async def before(self, tool: str, call_id: str, arguments: Mapping[str, Any]) -> None:
        if self.config.tool_before:
            facts = {"ACP_CODER_TOOL_INPUT": json.dumps(arguments, default=str)}
            await self._run("tool_before", self.config.tool_before, tool, call_id, facts)

    async def after(self, tool: str, call_id: str, status: str) -> None:
        await self._run("tool_after", self.config.tool_after, tool, call_id, {"ACP_CODER_TOOL_STATUS": status})

    async def file_changed(self, tool: str, call_id: str, path: Path) -> None:
        await self._run("file_changed", self.config.file_changed, tool, call_id, {"ACP_CODER_FILE": str(path)})

    async def cwd_changed(self, tool: str, call_id: str, old: Path, new: Path) -> None:
        facts = {"ACP_CODER_OLD_CWD": str(old), "ACP_CODER_CWD": str(new)}
        await self._run("cwd_changed", self.config.cwd_changed, tool, call_id, facts)

    async def _run(
        self, event: str, hooks: Sequence[HookConfig], tool: str, call_id: str, facts: Mapping[str, str]
    ) -> None:
        for hook in hooks:
            if not hook.command.strip() or (hook.tools and tool not in hook.tools):
                continue
            named = {"ACP_CODER_EVENT": event, "ACP_CODER_TOOL": tool, "ACP_CODER_TOOL_CALL_ID": call_id, **facts}
            env = {**self.turn.variables(), **named}
            trouble = await self._one(hook, {name: value[:MAX_VARIABLE] for name, value in env.items()})
            if trouble:
                self._tell(event, hook, trouble)

    async def _one(self, hook: HookConfig, env: Mapping[str, str]) -> str:
        """Runs it; returns what went wrong, or nothing."""
        try:
            process = await self.run_with.executor.run(Command(hook.command, self.cwd, env=env))
        except ExecutorError as error:
            return str(error)
        try:
            with anyio.move_on_after(hook.timeout) as scope:
                async for _ in process.output():
                    pass
                status = await process.wait()
            if scope.cancelled_caught:
                return f"it ran longer than {hook.timeout:g} s and was killed"
            if status.exit_code != 0:
                said = self.outbox.clean(process.combined).strip()[-MAX_TROUBLE:]
                ended = f"exit code {status.exit_code}" if status.signal is None else f"killed by {status.signal}"
                return f"{ended}{': ' + said if said else ''}"
            return ""
        finally:
            with anyio.CancelScope(shield=True):
                await process.close()

    def _tell(self, event: str, hook: HookConfig, trouble: str) -> None:
        """Logs it every time, tells the user the first time."""
        text = f"The hook `{hook.command}` ({event}) failed: {trouble}"
        log.warning("%s", text)
        if hook.command not in self._reported:
            self._reported.add(hook.command)
            self.outbox.say(f"{text}. The call continued.")
