"""Runs one hook that decides: a command, which reads JSON from its stdin, or a URL, to which that is posted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from msgspec import Struct

from acp_agent.config.safety_settings import DecidingHook
from acp_agent.errors import ExecutorError, HookFailed, NotAsTrusted
from acp_agent.executors.base import Command
from acp_agent.lazy import load
from acp_agent.loop.hooks.hook_protocol import HookAnswer, read_exit, read_text

if TYPE_CHECKING:
    from acp_agent.executors.local import LocalCommands

POST = "acp_agent.loop.hooks.hook_requests:post"
MAX_OUTPUT = 1_000_000
"""Bytes of what a hook says."""


class HookRunner(Struct, frozen=True):
    commands: Callable[[], LocalCommands]
    """Of this machine, unconfined."""
    cwd: Path
    env: Callable[[], Mapping[str, str]]
    """Variables besides the agent's own."""
    as_trusted: Callable[[str, Sequence[str]], list[str]]
    """Gets whose a hook is and its words, and returns the words to run. Blocks; raises NotAsTrusted."""

    async def run(self, hook: DecidingHook, facts: Mapping[str, Any]) -> HookAnswer:
        """Raises HookFailed if it says nothing that can be used, in `hook.timeout` seconds."""
        try:
            words = [hook.command, *hook.env.values()]
            words = await anyio.to_thread.run_sync(self.as_trusted, hook.of, words) if hook.of else words
            with anyio.fail_after(hook.timeout):
                if hook.url:
                    text: str = await load(POST)(hook.url, hook.headers, facts, MAX_OUTPUT)
                    return read_text(facts["hook_event_name"], text)
                return await self._command(words[0], dict(zip(hook.env, words[1:], strict=True)), facts)
        except NotAsTrusted as error:
            raise HookFailed(str(error)) from error
        except TimeoutError as error:
            raise HookFailed(f"it ran longer than {hook.timeout:g} s and was stopped") from error

    async def _command(self, line: str, own: Mapping[str, str], facts: Mapping[str, Any]) -> HookAnswer:
        stdin = json.dumps(facts, default=str).encode() + b"\n"
        env = {**self.env(), "CLAUDE_PROJECT_DIR": str(self.cwd), **own}
        command = Command(line, self.cwd, env=env, output_limit=MAX_OUTPUT, stdin=stdin)
        try:
            process = await self.commands().run(command)
        except ExecutorError as error:
            raise HookFailed(str(error)) from error
        try:
            async for _ in process.output():
                if process.truncated:
                    raise HookFailed(f"it printed more than {MAX_OUTPUT} bytes")
            status = await process.wait()
            if status.signal is not None:
                raise HookFailed(f"it was killed by {status.signal}")
            return read_exit(facts["hook_event_name"], status.exit_code, process.stdout, process.stderr)
        finally:
            with anyio.CancelScope(shield=True):
                await process.close()
