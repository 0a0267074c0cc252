"""Hooks that decide: who is asked about an event, in which order, and what their answers come to.

The hooks of an event are asked one after the other, the user's first; where none can refuse (`AT_ONCE`), at once. The
first `deny` counts; else an `ask`; else an `allow`, if the hook's `frees` is set. One that fails counts as `ask` where
it was to decide. An input that a hook changes is what the hooks behind it see, and those before it are asked about it
once more.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
from msgspec import Struct
from msgspec.structs import replace

from acp_agent.config.safety_settings import DecidingHook, HookEvent
from acp_agent.errors import HookFailed
from acp_agent.linear import MAX_PATTERN_CHARS, Pattern, PatternError, compiled
from acp_agent.loop.hooks.hook_names import in_our_names, in_their_form, their_names
from acp_agent.loop.hooks.hook_protocol import HookAnswer
from acp_agent.loop.hooks.hook_runner import HookRunner
from acp_agent.safety.deciding.subjects import CallFacts, SaidByHook
from acp_agent.safety.globs import matches

log = logging.getLogger(__name__)

ALL = frozenset(("", "*"))
MAX_TROUBLE = 300
"""Characters of what went wrong that are told."""
MAX_REASON = 2_000
ASK_IF_BROKEN: frozenset[HookEvent] = frozenset(("PreToolUse", "PermissionRequest", "UserPromptSubmit", "PreCompact"))
"""Events where the user decides if a hook fails."""
AT_ONCE: frozenset[HookEvent] = frozenset(("SessionStart", "SessionEnd", "SubagentStart", "Notification"))
"""Events whose hooks run at once. Those of PostToolUse do not: they may change the files that the next one reads."""
MOST_AT_ONCE = 8
CHANGED_BACK = "hooks disagree about the input of the call"

Spellings = Sequence[str] | None
"""What a call touches, as patterns are compared with it; `None`: it may be anything."""
Touched = Callable[[dict[str, Any]], Awaitable[Spellings]]
"""That of a call with these arguments. Raises HookFailed if there can be no such call."""


class Decided(Struct):
    """What the hooks of one event said."""

    said: SaidByHook | None = None
    arguments: dict[str, Any] | None = None
    """The changed input of a call, with our names."""
    context: list[str] = []
    """For the model."""
    stops: str | None = None
    """Why the turn is to end; `None` if it is not."""

    @property
    def denied(self) -> bool:
        return self.said is not None and self.said.effect == "deny"


class DecidingHooks:
    """Of one session."""

    def __init__(
        self,
        hooks: Sequence[DecidingHook],
        runner: HookRunner,
        about: Callable[[], Mapping[str, Any]],
        *,
        clean: Callable[[str], str],
        tell: Callable[[str], None],
        note: Callable[..., None],
        max_context: int,
    ) -> None:
        """`about`: what every hook is told. `clean` redacts, `tell` tells the user, `note` writes to the audit log."""
        self.trouble: list[str] = []
        self._matchers: dict[str, Pattern] = {}
        self._broken: dict[int, str] = {}
        self._hooks = [hook for hook in hooks if self._can_be_asked(hook)]
        self._runner = runner
        self._about = about
        self._clean = clean
        self._tell = tell
        self._note = note
        self._max_context = max_context
        self._reported: set[str] = set()
        self.starts = ""
        """As `source` of SessionStart, if its hooks are to be asked before the next prompt."""

    def _can_be_asked(self, hook: DecidingHook) -> bool:
        """One that is not written well stays, so that it is asked instead of ignored where it decides."""
        wrong = ""
        if bool(hook.command.strip()) == bool(hook.url):
            wrong = "it needs either `command` or `url`"
        elif hook.url and not hook.url.startswith(("https://", "http://")):
            wrong = "`url` is not one of http or https"
        if hook.matcher not in ALL:
            try:
                if len(hook.matcher) > MAX_PATTERN_CHARS:
                    raise PatternError(f"more than {MAX_PATTERN_CHARS} characters")
                self._matchers[hook.matcher] = compiled(hook.matcher)
            except PatternError as error:
                wrong = f"`matcher` is not a regular expression: {error}"
        if wrong:
            self._broken[id(hook)] = wrong
            self.trouble.append(f"The hook `{hook.called or hook.event}` ({hook.event}) cannot be used: {wrong}.")
        return not wrong or hook.event in ASK_IF_BROKEN

    def any(self, *events: HookEvent) -> bool:
        return any(hook.event in events for hook in self._hooks)

    @property
    def of_calls(self) -> bool:
        return self.any("PreToolUse", "PostToolUse")

    def lines(self) -> list[str]:
        """One for each hook."""
        return [
            f"{hook.event}{f' `{hook.matcher}`' if hook.matcher not in ALL else ''}"
            f"{f' touching `{hook.pattern}`' if hook.pattern else ''}: `{hook.called}`"
            f"{f', cannot be used: {wrong}' if (wrong := self._broken.get(id(hook))) else ''}"
            for hook in self._hooks
        ]

    # --- events of calls --------------------------------------------------------------------------------------

    async def pre_tool_use(self, call: CallFacts, touched: Touched) -> Decided:
        """Before a call is judged; what it accesses need not be known."""
        done = Decided()
        before = await self._round(call, touched, done, self._of("PreToolUse"), may_change=True)
        if before and not done.denied:
            assert done.arguments is not None
            await self._round(replace(call, arguments=done.arguments), touched, done, before, may_change=False)
        return done

    async def _round(
        self, call: CallFacts, touched: Touched, done: Decided, hooks: Sequence[DecidingHook], *, may_change: bool
    ) -> Sequence[DecidingHook]:
        """Asks `hooks` about a call; returns those that have not seen the input that it has afterwards."""
        unseen: Sequence[DecidingHook] = ()
        tool, about = call.tool, {"tool": call.tool, "call_id": call.call_id}
        spellings = await touched(dict(call.arguments))
        for number, hook in enumerate(hooks):
            if not self._meant(hook, _names(call), spellings):
                continue
            answer = await self._asked(hook, self._told(call), **about)
            self._take(hook, answer, done)
            if done.denied:
                return ()
            if answer.changed is None:
                continue
            changed = in_our_names(tool, answer.changed)
            if changed == call.arguments or in_their_form(tool, changed, self._cwd) == in_their_form(
                tool, call.arguments, self._cwd
            ):
                continue
            try:
                if not may_change:
                    raise HookFailed(CHANGED_BACK)
                spellings = await touched(changed)
            except HookFailed as error:
                self._take(hook, self._failure(hook, str(error), **about), done)
                continue
            call, done.arguments = replace(call, arguments=changed), changed
            unseen = hooks[:number]
            if done.said is not None and done.said.effect == "allow":
                done.said = None  # Of another input.
                self._take(hook, HookAnswer(answer.effect, answer.reason), done)
        return unseen

    async def post_tool_use(self, call: CallFacts, response: Mapping[str, Any], spellings: Spellings) -> Decided:
        """After a call that ran."""
        done = Decided()
        facts = {**self._told(call), "tool_response": response}
        for hook in self._of("PostToolUse"):
            if self._meant(hook, _names(call), spellings):
                answer = await self._asked(hook, facts, tool=call.tool, call_id=call.call_id)
                if answer.effect == "deny" and answer.reason:
                    done.context.append(self._bounded(f"[The hook {hook.called} objects: {answer.reason}]"))
                self._take(hook, HookAnswer("", "", None, answer.context, answer.message, answer.stops), done)
        return done

    async def permission_request(self, call: CallFacts, spellings: Spellings) -> Decided:
        """Before the user is asked about a call."""
        about = {"tool": call.tool, "call_id": call.call_id}
        return await self._all("PermissionRequest", _names(call), spellings, self._told(call), **about)

    # --- other events -----------------------------------------------------------------------------------------

    async def tell(self, event: HookEvent, kind: str = "", **facts: Any) -> Decided:
        """Asks the hooks of an event that is not about a call. `kind`: what their matchers are compared with."""
        return await self._all(event, (kind,), (), facts)

    async def _all(
        self, event: HookEvent, names: Sequence[str], spellings: Spellings, facts: Mapping[str, Any], **about: str
    ) -> Decided:
        """Asks the hooks of an event, until one denies; their answers count in the order of the configuration."""
        done = Decided()
        meant = [hook for hook in self._of(event) if self._meant(hook, names, spellings)]
        said: dict[int, HookAnswer | HookFailed] = {}
        places = anyio.CapacityLimiter(MOST_AT_ONCE)

        async def ask(number: int, hook: DecidingHook) -> None:
            async with places:
                said[number] = await self._said(hook, facts)

        async with anyio.create_task_group() as tasks:
            for each in enumerate(meant if event in AT_ONCE else ()):
                tasks.start_soon(ask, *each)
        for number, hook in enumerate(meant):
            self._take(hook, self._heard(hook, said.get(number) or await self._said(hook, facts), **about), done)
            if done.denied:
                break
        return done

    # --- one hook ---------------------------------------------------------------------------------------------

    def _of(self, event: HookEvent) -> list[DecidingHook]:
        return [hook for hook in self._hooks if hook.event == event]

    def _meant(self, hook: DecidingHook, names: Sequence[str], spellings: Spellings) -> bool:
        pattern = self._matchers.get(hook.matcher)
        named = pattern is None or any(pattern.fullmatch(name) for name in names)
        touched = spellings is None or not hook.pattern or any(matches(hook.pattern, text) for text in spellings)
        return named and touched

    @property
    def _cwd(self) -> str:
        return str(self._runner.cwd)

    def _told(self, call: CallFacts) -> dict[str, Any]:
        """What hooks are told of a call."""
        return {
            "tool_name": next(iter(their_names(call.tool, call.arguments)), call.tool),
            "tool_input": in_their_form(call.tool, call.arguments, self._cwd),
            "tool_use_id": call.call_id,
            **call.agent,
        }

    async def _asked(self, hook: DecidingHook, facts: Mapping[str, Any], **about: str) -> HookAnswer:
        return self._heard(hook, await self._said(hook, facts), **about)

    async def _said(self, hook: DecidingHook, facts: Mapping[str, Any]) -> HookAnswer | HookFailed:
        try:
            if (wrong := self._broken.get(id(hook))) is not None:
                raise HookFailed(wrong)
            return await self._runner.run(hook, {**self._about(), "hook_event_name": hook.event, **facts})
        except HookFailed as error:
            return error

    def _heard(self, hook: DecidingHook, answer: HookAnswer | HookFailed, **about: str) -> HookAnswer:
        """Notes what a hook said, or that it failed."""
        if isinstance(answer, HookFailed):
            return self._failure(hook, str(answer), **about)
        if answer.effect or answer.changed is not None or answer.stops is not None:
            words = answer.effect or ("changed the input" if answer.changed is not None else "ends the turn")
            reason = f": {answer.reason}" if answer.reason else ""
            self._note(self._short(f"hook {hook.called} ({hook.event}): {words}{reason}"), **about)
        return answer

    def _failure(self, hook: DecidingHook, trouble: str, **about: str) -> HookAnswer:
        """Logs it every time, tells the user the first time."""
        trouble = " ".join(self._clean(trouble).split())[:MAX_TROUBLE]
        text = f"The hook `{hook.called}` ({hook.event}) failed: {trouble}"
        log.warning("%s", text)
        self._note(text, **about)
        if text not in self._reported:
            self._reported.add(text)
            self._tell(f"{text}.")
        return HookAnswer("ask", f"it failed: {trouble}") if hook.event in ASK_IF_BROKEN else HookAnswer()

    def _take(self, hook: DecidingHook, answer: HookAnswer, done: Decided) -> None:
        """Adds an answer to those before it."""
        if answer.message:
            self._tell(f"The hook `{hook.called}` says: {self._short(answer.message)}")
        if answer.context:
            done.context.append(self._bounded(f"[Added by the hook {hook.called}]\n{answer.context}"))
        if answer.stops is not None and done.stops is None:
            done.stops = self._short(answer.stops) or f"The hook `{hook.called}` ended the turn."
        effect = answer.effect
        strength = ("", "allow", "ask", "deny")
        if effect == "" or (effect == "allow" and not hook.frees):
            return
        if done.said is None or strength.index(effect) > strength.index(done.said.effect):
            done.said = SaidByHook(effect, self._short(answer.reason), hook.called)

    def _short(self, text: str) -> str:
        text = self._clean(text)
        return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…"

    def _bounded(self, text: str) -> str:
        text = self._clean(text)
        more = len(text) - self._max_context
        return text if more <= 0 else f"{text[: self._max_context]}\n[{more} more characters are left out]"


def _names(call: CallFacts) -> tuple[str, ...]:
    """What matchers are compared with: the tool by its name and by Claude Code's."""
    return (call.tool, *their_names(call.tool, call.arguments))
