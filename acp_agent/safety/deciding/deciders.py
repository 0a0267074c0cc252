"""The verdict on one tool call. Pure: state from earlier calls is passed in.

    rules on the call as a whole (limits, policy, sequences) -> blocks learned in the session (`blocks`) -> folders and
    mode -> the command itself (risk, the model's claim) -> the user's own rules (permissions)

Any deny denies; an allow rule answers a question but never overrides a deny; an ask rule asks even where nothing else
would. Each verdict names the rule that decided, for the user, the audit log and `acp-coder policy explain`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.config.model import ToolsConfig
from acp_agent.lazy import load
from acp_agent.safety.access import (
    CONNECT,
    Access,
    Allow,
    Ask,
    Deny,
    ExecuteAccess,
    ModeAccess,
    NetworkAccess,
    NoAccess,
    PathAccess,
    ToolAccess,
    Verdict,
)
from acp_agent.safety.deciding.blocks import Blocks
from acp_agent.safety.deciding.conditions import because
from acp_agent.safety.deciding.decide import combine, judge_access
from acp_agent.safety.deciding.rule_list import BASH, Origin, Rule, RuleList
from acp_agent.safety.deciding.subjects import EXAMINE, STANDS_FOR, CallFacts, Subject
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.globs import matches

if TYPE_CHECKING:
    from acp_agent.safety.lines.examined import Examined
    from acp_agent.safety.lines.risk import Risk

__all__ = ["EXAMINE", "CallFacts", "Deciders", "Judgement"]

UNDERSTATED = "acp_agent.safety.lines.risk:understated"
"""Loaded with the first command: it imports tree-sitter."""


class Judgement(Struct, frozen=True):
    verdict: Verdict
    policy_match: str = ""
    """The matching policy rule, if any."""
    risk: Risk | None = None
    """Risk of a command."""
    explained: tuple[str, ...] = ()
    """The reasons, one line each."""
    approved: frozenset[str] = frozenset()
    """Limits that the user lets it exceed once."""


class Deciders(Struct, frozen=True):
    """Deciders of one session. `blocks`: blocks it has learned; `None` if calls are only examined."""

    config: ToolsConfig
    roots: Roots
    rules: RuleList
    blocks: Blocks | None = None

    @classmethod
    def from_config(
        cls,
        config: ToolsConfig,
        roots: Roots,
        environ: Mapping[str, str],
        home: Path | None,
        origin: Origin,
        blocks: Blocks | None = None,
        is_tool: Callable[[str], bool] = lambda name: False,
    ) -> Deciders:
        """`home`: the user's home folder."""
        return cls(config, roots, RuleList.compile(config, environ, home, origin, is_tool, roots), blocks)

    def hides(self, tool: str) -> str | None:
        """Why a tool is not offered to the model at all."""
        return self.rules.hides(tool)

    def decide(
        self, call: CallFacts, *, mode: str, may_change: bool, approved: frozenset[str] = frozenset()
    ) -> Judgement:
        """`approved`: limits of `tools.scoped` that the user allows this call to exceed."""
        if self.config.risk.autonomy == "readonly":
            mode, may_change = "readonly (tools.risk.autonomy)", False  # Whatever the session's mode.
        subject = Subject(call, self.roots)
        if self.blocks is not None and self.blocks.sentinel.enabled:
            steps = self.blocks.steps(call, subject.spellings)
            subject = replace(subject, steps=steps, made=self.blocks.sentinel.made)
        matched = ""
        for rule, found in self.rules.before(subject, approved):
            matched = str(rule) if rule.section == "policy" else matched
            if rule.effect == "deny":
                return Judgement(rule.denial(found), matched)
        if self.blocks is not None and (blocked := self.blocks.check(call, subject.steps)) is not None:
            return Judgement(blocked, matched)
        verdicts = [self._one(subject, access, mode, may_change) for access in call.accesses]
        if not call.accesses and (last := self.rules.permission(call.tool, self._arguments(call))) is not None:
            verdicts = [last.denial()] if last.effect == "deny" else []
        risk = max((parse.risk for parse in subject.parses), key=lambda risk: LEVELS.index(risk.level), default=None)
        lines = [line for parse in subject.parses for line in (*parse.lines(), *self._rules_of(parse))]
        return Judgement(_hooked(call, combine(verdicts)), matched, risk, explained=tuple(lines))

    def _rules_of(self, parse: Examined) -> list[str]:
        """The user's rules that match each part."""
        found = []
        for part in parse.parts:
            if (rule := self.rules.permission(BASH, part.spellings or (part.text,))) is not None:
                found.append(f"by your rule: {part.text}: {rule}")
        return found

    # --- one access -------------------------------------------------------------------------------------------

    def _one(self, subject: Subject, access: Access, mode: str, may_change: bool) -> Verdict:
        if isinstance(access, ExecuteAccess) and may_change:
            return self._command(subject, access)
        verdict = judge_access(access, self.roots, mode, may_change)
        if isinstance(access, ModeAccess):
            return verdict
        if isinstance(access, NetworkAccess) and access.connects:
            verdict = self._by_network(access, verdict)
        return self._by_rule(subject.call, access, verdict)

    def _by_network(self, access: NetworkAccess, verdict: Verdict) -> Verdict:
        """The verdict on a connection of a command, before the user's rules."""
        sandbox = self.config.sandbox
        if isinstance(sandbox.network, list):
            if any(matches(pattern, text) for pattern in sandbox.network for text in self._places(access)):
                return Allow("tools.sandbox.network")
            words = f"Commands may not connect to {access.host}: it is not in the list `tools.sandbox.network`."
            return Deny(words, "tools.sandbox.network")
        if access.registry and sandbox.registries:
            return Allow("tools.sandbox.registries")
        return verdict

    def _by_rule(self, call: CallFacts, access: Access, verdict: Verdict) -> Verdict:
        rule = self._rule(call, access)
        if rule is None or isinstance(verdict, Deny):
            return verdict
        if rule.effect == "deny":
            return rule.denial()
        if rule.effect == "ask":
            if isinstance(verdict, Ask):
                return replace(verdict, by_person=True, rule=str(rule))
            scope, words = _scope(access)
            return Ask(f"{RULE_ASKS} ({rule.name})", (scope,), words, changes=False, by_person=True, rule=str(rule))
        if isinstance(verdict, Ask) and self._special_unnamed(access, rule):
            return verdict
        return Allow(str(rule))

    def _rule(self, call: CallFacts, access: Access) -> Rule | None:
        """The user's rule for an access: one for the tool, or one that denies or asks for a tool it stands for."""
        texts = self._texts(call, access)
        own = self.rules.permission(call.tool, texts)
        if isinstance(access, NetworkAccess) and own is None:
            return self.rules.permission(CONNECT, [access.host, access.name])  # For web tools, too.
        if not isinstance(access, PathAccess) or (own is not None and own.tool == call.tool):
            return own
        names = STANDS_FOR.get((call.tool, access.mode), ())
        found = [rule for name in names if (rule := self.rules.permission(name, texts)) is not None]
        stricter = {rule.effect: rule for rule in found if rule.effect != "allow"}
        return stricter.get("deny") or stricter.get("ask") or own

    def _special_unnamed(self, access: Access, rule: Rule) -> bool:
        """Whether the accessed file is one that other programs trust, or a key file, and the allow rule does not name
        it."""
        if not isinstance(access, PathAccess):
            return False
        rules = self.roots.rules
        name = rules.protects(access.path) or rules.key_file(access.path)
        return name is not None and not rule.spells(name)

    def _texts(self, call: CallFacts, access: Access) -> list[str]:
        match access:
            case PathAccess(_, path):
                return [self.roots.display(path), str(path)]
            case NetworkAccess():
                return self._places(access)
            case ToolAccess(scope):
                return [scope, *self._arguments(call)]
            case _:
                return self._arguments(call)

    def _places(self, access: NetworkAccess) -> list[str]:
        """The URL, or host and port; and the host."""
        return [access.what.rpartition(" ")[2], access.host, access.name]

    def _arguments(self, call: CallFacts) -> list[str]:
        return [json.dumps(call.arguments, ensure_ascii=False, sort_keys=True, default=str)]

    # --- a command --------------------------------------------------------------------------------------------

    def _command(self, subject: Subject, access: ExecuteAccess) -> Verdict:
        alone = replace(subject, call=replace(subject.call, accesses=(access,)))
        if (denied := self.rules.applies("commands", alone)) is not None:
            return denied[0].denial(denied[1])
        examined = subject.examined(access)
        if (rule := self._denying(examined)) is not None:
            return rule.denial()
        verdict = self._asked(access, examined, self._by_risk(examined))
        return verdict if isinstance(verdict, Deny) else self._checked_claim(access, examined, verdict)

    def _denying(self, examined: Examined) -> Rule | None:
        """The rule that denies one of the spellings; each is matched as a separate line."""
        for text in examined.candidates:
            rule = self.rules.permission(BASH, [text])
            if rule is not None and rule.effect == "deny":
                return rule
        return None

    def _by_risk(self, examined: Examined) -> Allow | Ask:
        """The verdict on the command itself, before the user's rules."""
        verdict, risk, config = examined.verdict, examined.risk, self.config.risk
        if isinstance(verdict, Allow):
            return verdict
        if risk.level == "high":
            verdict = replace(verdict, notes=(*verdict.notes, "Risk: high"))
        if config.autonomy == "full":
            return verdict
        if risk.level == "high":
            reason, rule = because(risk.reasons), f"risk high: {because(risk.reasons)}"
            if verdict.by_person:
                reason, rule = f"{reason}; {verdict.reason}", f"{rule}; {verdict.rule}"
            return replace(verdict, reason=reason, every_time=True, rule=rule)
        if not config.ask_medium_risk and examined.understood and not verdict.by_person:
            return Allow(f"risk {risk.level} (tools.risk.ask_medium_risk)")
        return verdict

    def _asked(self, access: ExecuteAccess, examined: Examined, verdict: Allow | Ask) -> Verdict:
        """Applies the user's rules: an allow answers, an ask asks."""
        if not access.confined and not self.config.sandbox.disabled:
            if self.config.sandbox.strict:
                return Deny("Nothing may run outside the sandbox (`tools.sandbox.strict`).", "tools.sandbox.strict")
            reason = f"it runs outside the sandbox, in {access.cwd}"
            ask = verdict if isinstance(verdict, Ask) else Ask("", (f"bash = {access.command}",), "this exact command")
            joined = f"{reason}; {ask.reason}" if ask.reason else reason
            return replace(ask, reason=joined, every_time=True, rule=f"outside the sandbox; {ask.rule}".strip("; "))
        rules = self.rules.permissions(BASH)
        if not rules:
            return verdict
        if isinstance(verdict, Ask) and not examined.understood and any(rule.effect == "deny" for rule in rules):
            # It may be something a rule denies, in an unrecognisable form.
            verdict = replace(verdict, by_person=True, rule=f"{verdict.rule}; rules deny some commands".lstrip("; "))
        for part in examined.parts:
            rule = self.rules.permission(BASH, part.spellings or (part.text,))
            if rule is not None and rule.effect == "ask":
                return self._ask_by(rule, access, verdict)
        if not examined.parts and (rule := self.rules.permission(BASH, [access.command])) is not None:
            return self._ask_by(rule, access, verdict) if rule.effect == "ask" else verdict
        used: dict[str, None] = {}

        def allowed(text: str) -> str | None:
            rule = self.rules.permission(BASH, [text])
            if rule is None or rule.effect != "allow":
                return None
            used[str(rule)] = None
            return rule.pattern

        if isinstance(verdict, Ask) and examined.permitted_by(allowed) and used:  # Only an allow rule answers.
            return Allow("; ".join(used))
        return verdict

    def _ask_by(self, rule: Rule, access: ExecuteAccess, verdict: Allow | Ask) -> Ask:
        if isinstance(verdict, Ask):
            return replace(verdict, by_person=True, rule=f"{rule}; {verdict.rule}".rstrip("; "))
        scope = f"bash = {access.command}"
        return Ask(f"{RULE_ASKS} ({rule.name})", (scope,), "this exact command", by_person=True, rule=str(rule))

    def _checked_claim(self, access: ExecuteAccess, examined: Examined, verdict: Allow | Ask) -> Allow | Ask:
        claim = access.claim
        if claim is None:
            return verdict
        said = (
            f"The model says: risk {claim.risk}, {'changes something' if claim.mutation else 'changes nothing'}, "
            f"{'uses other privileges' if claim.privesc else 'with your privileges'}. Why: {claim.why}"
        )
        less: str | None = load(UNDERSTATED)(claim.risk, claim.mutation, claim.privesc, examined.risk)
        if less is None:
            return replace(verdict, notes=(said, *verdict.notes)) if isinstance(verdict, Ask) else verdict
        ask = (
            verdict
            if isinstance(verdict, Ask)
            else Ask("", (f"bash = {access.command}",), "this exact command", changes=False)
        )
        reason = f"the model understates the risk ({less})"
        return replace(
            ask,
            reason=f"{ask.reason}; {reason}" if ask.reason else reason,
            every_time=True,
            rule=f"understated risk; {ask.rule}".strip("; "),
            notes=(said, *ask.notes),
        )


def _hooked(call: CallFacts, verdict: Verdict) -> Verdict:
    """The stricter of the verdict and what the hooks said. An `allow` of theirs answers a question
    (`Permissions`)."""
    said = call.hooked
    if said is None or isinstance(verdict, Deny) or said.effect == "allow":
        return verdict
    if said.effect == "deny":
        return Deny(said.denial, said.rule)
    reason = f"the hook `{said.name}` wants you to decide{said.because}"
    if isinstance(verdict, Ask):
        joined, rule = f"{reason}; {verdict.reason}", f"{said.rule}; {verdict.rule}".rstrip("; ")
        return replace(verdict, reason=joined, every_time=True, by_person=True, rule=rule)
    return Ask(reason, (), "this exact call", changes=call.acts, every_time=True, by_person=True, rule=said.rule)


RULE_ASKS = "one of your rules asks"
LEVELS = ("low", "medium", "high")


def _scope(access: Access) -> tuple[str, str]:
    match access:
        case PathAccess(mode, path):
            return f"{mode} = {path}", f"this for {path}"
        case NetworkAccess(host):
            return f"fetch = {host}", f"requests to {host}"
        case ToolAccess(words=words):
            return access.answered, words
        case NoAccess():
            return "call", "calls of this tool"
    return "call", "calls like this"
