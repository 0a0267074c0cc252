"""The permission gate: rules, remembered answers, and the question to the user.

The only place that turns a verdict into a question. An error, an unknown option or a malformed answer never counts as
approval. A remembered "always" answers an ask, never a deny.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from acp_agent.credentials.redactor import Redactor
from acp_agent.errors import AgentError, ConnectionClosed
from acp_agent.lazy import load
from acp_agent.legible import legible
from acp_agent.loop.calls.guard import Guard
from acp_agent.loop.choices import Choices
from acp_agent.loop.hooks.hooks import Hooks
from acp_agent.loop.judging import judged
from acp_agent.loop.modes import Mode
from acp_agent.protocol.client import Client
from acp_agent.safety.access import Allow, Ask, Deny, ModeAccess, Verdict
from acp_agent.safety.deciding.deciders import CallFacts, Judgement
from acp_agent.safety.deciding.subjects import touched
from acp_agent.schema import acp
from acp_agent.store.base import Decision, Permission
from acp_agent.store.session_store import SessionStore

if TYPE_CHECKING:
    from acp_agent.errors import ToolErrorCategory


log = logging.getLogger(__name__)

REJECTED = (
    "The user did not allow this call, and it was not run. Do not try to achieve the same in another way; continue "
    "without it, or say what you need and why."
)


PLAN_REJECTED = "The user did not approve the plan and keeps planning. Nothing may be changed yet."

COVERS = "acp_agent.loop.hooks.call_patterns:covers"
REVIEW = "acp_agent.loop.plan_review:review_plan"


class Permit(Struct, frozen=True):
    """The call may run."""

    mode: str = ""
    """For a plan: the mode in which the user wants it carried out."""
    asked: bool = False
    """Whether the user was asked, or hooks in their place."""


class Refused(Struct, frozen=True):
    """The call must not run; `reason` is for the model and the user."""

    reason: str
    category: ToolErrorCategory = "policy_blocked"
    ends_turn: bool = False
    """The user says more with the next prompt."""


WRITTEN_CALL = (
    "The model wrote this call in its answer instead of making it; it may only be showing it. If you allow it, such "
    "calls are treated like others in this session."
)

LEADS_ON = frozenset(("delegate",))
"""Tools that touch nothing themselves, but make a model call others."""

USED_UP = "The user let one call like this exceed a limit, and another has run already."

REJECTED_BY_PERSON = Refused(REJECTED, "confirmation_required")

UNCONFINED = "no sandbox works here, so nothing confines the command"
ONCE = "If you allow it, commands that need no other question run without a sandbox in this session."

ID_CHARS = 8

RULE_WORDS = "acp_agent.loop.calls.rule_words:rule_words"


class TurnCancelledByClient(Struct, frozen=True):
    """The client answered that the turn is being cancelled."""


class Gate:
    """Permissions of one session, remembered for its project.

    An answer about a command that contains a credential is not remembered, since answers are stored on disk.
    """

    def __init__(
        self,
        client: Client,
        store: SessionStore,
        choices: Choices,
        guard: Guard,
        redactor: Redactor,
        hooks: Hooks,
    ) -> None:
        self.guard = guard
        self._hooks = hooks
        self._redactor = redactor
        self._client = client
        self._store = store
        self._choices = choices
        self._project = guard.project
        self.allowed: tuple[str, tuple[str, ...]] = ("", ())
        """The written command of the turn, and the calls that it allows."""
        self._writes_calls = False
        """Whether the user has allowed a call that the model wrote as text: it calls tools in that way."""
        self._runs_unconfined = False
        """Whether the user has allowed a command although no sandbox works."""

    def _needs_word(self, facts: CallFacts) -> bool:
        """Whether the user has to know first that the command runs without a sandbox."""
        return not self._runs_unconfined and self.guard.lacks_sandbox(facts)

    async def permit(self, facts: CallFacts, call: acp.ToolCallUpdate) -> Permit | Refused | TurnCancelledByClient:
        """Whether a call may run; `call` is shown with the question, if there is one. Always logged."""
        mode, decision = await self._decided(facts)
        verdict: Verdict = decision.verdict
        if isinstance(verdict, Ask):
            ask = self.guard.placed(facts, verdict)
            verdict = await self._remembered(ask, mode, facts, written=facts.written)
            if isinstance(verdict, Allow) and ask.changes and self._needs_word(facts):
                reason = f"{ask.reason}; {UNCONFINED}"
                verdict = msgspec.structs.replace(ask, reason=reason, every_time=True, notes=(*ask.notes, ONCE))
            elif isinstance(verdict, Allow) and ask.changes and (link := self.guard.exposed_link(facts)) is not None:
                reason = (
                    f"{ask.reason}; it could replace the link {link}, through which the agent's own files are found"
                )
                verdict = msgspec.structs.replace(ask, reason=reason, every_time=True)
        elif isinstance(verdict, Allow) and facts.tool in LEADS_ON and self._is_new(facts, mode):
            reason = "it starts a sub-agent, whose calls are not asked about in this mode"
            verdict = Ask(reason, (), "", changes=False, every_time=True, notes=(WRITTEN_CALL,))
        match verdict:
            case Allow(rule):
                return await self._written(Permit(), facts, decision, "allow", rule)
            case Deny(reason, rule):
                if verdict.approvable:
                    reason += (
                        f" To allow it, they can send `/approve {facts.call_id[:ID_CHARS]}`, then make the call again."
                    )
                return await self._written(Refused(reason), facts, decision, "deny", rule, verdict.reason)
            case Ask():
                by_hooks = await self._by_hooks(verdict, facts, decision)
                answer = by_hooks or await self._asked(verdict, facts, decision, call)
                return msgspec.structs.replace(answer, asked=True) if isinstance(answer, Permit) else answer

    async def _by_hooks(self, ask: Ask, facts: CallFacts, decision: Judgement) -> Permit | Refused | None:
        """The answer of the hooks that are asked before the user is; `None` if the user is to be."""
        deciding, roots = self._hooks.deciding, self.guard.deciders.roots
        if deciding is None or any(isinstance(access, ModeAccess) for access in facts.accesses):
            return None
        spellings = await judged(roots, partial(touched, facts, roots))
        done = await deciding.permission_request(facts, spellings)
        said = done.said
        if said is not None and said.effect == "deny":
            refused = Refused(said.denial, ends_turn=done.stops is not None)
            return await self._written(refused, facts, decision, "deny", said.rule, ask.reason)
        if said is not None and said.effect == "allow" and not (ask.every_time or ask.by_person):
            answer = self._as_the_mode_is(Permit(), ask)
            outcome = "allow" if isinstance(answer, Permit) else "deny"
            return await self._written(answer, facts, decision, outcome, said.rule, ask.reason)
        return None

    async def known(self, facts: CallFacts) -> Permit | Refused | None:
        """The answer where no question is needed, logged; else `None`."""
        mode, decision = await self._decided(facts)
        verdict: Verdict = decision.verdict
        if isinstance(verdict, Ask):
            verdict = await self._remembered(self.guard.placed(facts, verdict), mode, facts, written=False)
        match verdict:
            case Allow(rule):
                return await self._written(Permit(), facts, decision, "allow", rule)
            case Deny(reason, rule):
                return await self._written(Refused(reason), facts, decision, "deny", rule, verdict.reason)
        return None

    async def _decided(self, facts: CallFacts) -> tuple[Mode, Judgement]:
        """In the mode that the user chose last, also while it was decided."""
        while True:
            mode = self._choices.mode()
            decision = await self.guard.decide(facts, mode)
            if mode == self._choices.mode():
                return mode, decision

    def _is_new(self, facts: CallFacts, mode: Mode) -> bool:
        """Whether the model may only be showing the call."""
        return facts.written and not mode.asks and not self._writes_calls

    async def _asked(
        self, ask: Ask, facts: CallFacts, decision: Judgement, call: acp.ToolCallUpdate
    ) -> Permit | Refused | TurnCancelledByClient:
        leaves = any(isinstance(access, ModeAccess) for access in facts.accesses)
        answer = await (self._review(call) if leaves else self._ask(ask, call))
        if isinstance(answer, TurnCancelledByClient):
            await self.guard.decided(facts, decision, "cancelled", ask.rule, ask.reason)
            return answer
        allowed = isinstance(answer, Permit)
        if not ask.every_time and (allowed or answer == REJECTED_BY_PERSON):
            self.guard.answered(facts.tool, ask.scopes, allowed=allowed)
        self._writes_calls = self._writes_calls or (allowed and facts.written)
        self._runs_unconfined = self._runs_unconfined or (allowed and UNCONFINED in ask.reason)
        if allowed:
            answer = self._as_the_mode_is(answer, ask)
        said = "allowed_by_person" if isinstance(answer, Permit) else "rejected_by_person"
        return await self._written(answer, facts, decision, said, ask.rule, ask.reason)

    def _as_the_mode_is(self, answer: Permit | Refused, ask: Ask) -> Permit | Refused:
        """Whether the user decided otherwise: the mode that they chose in the meantime is read-only."""
        if not ask.changes or (mode := self._choices.mode()).changes:
            return answer
        return Refused(f"The mode is now `{mode.id}`, which is read-only. It was not run.")

    async def remembered(self) -> Sequence[Permission]:
        """The answers that are remembered for the project."""
        return await self._store.do(self._store.permissions, self._project)

    async def revoke(self, number: int) -> bool:
        """Forgets a remembered answer; False if there is none with that number."""
        return await self._store.do(self._store.revoke, self._project, number)

    async def _written(
        self,
        answer: Permit | Refused,
        facts: CallFacts,
        decision: Judgement,
        outcome: str,
        rule: str,
        reason: str = "",
    ) -> Permit | Refused:
        uses = isinstance(answer, Permit) and decision.approved
        if uses and not self.guard.approvals.take(facts.tool, facts.arguments, decision.approved):
            answer, outcome, reason = Refused(USED_UP), "deny", USED_UP
        if await self.guard.decided(facts, decision, outcome, rule, reason) or isinstance(answer, Refused):
            return answer
        return Refused("The call could not be written to the audit log, which is required, so it was not run.")

    async def _remembered(self, ask: Ask, mode: Mode, facts: CallFacts, *, written: bool) -> Verdict:
        if ask.every_time:
            return ask
        known = await self._store.known_permissions(self._project)
        answers = {answer.scope: answer.decision for answer in known}
        answers = _with_wider(ask, answers)
        if any(answers.get(scope) == "reject" for scope in ask.scopes):
            words = f"The user chose never to allow {ask.scope_words} (see /permissions). It was not run."
            return Deny(words, "a remembered answer")
        if ask.scopes and all(answers.get(scope) == "allow" for scope in ask.scopes):
            return Allow("a remembered answer")
        if facts.hooked is not None and facts.hooked.effect == "allow" and not ask.by_person:
            return Allow(facts.hooked.rule)
        command, allowed = self.allowed
        if allowed and not ask.by_person and await self._covers(allowed, facts):
            return Allow(f"command /{command}")
        if mode.asks or ask.by_person:
            return ask
        if written and ask.changes and not self._writes_calls:
            return msgspec.structs.replace(ask, notes=(*ask.notes, WRITTEN_CALL))
        return Allow(f"mode {mode.id}")

    async def _covers(self, allowed: Sequence[str], facts: CallFacts) -> bool:
        """Whether one of these, as a written command names calls, covers the call."""
        roots = self.guard.deciders.roots
        return any([await judged(roots, partial(load(COVERS), each, facts, roots)) for each in allowed])

    async def _ask(self, ask: Ask, call: acp.ToolCallUpdate) -> Permit | Refused | TurnCancelledByClient:
        scope = legible(ask.scope_words)
        options = [
            acp.PermissionOption(option_id="allow_once", name="Allow once", kind="allow_once"),
            acp.PermissionOption(option_id="allow_always", name=f"Always allow {scope}", kind="allow_always"),
            acp.PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
            acp.PermissionOption(option_id="reject_always", name=f"Never allow {scope}", kind="reject_always"),
        ]
        if ask.wider is not None:
            words = f"Always allow {ask.wider[1]}"
            options.insert(2, acp.PermissionOption(option_id="allow_wider", name=words, kind="allow_always"))
        if self._only_once(ask):
            options = [option for option in options if option.kind in ("allow_once", "reject_once")]
        try:
            answer = await self._client.request_permission(_explained(call, ask), options)
        except ConnectionClosed:
            raise
        except AgentError as error:
            log.warning("the permission request failed: %s", error)
            return Refused(f"The editor could not ask the user for permission ({error}), so the call was not run.")
        return await self._take(answer, ask)

    async def _review(self, call: acp.ToolCallUpdate) -> Permit | Refused | TurnCancelledByClient:
        """Puts the plan that `call` shows before the user."""
        try:
            review = await load(REVIEW)(self._client, call)
        except ConnectionClosed:
            raise
        except AgentError as error:
            log.warning("the plan could not be reviewed: %s", error)
            return Refused(f"The editor could not show the plan to the user ({error}), so the mode stays.")
        if review.cancelled:
            return TurnCancelledByClient()
        if review.mode is not None:
            return Permit(review.mode)
        words = f" Their words:\n{review.words}" if review.words else " They will say what should be different."
        return Refused(f"{PLAN_REJECTED}{words}", "confirmation_required", ends_turn=not review.words)

    def _only_once(self, ask: Ask) -> bool:
        return ask.every_time or any(self._redactor.redact(scope) != scope for scope in ask.scopes)

    async def _take(self, answer: acp.RequestPermissionResponse, ask: Ask) -> Permit | Refused | TurnCancelledByClient:
        match answer.outcome:
            case acp.CancelledPermissionOutcome():
                return TurnCancelledByClient()
            case acp.SelectedPermissionOutcome(option_id="allow_once"):
                return Permit()
            case acp.SelectedPermissionOutcome(option_id="allow_always") if not self._only_once(ask):
                await self._remember(ask, "allow")
                return Permit()
            case acp.SelectedPermissionOutcome(option_id="allow_wider") if ask.wider and not self._only_once(ask):
                await self._remember(msgspec.structs.replace(ask, scopes=(ask.wider[0],)), "allow")
                return Permit()
            case acp.SelectedPermissionOutcome(option_id="reject_always") if not self._only_once(ask):
                await self._remember(ask, "reject")
                return REJECTED_BY_PERSON
            case acp.SelectedPermissionOutcome(option_id="reject_once"):
                return REJECTED_BY_PERSON
            case acp.SelectedPermissionOutcome(option_id=unknown):
                return Refused(f"The editor answered the permission request with an unknown option ({unknown!r}).")
        return Refused("The editor's answer to the permission request was not understood.")

    async def _remember(self, ask: Ask, decision: Decision) -> None:
        for scope in ask.scopes:
            await self._store.do(self._store.remember, self._project, scope.split(" ", 1)[0], scope, decision)


def _with_wider(ask: Ask, answers: Mapping[str, Decision]) -> dict[str, Decision]:
    """The answers, with what those about more mean for the ask's scopes: the wider scope, and for a request that only
    reads, what was said about sending to the same host."""
    found = dict(answers)
    for scope in ask.scopes:
        wider = [ask.wider[0]] if ask.wider is not None else []
        wider += [scope.replace("fetch", "send", 1)] if scope.startswith("fetch = ") else []
        said = next((answers[other] for other in wider if other in answers), None)
        if scope not in found and said is not None:
            found[scope] = said
    return found


def _explained(call: acp.ToolCallUpdate, ask: Ask) -> acp.ToolCallUpdate:
    """The call with the reason for the question, the risk and the rule that asks."""
    lines = [f"Asked because {ask.reason}.", *ask.notes]
    lines += [load(RULE_WORDS)(ask.rule)] if ask.rule else []
    text = acp.Content(content=acp.TextContent(text=legible("\n\n".join(lines))))
    shown = call.content if isinstance(call.content, list) else []
    meta = call.meta if isinstance(call.meta, dict) else {}
    asked = {"reason": ask.reason, "rule": ask.rule}
    return msgspec.structs.replace(call, content=[*shown, text], meta={**meta, "asked": asked})
