"""Whether a call may run: rules, remembered answers, hooks, and the question to the user.

The only place that turns a verdict into a question. An error, an unknown option or a malformed answer never counts as
approval. A remembered "always" answers an ask, never a deny.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.config.load import Config
from acp_agent.credentials.redactor import Redactor
from acp_agent.disk import HERE
from acp_agent.errors import AgentError, ConnectionClosed, ExecutorError
from acp_agent.lazy import load
from acp_agent.legible import legible
from acp_agent.loop.calls.call_audit import CallAudit, Trajectories
from acp_agent.loop.choices import Choices
from acp_agent.loop.hooks.hooks import Hooks
from acp_agent.loop.journal import Journal
from acp_agent.loop.judging import judged
from acp_agent.loop.modes import Mode
from acp_agent.loop.shell.folder_sandbox import FolderSandbox
from acp_agent.protocol.client import Client
from acp_agent.safety.access import CONNECT, Allow, Ask, Deny, ExecuteAccess, ModeAccess, PathAccess, Verdict
from acp_agent.safety.deciding.approvals import Approvals
from acp_agent.safety.deciding.deciders import CallFacts, Deciders, Judgement
from acp_agent.safety.deciding.own_names import with_own_names
from acp_agent.safety.deciding.subjects import touched
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema import acp
from acp_agent.store.base import Decision, Permission
from acp_agent.store.session_store import SessionStore
from acp_agent.tools.kit.registry import SessionRegistry

if TYPE_CHECKING:
    from acp_agent.errors import ToolErrorCategory


log = logging.getLogger(__name__)

REJECTED = "The user did not allow this call, and it was not run."
INSTEAD = "They say what to do instead:"
MAX_REASON_CHARS = 4_000
"""Of what the user says instead."""

PLAN_REJECTED = "The user did not approve the plan and keeps planning."

COVERS = "acp_agent.loop.hooks.call_patterns:covers"
REVIEW = "acp_agent.loop.plan_review:review_plan"

WRITTEN_CALL = (
    "The model wrote this call in its answer instead of making it; it may only be showing it. If you allow it, such "
    "calls are treated like others in this session."
)

LEADS_ON = frozenset(("delegate",))
"""Tools that touch nothing themselves, but make a model call others."""

USED_UP = "The user let one call like this exceed a limit, and another has run already."

UNCONFINED = "no sandbox works here, so nothing confines the command"
ONCE = "If you allow it, commands that need no other question run without a sandbox in this session."

ID_CHARS = 8

ASKED_BECAUSE = "acp_agent.loop.calls.rule_words:asked_because"


class PermissionResult(Struct, frozen=True):
    """Whether a call may run, and what is logged of it."""

    allowed: bool
    reason: str = ""
    """Why not, for the model and the user."""
    category: ToolErrorCategory = "policy_blocked"
    ends_turn: bool = False
    """The user says more with the next prompt."""
    suggestion: str = ""
    shown: str = ""
    """These two as in `ToolError`."""
    cancelled: bool = False
    """The client answered that the turn is being cancelled."""
    mode: str = ""
    """For a plan: the mode in which the user wants it carried out."""
    asked: bool = False
    """Whether the user was asked, or hooks in their place."""
    outcome: str = ""
    """As in `AuditEntry`."""
    rule: str = ""
    logged: str = ""
    """The reason in the log."""


ALLOWED = PermissionResult(True)
CANCELLED = PermissionResult(False, "The turn was cancelled.", cancelled=True)
REJECTED_BY_PERSON = PermissionResult(
    False, REJECTED, "confirmation_required", shown="You did not allow this, so it was not run."
)


def refused(
    reason: str, category: ToolErrorCategory = "policy_blocked", *, ends_turn: bool = False
) -> PermissionResult:
    return PermissionResult(False, reason, category, ends_turn)


class Case(Struct):
    """A call that is decided about."""

    facts: CallFacts
    mode: Mode
    judgement: Judgement
    verdict: Verdict

    @property
    def ask(self) -> Ask:
        assert isinstance(self.verdict, Ask), "else it is settled"
        return self.verdict


class Permissions:
    """Of one project: its deciders, and the answers that are remembered for it.

    An answer about a command that contains a credential is not remembered, since answers are stored on disk.
    """

    def __init__(
        self,
        config: Config,
        roots: Roots,
        environ: Mapping[str, str],
        home: Path | None,
        registry: SessionRegistry,
        store: SessionStore,
        redactor: Redactor,
        journal: Journal,
        sandbox: FolderSandbox,
        client: Client,
        choices: Choices,
        hooks: Hooks,
    ) -> None:
        """`home`: the user's home folder where the roots are."""
        self.tools = tools = with_own_names(config.settings.tools, registry.own_name)
        self._registry = registry
        self.store = store
        self._redactor = redactor
        self._sandbox = sandbox
        self._client = client
        self._choices = choices
        self._hooks = hooks
        self.project = roots.project
        self.approvals = Approvals()
        learned = Trajectories(store.trajectories, self.project, tools)
        self.audit = CallAudit(config, tools, journal, sandbox, learned, redactor.redact)
        about = tools, roots, environ, home, config.origin_of, self.audit.blocks
        self.deciders = Deciders.from_config(*about, registry.knows)
        self.allowed: tuple[str, tuple[str, ...]] = ("", ())
        """The written command of the turn, and the calls that it allows."""
        self._remembers = config.settings.agent.remembered_answers
        """Whether what was always allowed is."""
        self._writes_calls = False
        """Whether the user has allowed a call that the model wrote as text: it calls tools in that way."""
        self._runs_unconfined = False
        """Whether the user has allowed a command although no sandbox works."""

    async def permit(self, facts: CallFacts, call: acp.ToolCallUpdate) -> PermissionResult:
        """Whether a call may run; `call` is shown with the question, if there is one. Always logged."""
        case = await self._decided(facts)
        result = await self._settled(case) or await self._by_hooks(case)
        return await self._recorded(case, result or await self._asked(case, call))

    async def known(self, facts: CallFacts) -> PermissionResult | None:
        """The answer where no question is needed, logged; else `None`."""
        case = await self._decided(facts)
        result = await self._settled(case)
        return None if result is None else await self._recorded(case, result)

    # --- the steps --------------------------------------------------------------------------------------------

    async def _decided(self, facts: CallFacts) -> Case:
        """By the deciders, in the mode that the user chose last, also while it was decided."""
        while True:
            mode = self._choices.mode()
            judgement = await self._judged(facts, mode)
            if mode == self._choices.mode():
                return Case(facts, mode, judgement, judgement.verdict)

    async def _settled(self, case: Case) -> PermissionResult | None:
        """By the rules and by what is remembered; `None` if somebody has to be asked (`case.ask`)."""
        facts, mode = case.facts, case.mode
        if isinstance(case.verdict, Ask):
            ask = self.placed(facts, case.verdict)
            case.verdict = await self._remembered(ask, mode, facts)
            if isinstance(case.verdict, Allow) and ask.changes:
                case.verdict = self._exposed(ask, facts) or case.verdict
        elif isinstance(case.verdict, Allow) and facts.tool in LEADS_ON and self._is_new(facts, mode):
            reason = "it starts a sub-agent, whose calls are not asked about in this mode"
            case.verdict = Ask(reason, (), "", changes=False, every_time=True, notes=(WRITTEN_CALL,))
        match case.verdict:
            case Allow(rule):
                return replace(ALLOWED, outcome="allow", rule=rule)
            case Deny(reason, rule) as deny:
                if deny.approvable:
                    send = f"`/approve {facts.call_id[:ID_CHARS]}`"
                    reason += f" To allow it, they can send {send}, then make the call again."
                return replace(refused(reason), outcome="deny", rule=rule, logged=deny.reason)
        return None

    async def _by_hooks(self, case: Case) -> PermissionResult | None:
        """The answer of the hooks that are asked before the user is; `None` if the user is to be."""
        deciding, roots, facts, ask = self._hooks.deciding, self.deciders.roots, case.facts, case.ask
        if deciding is None or any(isinstance(access, ModeAccess) for access in facts.accesses):
            return None
        spellings = await judged(roots, partial(touched, facts, roots))
        done = await deciding.permission_request(facts, spellings)
        said = done.said
        if said is not None and said.effect == "deny":
            result = refused(said.denial, ends_turn=done.stops is not None)
        elif said is not None and said.effect == "allow" and not (ask.every_time or ask.by_person):
            result = self._as_the_mode_is(ALLOWED, ask)
        else:
            return None
        outcome = "allow" if result.allowed else "deny"
        return replace(result, asked=result.allowed, outcome=outcome, rule=said.rule, logged=ask.reason)

    async def _asked(self, case: Case, call: acp.ToolCallUpdate) -> PermissionResult:
        """By the user."""
        facts, ask = case.facts, case.ask
        leaves = any(isinstance(access, ModeAccess) for access in facts.accesses)
        answer = await (self._review(call) if leaves else self._ask(ask, call))
        if answer.cancelled:
            return replace(answer, outcome="cancelled", rule=ask.rule, logged=ask.reason)
        allowed = answer.allowed
        if not ask.every_time and (allowed or (not leaves and answer.category == REJECTED_BY_PERSON.category)):
            self._count(facts.tool, ask.scopes, allowed=allowed)
        self._writes_calls = self._writes_calls or (allowed and facts.written)
        self._runs_unconfined = self._runs_unconfined or (allowed and UNCONFINED in ask.reason)
        if allowed:
            answer = self._as_the_mode_is(answer, ask)
        said = "allowed_by_person" if answer.allowed else "rejected_by_person"
        return replace(answer, asked=answer.allowed, outcome=said, rule=ask.rule, logged=ask.reason)

    async def _recorded(self, case: Case, result: PermissionResult) -> PermissionResult:
        """Logs it: what cannot be logged although it must be does not run."""
        facts, approved = case.facts, case.judgement.approved
        if result.allowed and approved and not self.approvals.take(facts.tool, facts.arguments, approved):
            result = replace(refused(USED_UP), outcome="deny", rule=result.rule, logged=USED_UP)
        written = await self.audit.decided(facts, case.judgement, result.outcome, result.rule, result.logged)
        if written or not result.allowed:
            return result
        return refused("The call could not be written to the audit log, which is required, so it was not run.")

    # --- deciding ---------------------------------------------------------------------------------------------

    async def _judged(self, call: CallFacts, mode: Mode) -> Judgement:
        journal = self.audit.journal
        if journal.audit.refuses and not await journal.written("notice", reason="tried again"):
            words = "The audit log is required and cannot be written, so no tool runs (see `/policy status`)."
            return Judgement(Deny(words, "audit.required"))
        if self.tools.scope.enabled and self.tools.scope.require_capability:
            try:
                self._sandbox.user()
            except ExecutorError as error:
                return Judgement(Deny(f"No tool runs: {error}", "tools.scope.require_capability"))
        approved = self.approvals.of(call.tool, call.arguments)
        decide = partial(self.deciders.decide, call, mode=mode.id, may_change=mode.changes, approved=approved)
        await self.audit.learn()
        decision = replace(await judged(self.deciders.roots, decide), approved=approved)
        if call.leaves and not isinstance(decision.verdict, Deny):
            decision = replace(decision, verdict=_leaving(call, decision.verdict))
        if isinstance(decision.verdict, Deny) and decision.verdict.approvable and call.call_id:
            self.approvals.violated(call.call_id, call.tool, call.arguments, decision.verdict.rule)
        return decision

    def _exposed(self, ask: Ask, facts: CallFacts) -> Ask | None:
        """The question that has to be asked all the same: no sandbox confines the command, or none can keep it from a
        link on the way to the agent's own files."""
        if not any(isinstance(access, ExecuteAccess) and access.confined for access in facts.accesses):
            return None
        if not self._runs_unconfined and self._lacks_sandbox(facts):
            return replace(ask, reason=f"{ask.reason}; {UNCONFINED}", every_time=True, notes=(*ask.notes, ONCE))
        if (link := self._exposed_link()) is None:
            return None
        replaces = f"it could replace the link {link}, through which the agent's own files are found"
        return replace(ask, reason=f"{ask.reason}; {replaces}", every_time=True)

    def _lacks_sandbox(self, call: CallFacts) -> bool:
        """Whether a command that should be confined is not, since no sandbox was found to work."""
        if call.place is not None:
            return call.place.lacks_walls
        found = self._sandbox.found
        return found is not None and found.sandbox.kind == "none" and not found.disabled

    def _exposed_link(self) -> Path | None:
        found, roots = self._sandbox.found, self.deciders.roots
        if found is None or found.disabled or not roots.disk.here:
            return None
        return next((link for link in roots.rules.links if roots.contains(link)), None)

    def placed(self, call: CallFacts, ask: Ask) -> Ask:
        """An answer about a command holds for one place. (One about files there is kept for the folder there.)"""
        place = call.place
        if place is None:
            return ask
        if not any(isinstance(access, ExecuteAccess) for access in call.accesses):
            files = not self.deciders.roots.disk.here and any(isinstance(each, PathAccess) for each in call.accesses)
            return replace(ask, scope_words=f"{ask.scope_words} {place.where}") if files else ask
        prefix, words = f"in:{quote(place.identity)} ", f" {place.where}"
        wider = None if ask.wider is None else (prefix + ask.wider[0], ask.wider[1] + words)
        scopes = tuple(prefix + scope for scope in ask.scopes)
        return replace(ask, scopes=scopes, scope_words=ask.scope_words + words, wider=wider)

    def _is_new(self, facts: CallFacts, mode: Mode) -> bool:
        """Whether the model may only be showing the call."""
        return facts.written and not mode.asks and not self._writes_calls

    def _as_the_mode_is(self, answer: PermissionResult, ask: Ask) -> PermissionResult:
        """Whether the user decided otherwise: the mode that they chose in the meantime is read-only."""
        if not ask.changes or (mode := self._choices.mode()).changes:
            return answer
        return refused(f"The mode is now `{mode.id}`, which is read-only. It was not run.")

    async def refuses(self, host: str) -> str:
        """Why nothing of the session may connect to a host, by the user's rules and answers; empty if it may."""
        rule = self.deciders.rules.permission(CONNECT, [host])
        if rule is not None and rule.effect == "deny":
            return rule.denial().reason
        answers = await self._answers()
        return f"The user chose never to allow {host}." if answers.get(f"send = {host}") == "reject" else ""

    def unknown_tools(self) -> list[str]:
        """A notice about rules for tools that do not exist. MCP tools may still be added."""
        tools = self.tools
        names = [*tools.permissions, *tools.scoped.allowed_tools, *tools.scoped.denied_tools]
        names += [rule.tool for rule in (*tools.policy.rules, *tools.authorization.rules)]
        names += [constraint.tool for constraint in tools.scoped.constraints]
        wild = [name for name in names if not any(char in name for char in "*?[") and not name.startswith("mcp_")]
        strange = [name for name in dict.fromkeys(wild) if name != CONNECT and not self._registry.knows(name)]
        unknown = ", ".join(f"`{name}`" for name in strange)
        return [f"Your rules name tools that do not exist: {unknown}."] if unknown else []

    # --- remembering ------------------------------------------------------------------------------------------

    async def remembered(self) -> Sequence[Permission]:
        """The answers that are remembered for the project."""
        return await self.store.do(self.store.permissions, self.project)

    async def revoke(self, number: int) -> bool:
        """Forgets a remembered answer; False if there is none with that number."""
        return await self.store.do(self.store.revoke, self.project, number)

    async def _answers(self) -> dict[str, Decision]:
        """Those that are remembered, by scope."""
        return {answer.scope: answer.decision for answer in await self.store.known_permissions(self.project)}

    async def _remembered(self, ask: Ask, mode: Mode, facts: CallFacts) -> Verdict:
        if ask.every_time:
            return ask
        answers = _with_wider(ask, await self._answers())
        if any(answers.get(scope) == "reject" for scope in ask.scopes):
            words = f"The user chose never to allow {ask.scope_words} (see /permissions). It was not run."
            return Deny(words, "a remembered answer")
        known = ask.scopes and all(answers.get(scope) == "allow" for scope in ask.scopes)
        if known and self._remembers:
            return Allow("a remembered answer")
        if facts.hooked is not None and facts.hooked.effect == "allow" and not ask.by_person:
            return Allow(facts.hooked.rule)
        command, allowed = self.allowed
        if allowed and not ask.by_person and await self._covers(allowed, facts):
            return Allow(f"command /{command}")
        if mode.asks or ask.by_person:
            return ask
        if facts.written and ask.changes and not self._writes_calls:
            return replace(ask, notes=(*ask.notes, WRITTEN_CALL))
        return Allow(f"mode {mode.id}")

    async def _covers(self, allowed: Sequence[str], facts: CallFacts) -> bool:
        """Whether one of these, as a written command names calls, covers the call."""
        roots = self.deciders.roots
        return any([await judged(roots, partial(load(COVERS), each, facts, roots)) for each in allowed])

    def _count(self, tool: str, scopes: Sequence[str], *, allowed: bool) -> None:
        """The user was asked about these."""
        count = partial(self.store.questions.answered, self.project, tool, scopes, allowed=allowed)
        self.store.later(count, partial(log.warning, "a question could not be counted: %s"))

    # --- asking -----------------------------------------------------------------------------------------------

    async def _ask(self, ask: Ask, call: acp.ToolCallUpdate) -> PermissionResult:
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
            return refused(f"The editor could not ask the user for permission ({error}), so the call was not run.")
        return await self._take(answer, ask)

    async def _review(self, call: acp.ToolCallUpdate) -> PermissionResult:
        """Puts the plan that `call` shows before the user."""
        try:
            review = await load(REVIEW)(self._client, call)
        except ConnectionClosed:
            raise
        except AgentError as error:
            log.warning("the plan could not be reviewed: %s", error)
            return refused(f"The editor could not show the plan to the user ({error}), so the mode stays.")
        if review.cancelled:
            return CANCELLED
        if review.mode is not None:
            return PermissionResult(True, mode=review.mode)
        words = f" Their words:\n{review.words}" if review.words else " They will say what should be different."
        return PermissionResult(
            False, f"{PLAN_REJECTED}{words}", "confirmation_required", ends_turn=not review.words,
            suggestion="Nothing may be changed yet.", shown="You did not approve the plan.",
        )  # fmt: skip

    def _only_once(self, ask: Ask) -> bool:
        return ask.every_time or any(self._redactor.redact(scope) != scope for scope in ask.scopes)

    async def _take(self, answer: acp.RequestPermissionResponse, ask: Ask) -> PermissionResult:
        match answer.outcome:
            case acp.CancelledPermissionOutcome():
                return CANCELLED
            case acp.SelectedPermissionOutcome(option_id="allow_once"):
                return ALLOWED
            case acp.SelectedPermissionOutcome(option_id="allow_always") if not self._only_once(ask):
                await self._remember(ask, "allow")
                return ALLOWED
            case acp.SelectedPermissionOutcome(option_id="allow_wider") if ask.wider and not self._only_once(ask):
                await self._remember(replace(ask, scopes=(ask.wider[0],)), "allow")
                return ALLOWED
            case acp.SelectedPermissionOutcome(option_id="reject_always") if not self._only_once(ask):
                await self._remember(ask, "reject")
                return REJECTED_BY_PERSON
            case acp.SelectedPermissionOutcome(option_id="reject_once", meta=meta):
                reason = (meta or {}).get("reason")
                if not isinstance(reason, str) or not reason.strip():
                    return REJECTED_BY_PERSON
                words = reason.strip()[:MAX_REASON_CHARS]
                return replace(
                    REJECTED_BY_PERSON, reason=f"{REJECTED} {INSTEAD}\n{words}", suggestion="Do what they say.",
                    shown=f"You did not allow this, and said what to do instead:\n{words}",
                )  # fmt: skip
            case acp.SelectedPermissionOutcome(option_id=unknown):
                return refused(f"The editor answered the permission request with an unknown option ({unknown!r}).")
        return refused("The editor's answer to the permission request was not understood.")

    async def _remember(self, ask: Ask, decision: Decision) -> None:
        for scope in ask.scopes:
            await self.store.do(self.store.remember, self.project, scope.split(" ", 1)[0], scope, decision)


def _leaving(call: CallFacts, verdict: Allow | Ask) -> Ask:
    """What runs in another place than the session's is asked about in every mode."""
    reason = f"it runs {HERE.where if call.place is None else call.place.where}, not where the session is"
    if isinstance(verdict, Allow):
        commands = tuple(f"bash = {each.command}" for each in call.accesses if isinstance(each, ExecuteAccess))
        once = call.apart or not commands
        return Ask(reason, commands, "this exact command", every_time=once, by_person=True, rule=verdict.rule)
    every_time = verdict.every_time or call.apart
    return replace(verdict, reason=f"{reason}; {verdict.reason}", every_time=every_time, by_person=True)


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
    """The call with why it is asked about."""
    lines = [load(ASKED_BECAUSE)(ask.reason, ask.rule), *ask.notes]
    text = acp.Content(content=acp.TextContent(text=legible("\n\n".join(lines))))
    shown = call.content if isinstance(call.content, list) else []
    meta = call.meta if isinstance(call.meta, dict) else {}
    asked = {"reason": ask.reason, "rule": ask.rule}
    return replace(call, content=[*shown, text], meta={**meta, "asked": asked})
