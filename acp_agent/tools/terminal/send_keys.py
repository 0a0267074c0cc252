"""`send_keys`: type into a program in a terminal.

A line for a shell is judged as any other command line; what another program gets is known to nobody but that program,
so the user is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import anyio
from msgspec import Struct
from pydantic import Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ExecutorError, ToolError
from acp_agent.executors.base import Command, Foreground
from acp_agent.safety.access import Access, Claim, ExecuteAccess, NoAccess, ToolAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.lines.shared_line import ends_shell
from acp_agent.safety.lines.typed_line import has_keys, not_alone
from acp_agent.tools.kit.base import Params, Tool
from acp_agent.tools.kit.tool_context import Description, Preview, ToolContext, ToolResult
from acp_agent.tools.terminal.capture_pane import delay_of, screen, terminal_of
from acp_agent.tools.terminal.keys import INTERRUPTS, bytes_of, typed

OTHERS = frozenset({"fish", "zsh"})
"""Shells with a language of their own."""
QUIET, SETTLED_WITHIN = 0.3, 3.0
"""Seconds until the screen is shown: without a change of it, and at most."""


class SendKeysParams(Params):
    target: str = Field(default="", description="The run_id of `bash` with `terminal`.")
    session: SkipJsonSchema[str | None] = None
    pane: SkipJsonSchema[str | None] = None
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


class _Aim(Struct, frozen=True):
    """What is decided about: it must still be so when the keys are sent."""

    foreground: Foreground
    pending: str | None


class SendKeys(Tool[SendKeysParams]):
    name = "send_keys"
    verbatim = True
    aliases = ("send-keys", "write_terminal", "tmux_send_keys")
    kind = "execute"

    def describe(self, params: SendKeysParams, roots: Roots) -> Description:
        parts = [params.literal_text.rstrip("\n")] if params.literal_text.strip() else []
        parts += [*params.keys, *(["Enter"] if params.enter or params.literal_text.endswith("\n") else [])]
        into = ":".join(filter(None, (params.session, params.pane)))
        return Description(f"Type {' '.join(parts) or 'nothing'}{f' into {into}' if into else ''}")

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
        name, command, terminal = terminal_of(params.target, params.session, params.pane, ctx, types=True)
        aim = _Aim(terminal.foreground(), terminal.pending)
        shared = not ctx.shell.runs.knows(params.target)
        if shared and aim.foreground.prompts and (ends := ends_shell(f"{aim.pending or ''}{params.literal_text}")):
            words = f"Nothing was typed: `{ends}` would end the shell of the pane, which others share."
            raise ToolError(words, "invalid_parameters", suggestion="Put it into a sub-shell: `( … )`.")
        return Preview(state=aim, accesses=tuple(self._accesses(params, name, command, aim)))

    def _accesses(self, params: SendKeysParams, name: str, command: Command, aim: _Aim) -> Iterable[Access]:
        foreground, pending = aim.foreground, aim.pending
        program, folder = foreground.program or "a program", foreground.folder or command.cwd
        if params.interrupts:
            yield NoAccess()
            return
        keys = bytes_of(params.keys, application=False).decode().replace("\r", "\n")
        line = f"{pending or ''}{params.literal_text}{keys}".strip("\n")
        if line.strip() and (foreground.prompts or foreground.behind):  # A shell gets what a program leaves unread.
            claim = Claim(params.risk, params.mutation, params.privesc, params.why)
            yield ExecuteAccess(line, folder, command.confined, claim if foreground.prompts else None)
        if not foreground.prompts:
            words = f"what is typed into {program} in this terminal"
            yield ToolAccess(f"keys {program} {name}", words)
        elif why := self._unclear(params, aim, line):
            yield ToolAccess(f"keys {program}", f"keys for the line of {program}: {why}", once=True)
        elif not line.strip():
            yield NoAccess()

    def _unclear(self, params: SendKeysParams, aim: _Aim, line: str) -> str:
        """Why the shell in front may do something else than run this line; empty if it does not."""
        if aim.foreground.program in OTHERS:
            return "another language than that in which lines are judged"
        if aim.pending is None or params.keys:
            return "what stands there is not known whole"
        return not_alone(line) if params.submits else "it is not a whole line"

    async def run(self, params: SendKeysParams, ctx: ToolContext, preview: Preview) -> ToolResult:
        assert isinstance(preview.state, _Aim) and isinstance(params.delay, float)
        await anyio.sleep(params.delay)
        _, command, terminal = terminal_of(params.target, params.session, params.pane, ctx, types=True)
        if not params.interrupts and _Aim(terminal.foreground(), terminal.pending) != preview.state:
            raise ToolError(
                "Nothing was typed: another program has come to the front meanwhile, which would have got it.",
                suggestion="Look with `capture_pane` and decide again.",
            )
        data = typed(params.literal_text).encode() + bytes_of(params.keys, application=terminal.application_keys)
        now = self._pending(params, terminal.pending, interrupts=terminal.interrupts)
        terminal.pending = now if preview.state.foreground.prompts else ""
        try:
            await terminal.type(data + (b"\r" if params.enter else b""))
        except ExecutorError as error:
            raise ToolError(f"Not everything was typed: {error}.") from error
        await terminal.settled(QUIET, SETTLED_WITHIN)
        return screen(terminal, command, ctx)

    def _pending(self, params: SendKeysParams, pending: str | None, *, interrupts: bool) -> str | None:
        """What stands in the shell's line afterwards. `interrupts`: whether `^C` empties it."""
        if params.interrupts and interrupts:
            return ""
        if params.submits:
            return "" if pending is not None and not not_alone(f"{pending}{params.literal_text}") else None
        known = pending is not None and not params.keys and not has_keys(params.literal_text)
        return f"{pending}{params.literal_text}" if known else None
