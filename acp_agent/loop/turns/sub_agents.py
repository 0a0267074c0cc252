"""Sub-agents: a prompt, a history and a set of tools of their own, inside one tool call.

The calls of a sub-agent appear in the client below the call that made it (`_meta.claudeCode.parentToolUseId`); what it
says goes to the model that asked for it, not to the person. The card of the call shows one line: what it does now.
Cancelling the call ends all of it: it runs in the call's own task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from acp_agent.errors import ProviderError, ToolError
from acp_agent.llm.base import (
    AssistantMessage,
    Message,
    ModelSettings,
    Provider,
    TextPart,
    ToolDefinition,
    UsageReport,
    UserMessage,
)
from acp_agent.loop.calls.repeats import RepeatedFailures
from acp_agent.loop.calls.reports import Call, Parent, Reports
from acp_agent.loop.calls.result_cache import ResultCache
from acp_agent.loop.calls.runner import Surroundings, ToolRunner
from acp_agent.loop.memory.compaction import Compacted
from acp_agent.loop.memory.history import History
from acp_agent.loop.memory.room import Asked, Room
from acp_agent.loop.turns.turn import run_turn
from acp_agent.loop.turns.turn_host import PlainCleaner
from acp_agent.schema.acp import SessionUpdate, StopReason, ToolCall
from acp_agent.tools.kit.registry import ToolEntry
from acp_agent.tools.kit.tool_context import Task, ToolContext, ToolResult

NOT_FOR_SUB_AGENTS = frozenset(("plan", "ask_user", "switch_mode", "schedule_add", "schedule_remove"))
"""What belongs to the conversation with the person."""

INSTRUCTIONS = """
You are a sub-agent: another agent gave you one task and reads only your last message. Do the task with your tools, then
answer with what it needs to know: findings with paths and lines, what you changed, what you could not do. Nobody can be
asked anything.
"""

ENDINGS: dict[StopReason, str] = {
    "max_turn_requests": "[the sub-agent was stopped by its limit before it was done; this is what it last said]",
    "max_tokens": "[the sub-agent's answer was cut short: its context or answer was full]",
    "refusal": "[the sub-agent refused the task]",
}


@dataclass(frozen=True)
class Own:
    """What a sub-agent does not share with its session."""

    context: Callable[..., ToolContext]
    """Its tools get a shell of its own, and what it has read."""
    instructions: Callable[[Sequence[Path]], str]
    """What it has not been told of folders yet."""
    cache: ResultCache
    """What it has not been given is not "unchanged" for it."""


@dataclass(frozen=True, kw_only=True)
class SubAgents:
    """Makes sub-agents below one level of a session."""

    around: Callable[[], Surroundings]
    provider: Callable[[], tuple[Provider, ModelSettings, int | None]]
    """The model of the turn, its settings, and its context window if that is known."""
    depth: int = 0
    """How many levels are above them."""
    max_depth: int
    doom_loop: int
    room: Callable[[], Room]
    """Makes what sees to it that its requests fit."""
    redact: Callable[[Message], Message]
    repeated_failures: int
    definitions: Callable[[Sequence[ToolEntry]], Sequence[ToolDefinition]]
    """The form in which tools are sent."""
    entries: Callable[[], Sequence[ToolEntry]]
    """The tools that are offered one level above."""
    own: Callable[[str], Own]
    """Makes, for a call's id, what its sub-agent has for itself."""

    async def run(self, parent: Parent, reports: Reports, call: Call, task: Task) -> ToolResult:
        """One task to its end. Raises ToolError where it could not be begun or the model failed."""
        if self.depth >= self.max_depth:
            raise ToolError(
                f"Sub-agents may stand {self.max_depth} deep and not deeper. Do the task yourself.", "policy_blocked"
            )
        allowed = self._allowed(task)
        around = self.around()
        calls = 0

        def entries() -> list[ToolEntry]:
            return [entry for entry in self.entries() if entry.name in allowed]

        def emit(update: SessionUpdate, *, keep: bool = True, clean: bool = False) -> None:
            nonlocal calls
            around.host.emit(update, keep=keep, clean=clean)
            if isinstance(update, ToolCall):
                calls += 1
                reports.say(call, f"{calls}. {update.title}")

        def offers(entry: ToolEntry) -> str | None:
            if entry.name not in allowed:
                return f"`{entry.name}` is not among the tools of this sub-agent."
            return around.offers(entry)

        own = self.own(call.id)
        below = replace(
            around,
            reports=reports.below(emit, parent),
            context=own.context,
            instructions=own.instructions,
            cache=own.cache,
            offers=offers,
            names=lambda: [entry.name for entry in entries()],
            failures=RepeatedFailures(self.repeated_failures),
            delegate=self._deeper(entries).run,
        )
        provider, settings, window = self.provider()
        host = _SubHost(
            settings=_sub_settings(settings),
            tools=lambda: self.definitions(entries()),
            window=window,
            room=self.room(),
            redact=self.redact,
        )
        host.add(UserMessage((TextPart(task.prompt),)))
        try:
            reason = await run_turn(
                provider,
                host,
                ToolRunner(below).run_all,
                max_iterations=task.max_iterations,
                doom_loop=self.doom_loop,
            )
        except ProviderError as error:
            category = {"rate_limit": "rate_limited", "network": "network_error", "timeout": "timeout"}
            raise ToolError(
                f"The sub-agent's model failed: {error}",
                category.get(error.kind, "server_error" if error.retryable else "permanent_failure"),  # type: ignore[arg-type]
            ) from error
        text = "\n\n".join(part for part in (host.last_words(), ENDINGS.get(reason, ""), *host.said) if part)
        return ToolResult(text or "[the sub-agent said nothing]", failed=reason in ENDINGS)

    def _deeper(self, entries: Callable[[], Sequence[ToolEntry]]) -> SubAgents:
        """What the sub-agent itself may delegate: never more than it has."""
        return replace(self, depth=self.depth + 1, entries=entries)

    def _allowed(self, task: Task) -> frozenset[str]:
        offered = [entry for entry in self.entries() if entry.name not in NOT_FOR_SUB_AGENTS]
        if self.depth + 1 >= self.max_depth:
            offered = [entry for entry in offered if entry.name != "delegate"]
        if task.tools is None:
            return frozenset(entry.name for entry in offered)
        known = {name: entry.name for entry in offered for name in (entry.name, *entry.aliases)}
        wrong = [name for name in task.tools if name not in known]
        if wrong:
            names = ", ".join(dict.fromkeys(known.values()))
            raise ToolError(
                f"A sub-agent cannot have the tools {', '.join(wrong)}. It can have: {names}.", "invalid_parameters"
            )
        return frozenset(known[name] for name in task.tools)


def _sub_settings(settings: ModelSettings) -> ModelSettings:
    """The settings of a sub-agent: told what it is, and with a prompt cache of its own."""
    return msgspec.structs.replace(
        settings,
        system=settings.system.rstrip() + "\n" + INSTRUCTIONS,
        cache_key=f"{settings.cache_key}-sub" if settings.cache_key else "",
    )


class _SubHost:
    """What `run_turn` sees of a sub-agent: nothing it says is shown, nothing is stored."""

    def __init__(
        self,
        *,
        settings: ModelSettings,
        tools: Callable[[], Sequence[ToolDefinition]],
        window: int | None,
        room: Room,
        redact: Callable[[Message], Message],
    ) -> None:
        self._history = History()
        self._settings = settings
        self._window = window
        self._room = room
        self._redact = redact
        self.said: list[str] = []
        self.tools = tools

    def messages(self) -> Sequence[Message]:
        return self._history.messages

    def add(self, message: Message, *, clean: bool = False) -> None:
        self._history.add(message if clean else self._redact(message))

    def undo_room(self) -> None:
        """It ends with the refusal."""

    def cleaner(self) -> PlainCleaner:
        """Nothing of it is shown."""
        return PlainCleaner()

    def emit(self, update: SessionUpdate) -> None:
        """Text and thoughts of a sub-agent are its own."""

    async def drain(self) -> None:
        """Nothing was sent."""

    def settings(self) -> ModelSettings:
        return self._settings

    @property
    def _asked(self) -> Asked:
        return Asked(self._settings.model, self._settings, self.tools(), self._window)

    def report_usage(self, usage: UsageReport | None, message: AssistantMessage) -> None:
        messages = self.messages()
        before = messages[:-1] if messages and isinstance(messages[-1], AssistantMessage) else messages
        self._room.counted(before, self._asked, 0 if usage is None else usage.input_tokens)

    async def make_room(self, refused: ProviderError | None = None) -> str | None:
        asked = self._asked
        if refused is not None:
            self._room.learn(refused, self.messages(), asked)
        return await self._room.fit(self, asked, lambda: None, forced=refused is not None)

    def begin(self) -> None:
        """Nobody watches."""

    def replace(self, done: Compacted, before: int, after: int) -> None:
        self._history.replace(done.messages)

    def gave_up(self, *, cancelled: bool = False) -> None:
        """Nobody watches."""

    def say(self, text: str) -> None:
        self.said.append(f"[{text}]")

    def last_words(self) -> str:
        """The last thing it said."""
        for message in reversed(self._history.messages):
            if isinstance(message, AssistantMessage) and message.text.strip():
                return message.text.strip()
        return ""
