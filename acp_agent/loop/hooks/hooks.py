"""The hooks of a session: those that are told, here, and those that decide (`deciding_hooks`), loaded if there are any.

A hook that is told gets facts as variables; its output goes to the log. It never stops a call: if it fails or takes too
long, that is reported, and the call continues.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from acp_agent.config.safety_settings import OF_FOLDER, OF_SETTINGS, HookConfig, HookEvent, HooksConfig
from acp_agent.errors import ExecutorError, NotAsTrusted
from acp_agent.executors.base import Command, Late
from acp_agent.lazy import load
from acp_agent.loop.choices import Choices
from acp_agent.loop.journal import Journal
from acp_agent.loop.outbox import Outbox
from acp_agent.loop.running_turn import RunningTurn
from acp_agent.protocol.client import QUESTION
from acp_agent.safety.folders.folder_trust import SETTINGS
from acp_agent.schema import acp

if TYPE_CHECKING:
    from acp_agent.executors.local import LocalCommands
    from acp_agent.loop.hooks.deciding_hooks import Decided, DecidingHooks
    from acp_agent.loop.toolbox.trusted_programs import TrustedPrograms

TOLD = ("tool_before", "tool_after", "file_changed", "cwd_changed")
"""The lists of hooks that are only told."""
LISTS = ("on", *TOLD)
READ_HOOKS = "acp_agent.plugins.manifest:read_hooks"
ASK = "acp_agent.loop.ask:ask_hook"
END_SECONDS = 0.5
"""For the hooks of SessionEnd together: the agent ends within a second."""
DECIDING = "acp_agent.loop.hooks.deciding_hooks:DecidingHooks"
RUNNER = "acp_agent.loop.hooks.hook_runner:HookRunner"

PERMISSION_MODES = {"ask": "default", "architect": "plan", "code": "default", "auto": "bypassPermissions"}
"""The modes by Claude Code's names, of which hooks are told."""

log = logging.getLogger(__name__)

MAX_VARIABLE = 32_000
"""Maximum characters of one variable: the operating system accepts 128 KiB."""

MAX_TROUBLE = 300


class Hooks(Struct):
    """The hooks of one session. They run on this machine."""

    config: HooksConfig
    run_with: Late[LocalCommands]
    cwd: Path
    outbox: Outbox
    turn: RunningTurn
    choices: Choices
    journal: Journal
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    programs: Callable[[], TrustedPrograms]
    _reported: set[str] = field(default_factory=set)
    _deciding: DecidingHooks | None = None
    _begun: bool = False
    """Whether SessionStart was told."""

    @property
    def any(self) -> bool:
        """Whether any run for the calls of tools."""
        config = self.config
        told = config.tool_before or config.tool_after or config.file_changed or config.cwd_changed
        return bool(told) or (self.deciding is not None and self.deciding.of_calls)

    @property
    def deciding(self) -> DecidingHooks | None:
        if self._deciding is None and self.config.on:
            self._deciding = load(DECIDING)(
                self.config.on,
                load(RUNNER)(lambda: self.run_with.made, self.cwd, self.turn.variables, self.as_trusted),
                self._about,
                clean=self.outbox.clean,
                tell=self.outbox.tell,
                note=self.journal.notice,
                max_context=self.config.max_context_chars,
            )
        return self._deciding

    def within(self, cwd: Path) -> Hooks:
        """The same for calls in a worktree, where they run."""
        about = self.outbox, self.turn, self.choices, self.journal, self.spawn, self.programs
        return Hooks(self.config, self.run_with, cwd, *about)

    def as_trusted(self, of: str, words: Sequence[str]) -> list[str]:
        return self.programs().words(of, words)

    def trust(self, files: Mapping[str, bytes]) -> list[str]:
        """The user trusts these files of the folder, or (none) no longer: asks and tells no hooks of the folder then.
        Returns what is wrong with some."""
        without = OF_SETTINGS if files else OF_FOLDER
        lists = {
            name: [hook for hook in getattr(self.config, name) if not hook.of.startswith(without)] for name in LISTS
        }
        more, trouble = load(READ_HOOKS)(files[SETTINGS], SETTINGS, "the folder") if SETTINGS in files else ((), [])
        lists["on"] += [replace(hook, of=OF_SETTINGS) for hook in more]
        self.config, self._deciding = replace(self.config, **lists), None
        return list(trouble)

    def lines(self) -> list[str]:
        """One for each hook."""
        return [*told_lines(self.config), *(() if self.deciding is None else self.deciding.lines())]

    def asking(self, request: acp.RequestPermissionRequest | acp.CreateElicitationRequest) -> None:
        """Lets the hooks of notifications know of a question to the user."""
        if not isinstance(request, acp.RequestPermissionRequest):
            self.notify("elicitation_dialog", request.message)
        elif QUESTION in (request.tool_call.meta or {}):
            self.notify("elicitation_dialog", str(request.tool_call.title))
        else:
            self.notify("permission_prompt", f"acp-coder asks for permission: {request.tool_call.title}")

    def notify(self, kind: str, message: str) -> None:
        """Lets the hooks of notifications know; nobody waits for them."""
        if (deciding := self.deciding) is not None and deciding.any("Notification"):
            self.spawn(self._notify(deciding, kind, self.outbox.clean(message)))

    async def _notify(self, deciding: DecidingHooks, kind: str, message: str) -> None:
        await deciding.tell("Notification", kind, notification_type=kind, message=message, title="acp-coder")

    async def started(self, source: str) -> list[str]:
        """Tells hooks that the session begins (`startup`), goes on (`resume`), or that the model knows less now
        (`clear`, `compact`); returns what they add for the model."""
        if (deciding := self.deciding) is None:
            return []
        self._begun, deciding.starts = True, ""
        return (await deciding.tell("SessionStart", source, source=source)).context

    async def submitted(self, prompt: str) -> tuple[list[str], str]:
        """What hooks add to the user's prompt for the model, and why it is not sent to it, if they refuse it. Raises
        ConnectionClosed."""
        if (deciding := self.deciding) is None:
            return [], ""
        done = await deciding.tell("UserPromptSubmit", prompt=prompt)
        refused = await self._refused(done, "Your prompt was not sent to the model", "Send the prompt")
        return done.context, refused or (done.stops or "")

    async def before_compaction(self, trigger: str = "auto", **agent: str) -> str:
        """Why the conversation (of a sub-agent: `agent`) is not compacted; empty if it is. Raises ConnectionClosed."""
        if (deciding := self.deciding) is None:
            return ""
        done = await deciding.tell("PreCompact", trigger, trigger=trigger, custom_instructions="", **agent)
        return await self._refused(done, "The conversation was not compacted", "Compact it")

    async def _refused(self, done: Decided, not_done: str, more: str) -> str:
        if (said := done.said) is None or said.effect == "allow":
            return ""
        if said.effect == "ask":
            words = f"The hook `{said.name}` wants you to decide{said.because}"
            if await load(ASK)(self.outbox, words, more):
                return ""
        return f"{not_done}: the hook `{said.name}` does not allow it{said.because}."

    async def sub_agent_started(self, agent_id: str, agent_type: str) -> list[str]:
        """What hooks add for the model of a sub-agent."""
        if (deciding := self.deciding) is None:
            return []
        return (await deciding.tell("SubagentStart", agent_type, agent_id=agent_id, agent_type=agent_type)).context

    async def goes_on(self, event: HookEvent, round_: int, last: str, kind: str = "", **facts: Any) -> str:
        """What the model that has ended its turn is told to go on with; empty if it is not. `round_`: how often it was
        told so already."""
        if (deciding := self.deciding) is None or not deciding.any(event):
            return ""
        active = bool(round_)
        done = await deciding.tell(event, kind, stop_hook_active=active, last_assistant_message=last, **facts)
        said = done.said
        if said is None or said.effect != "deny" or done.stops is not None:
            return ""
        if round_ >= self.config.max_rounds:
            self.outbox.tell(f"The hook `{said.name}` wants the model to go on once more (`hooks.max_rounds`).")
            return ""
        return f"[The hook {said.name} does not let you end yet{said.because}]"

    def _about(self) -> dict[str, str]:
        mode = self.choices.mode().id
        return {
            "session_id": self.outbox.session_id,
            "transcript_path": "",
            "cwd": str(self.cwd),
            "permission_mode": PERMISSION_MODES[mode],
        }

    async def close(self) -> None:
        if self._begun and self._deciding is not None:
            with anyio.move_on_after(END_SECONDS):
                await self._deciding.tell("SessionEnd", "other", reason="other")
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
            words = [hook.command]
            words = await anyio.to_thread.run_sync(self.as_trusted, hook.of, words) if hook.of else words
            process = await self.run_with.made.run(Command(words[0], self.cwd, env=env))
        except (ExecutorError, NotAsTrusted) as error:
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


def told_lines(config: HooksConfig) -> list[str]:
    """One for each hook that is only told."""
    return [
        f"{event}{' of ' + ', '.join(hook.tools) if hook.tools else ''}: `{hook.command}`"
        for event in TOLD
        for hook in getattr(config, event)
    ]
