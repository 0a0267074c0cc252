"""`send_keys`: type into a program in a terminal.

A line for a shell is judged as any other command line; what another program gets is known to nobody but that program,
so the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import anyio
from pydantic import Field, field_validator

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ExecutorError, ToolError
from acp_agent.executors.base import Command, Foreground, Terminal
from acp_agent.safety.access import Access, Claim, ExecuteAccess, NoAccess, ToolAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult
from acp_agent.tools.terminal.capture_pane import delay_of, screen
from acp_agent.tools.terminal.keys import INTERRUPTS, bytes_of, typed

CHANGED = re.compile(r"[^\n -~]|![^\s=(]|^\^", re.MULTILINE)
"""What a shell may read as something else: a tab completes, `!!` is an earlier line, and without a UTF-8 locale
the bytes of a letter are keys."""
OTHERS = frozenset({"fish", "zsh"})
"""Shells with another language than that in which lines are judged."""
QUIET, SETTLED_WITHIN = 0.3, 3.0
"""Seconds until the screen is shown: without a change of it, and at most."""


class SendKeysParams(Params):
    target: str = Field(description="The run_id of `bash` with `terminal`.")
    literal_text: str = Field(default="", description="Typed first, as it is.")
    keys: list[str] = Field(default=[], description="Then these: C-c, Up, Tab, Escape, F1, M-x, q, …")
    enter: bool = Field(default=False, description="Then Enter.")
    delay: bool | float | str = Field(default=0.0, description='Wait before that: seconds or "500ms", at most 60 s.')
    risk: Literal["low", "medium", "high"] = Field(description="How much harm it can do.")
    mutation: bool = Field(description="Whether it changes anything.")
    privesc: bool = Field(description="Whether it uses privileges beyond the user's own (sudo).")
    why: str = Field(description="Its purpose, in one short sentence.", min_length=1)

    @field_validator("delay")
    @classmethod
    def _seconds(cls, delay: bool | float | str) -> float:
        return delay_of(delay)

    @property
    def submits(self) -> bool:
        """Whether it ends what is typed with Enter, and has no other keys."""
        return not self.keys and (self.enter or self.literal_text.endswith("\n"))

    @property
    def interrupts(self) -> bool:
        """Whether it does nothing but interrupt what runs."""
        return bool(self.keys) and INTERRUPTS.issuperset(self.keys) and not self.literal_text and not self.enter


def _aim(terminal: Terminal) -> tuple[Foreground, str | None]:
    """What is decided about: it must still be so when the keys are sent."""
    return terminal.foreground(), terminal.pending


def _known(pending: str | None, text: str) -> bool:
    """Whether the shell's line is what was typed."""
    return pending is not None and CHANGED.search(f"{pending}{text}") is None


class SendKeys(Tool[SendKeysParams]):
    name = "send_keys"
    aliases = ("send-keys", "write_terminal", "tmux_send_keys")
    kind = "execute"

    def describe(self, params: SendKeysParams, roots: Roots) -> Description:
        parts = [params.literal_text.rstrip("\n")] if params.literal_text.strip() else []
        parts += [*params.keys, *(["Enter"] if params.enter or params.literal_text.endswith("\n") else [])]
        return Description(f"Type {' '.join(parts) or 'nothing'}")

    def access(self, params: SendKeysParams, roots: Roots, cwd: Path, config: ToolsConfig) -> list[Access]:
        try:
            typed(params.literal_text)
            bytes_of(params.keys, application=False)
        except ValueError as error:
            raise ToolError(f"Nothing was typed: {error}.", "invalid_parameters") from error
        if not (params.literal_text or params.keys or params.enter):
            raise ToolError("There is nothing to type: give `literal_text`, `keys` or `enter`.", "invalid_parameters")
        return []

    async def preview(self, params: SendKeysParams, ctx: ToolContext) -> Preview:
        command, terminal = ctx.shell.runs.terminal(params.target)
        aim = _aim(terminal)
        return Preview(state=aim, accesses=tuple(self._accesses(params, command, *aim)))

    def _accesses(
        self, params: SendKeysParams, command: Command, foreground: Foreground, pending: str | None
    ) -> Iterable[Access]:
        if params.interrupts:
            yield NoAccess()
            return
        folder, program = foreground.folder or command.cwd, foreground.program or "a program"
        known = foreground.program not in OTHERS and _known(pending, params.literal_text)
        if foreground.prompts and known and params.submits:
            line = f"{pending}{params.literal_text}".rstrip("\n")
            claim = Claim(params.risk, params.mutation, params.privesc, params.why)
            yield ExecuteAccess(line, folder, command.confined, claim)
        elif foreground.prompts and (not known or params.keys or "\n" in params.literal_text):
            words = f"keys for the line of {program}, which is not known whole"
            yield ToolAccess(f"keys {program}", words, once=True)
        elif foreground.prompts:
            yield NoAccess()  # It stands there; Enter is judged with it.
        else:
            words = f"what is typed into {program} in this terminal"
            yield ToolAccess(f"keys {program} {params.target.strip()}", words)
            keys = bytes_of(params.keys, application=False).decode().replace("\r", "\n")
            if foreground.behind and (line := f"{params.literal_text}{keys}".strip()):
                yield ExecuteAccess(line, folder, command.confined)  # The shell gets what the program leaves.

    async def run(self, params: SendKeysParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        assert isinstance(params.delay, float)
        await anyio.sleep(params.delay)
        command, terminal = ctx.shell.runs.terminal(params.target)
        if not params.interrupts and _aim(terminal) != preview.state:
            raise ToolError(
                "Nothing was typed: another program has come to the front meanwhile, which would have got it.",
                suggestion="Look with `capture_pane` and decide again.",
            )
        data = typed(params.literal_text).encode() + bytes_of(params.keys, application=terminal.application_keys)
        now = self._pending(params, terminal.pending, interrupts=terminal.interrupts)
        terminal.pending = now if terminal.foreground().prompts else ""
        try:
            await terminal.type(data + (b"\r" if params.enter else b""))
        except ExecutorError as error:
            raise ToolError(f"Not everything was typed: {error}.") from error
        await terminal.settled(QUIET, SETTLED_WITHIN)
        return screen(terminal, command, ctx)

    def _pending(self, params: SendKeysParams, pending: str | None, *, interrupts: bool) -> str | None:
        """What stands in the shell's line afterwards."""
        if params.submits or (params.interrupts and interrupts):
            return ""
        return f"{pending}{params.literal_text}" if not params.keys and _known(pending, params.literal_text) else None
