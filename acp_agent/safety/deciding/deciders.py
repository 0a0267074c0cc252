"""All deciders of a session about one tool call, in their order. Pure: what is remembered of earlier calls comes in.

    scoped -> policy -> what a session has learned (sentinel, anomalies, rate) -> folders and mode -> the command itself
    (forbidden paths, allow-list, risk, what the model claims) -> the person's own rules

Any deny denies; a rule's allow answers a question, never a deny; a rule's ask asks also where nothing else would. Each
verdict names what decided, for the person, the audit log and `acp-coder policy explain`.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acp_agent.config.model import ToolsConfig
from acp_agent.lazy import load
from acp_agent.safety.access import (
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
from acp_agent.safety.deciding.authorization import Policy, Subject
from acp_agent.safety.deciding.decide import combine, judge_access
from acp_agent.safety.deciding.scoped import Scoped, texts_of
from acp_agent.safety.deciding.tool_patterns import BASH, Origin, Permissions, Rule
from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.safety.globs import matches

if TYPE_CHECKING:
    from acp_agent.safety.lines.examined import Examined
    from acp_agent.safety.lines.risk import Risk

__all__ = ["EXAMINE", "POLICY_DENIED", "CallFacts", "Deciders", "Judgement"]

EXAMINE = "acp_agent.safety.lines.examine:examine"
FORBIDDEN_ARGUMENT = "acp_agent.safety.lines.arguments:forbidden_argument"
UNDERSTATED = "acp_agent.safety.lines.risk:understated"
PROGRAM_NAMES = "acp_agent.safety.lines.arguments:program_names"
"""Loaded with the first command: they bring tree-sitter."""

POLICY_DENIED = "The policy denied this call. It was not run; do not try to reach the same in another way."
MAX_SHOWN = 5
MAX_PATHS = 500
"""Of one call that are resolved."""


@dataclass(frozen=True)
class CallFacts:
    """A call to be judged."""

    tool: str
    arguments: Mapping[str, Any]
    accesses: Sequence[Access]
    call_id: str = ""


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    policy_match: str = ""
    """The policy's rule that matched, if one did."""
    risk: Risk | None = None
    """Of a command."""
    explained: tuple[str, ...] = ()
    """How it came to that, a line each."""


Learned = Callable[[CallFacts, Sequence[str]], Deny | None]


@dataclass(frozen=True)
class Deciders:
    """`learned`: why a call is blocked for what was before it, as a Deny; it is given the call and the spellings of its
    command, if it is one. `home`: the person's."""

    config: ToolsConfig
    roots: Roots
    permissions: Permissions
    policy: Policy
    scoped: Scoped
    home: Path | None
    learned: Learned = field(default=lambda call, spellings: None)

    @classmethod
    def from_config(
        cls,
        config: ToolsConfig,
        roots: Roots,
        environ: Mapping[str, str],
        home: Path | None,
        origin: Origin,
        learned: Learned = lambda call, spellings: None,
    ) -> Deciders:
        return cls(
            config,
            roots,
            Permissions.from_config(config.permissions, config.bash, origin),
            Policy(config.policy, config.authorization, environ, origin),
            Scoped(config.scoped, home, origin),
            home,
            learned,
        )

    def hides(self, tool: str) -> str | None:
        """Why the model is not offered a tool at all."""
        if (rule := self.permissions.hides(tool)) is not None:
            return f"`{tool}` is denied ({rule})."
        if (limit := self.scoped.hides(tool)) is not None:
            return f"`{tool}` is not among the tools that may be used here (`{limit}`)."
        return None

    def decide(
        self, call: CallFacts, *, mode: str, may_change: bool, approved: frozenset[str] = frozenset()
    ) -> Judgement:
        """`approved`: limits of `tools.scoped` that the person lets this call break."""
        if self.config.risk.autonomy == "readonly":
            mode, may_change = "readonly (tools.risk.autonomy)", False  # Whatever the session's mode.
        examined = {id(access): self._examined(access) for access in call.accesses}
        parses = [parse for parse in examined.values() if parse is not None]
        if (violation := self._violation(call, examined, approved)) is not None:
            return violation
        policy = self.policy.decide(self._subject(call, examined)) if self.policy else None
        matched = policy.trace if policy is not None else ""
        if policy is not None and policy.effect == "deny":
            return Judgement(Deny(POLICY_DENIED, "policy", trace=matched), matched)
        if (blocked := self.learned(call, [text for parse in parses for text in parse.candidates])) is not None:
            return Judgement(blocked, matched)
        verdicts = [self._one(call, access, examined[id(access)], mode, may_change) for access in call.accesses]
        if not call.accesses and (rule := self.permissions.first(call.tool, self._arguments(call))) is not None:
            verdicts = [_deny(rule)] if rule.action == "deny" else []
        risk = max((parse.risk for parse in parses), key=lambda risk: LEVELS.index(risk.level), default=None)
        lines = [line for parse in parses for line in (*parse.lines(), *self._rules_of(parse))]
        return Judgement(combine(verdicts), matched, risk, explained=tuple(lines))

    def _rules_of(self, parse: Examined) -> list[str]:
        """Which of the person's rules matches each part."""
        found = []
        for part in parse.parts:
            if (rule := self.permissions.first(BASH, part.spellings or (part.text,))) is not None:
                found.append(f"by a rule of yours: {part.text}: {rule}")
        return found

    # --- before the accesses ----------------------------------------------------------------------------------

    def _examined(self, access: Access) -> Examined | None:
        if not isinstance(access, ExecuteAccess):
            return None
        examined: Examined = load(EXAMINE)(access.command, self.roots, access.cwd)
        return examined

    def _violation(
        self, call: CallFacts, examined: Mapping[int, Examined | None], approved: frozenset[str]
    ) -> Judgement | None:
        if not self.scoped:
            return None
        parses = [parse for parse in examined.values() if parse is not None]
        paths = [access.path for access in call.accesses if isinstance(access, PathAccess)]
        for access in call.accesses:
            parse = examined[id(access)]
            if isinstance(access, ExecuteAccess) and parse is not None:
                targets = {link.target for part in parse.parts for link in part.redirects}
                named = [word for word in _named(parse) if word in targets or _is_path(word, access.cwd)]
                paths += [_resolved(access.cwd / word) for word in named if word != os.devnull]
        parts = [part.spelled for parse in parses for part in parse.parts] if parses else None
        if parses and not all(parse.understood for parse in parses):
            parts = [*(parts or ()), ""]
        hosts = [access.host for access in call.accesses if isinstance(access, NetworkAccess)]
        spellings = [text for parse in parses for text in parse.candidates]
        broken = self.scoped.check(call.tool, call.arguments, paths, hosts, spellings, parts, approved)
        if broken is None:
            return None
        return Judgement(Deny(broken.reason, broken.rule, approvable=True))

    def _subject(self, call: CallFacts, examined: Mapping[int, Examined | None]) -> Subject:
        parses = [parse for parse in examined.values() if parse is not None]
        texts = [*texts_of(call.arguments), *(text for parse in parses for text in parse.candidates)]
        whole = [part.spelled or part.text for parse in parses for part in parse.parts]
        paths = [access.path for access in call.accesses if isinstance(access, PathAccess)]
        named: list[Path] = []
        for access in call.accesses:
            parse = examined[id(access)]
            if isinstance(access, ExecuteAccess) and parse is not None:
                words = _named(parse)
                named += [access.cwd / word for word in (*words, *_expanded(parse, access.cwd))]
                paths += [access.cwd / word for word in words if "/" in word]
        return Subject(
            call.tool,
            tuple(map(_plain, texts)),
            tuple(map(_plain, whole or texts_of(call.arguments))),
            tuple(map(_resolved, paths[:MAX_PATHS])),
            tuple(map(_resolved, named[:MAX_PATHS])) + tuple(map(_lexical, named[MAX_PATHS:])),
        )

    # --- one access -------------------------------------------------------------------------------------------

    def _one(self, call: CallFacts, access: Access, examined: Examined | None, mode: str, may_change: bool) -> Verdict:
        if isinstance(access, ExecuteAccess):
            assert examined is not None
            if may_change:
                return self._command(call, access, examined)
        verdict = judge_access(access, self.roots, mode, may_change)
        if isinstance(access, ModeAccess):
            return verdict
        return self._by_rule(call, access, verdict)

    def _by_rule(self, call: CallFacts, access: Access, verdict: Verdict) -> Verdict:
        rule = self.permissions.first(call.tool, self._texts(call, access)) if self.permissions else None
        if rule is None or isinstance(verdict, Deny):
            return verdict
        if rule.action == "deny":
            return _deny(rule)
        if rule.action == "ask":
            if isinstance(verdict, Ask):
                return replace(verdict, by_person=True, rule=str(rule))
            scope, words = _scope(access)
            return Ask(f"{RULE_ASKS} ({rule.name})", (scope,), words, changes=False, by_person=True, rule=str(rule))
        if isinstance(verdict, Ask) and self._special_unnamed(access, rule):
            return verdict
        return Allow(str(rule))

    def _special_unnamed(self, access: Access, rule: Rule) -> bool:
        """Whether the access is to what other programs trust, and the rule that allows it does not say so."""
        if not isinstance(access, PathAccess):
            return False
        name = self.roots.rules.protects(access.path)
        return name is not None and not rule.names(name)

    def _texts(self, call: CallFacts, access: Access) -> list[str]:
        match access:
            case PathAccess(_, path):
                return [self.roots.display(path), str(path)]
            case NetworkAccess(host, what):
                return [what.rpartition(" ")[2], host]
            case ToolAccess(scope):
                return [scope, *self._arguments(call)]
            case _:
                return self._arguments(call)

    def _arguments(self, call: CallFacts) -> list[str]:
        return [json.dumps(call.arguments, ensure_ascii=False, sort_keys=True, default=str)]

    # --- a command --------------------------------------------------------------------------------------------

    def _command(self, call: CallFacts, access: ExecuteAccess, examined: Examined) -> Verdict:
        config = self.config.risk
        if config.forbidden_paths:
            home = self.home or Path("/nonexistent")
            if (named := load(FORBIDDEN_ARGUMENT)(examined, config.forbidden_paths, home)) is not None:
                return Deny(
                    f"The command names {named}, which no command may (`tools.risk.forbidden_paths`). It was not run.",
                    "tools.risk.forbidden_paths",
                )
        if config.allowed_commands and (why := self._not_listed(examined)) is not None:
            return Deny(why, "tools.risk.allowed_commands")
        risk = examined.risk
        if risk.level == "high" and config.block_high_risk_commands:
            words = _because(risk)
            return Deny(f"Commands of high risk are blocked here ({words}). It was not run.", "tools.risk")
        if (rule := self._denying(examined)) is not None:
            return _deny(rule)
        verdict = self._asked(access, examined, self._by_risk(examined))
        return verdict if isinstance(verdict, Deny) else self._checked_claim(access, examined, verdict)

    def _not_listed(self, examined: Examined) -> str | None:
        names = load(PROGRAM_NAMES)(examined)
        if names is None:
            return "Which programs the command calls is not known, and only listed ones may be called. It was not run."
        allowed = self.config.risk.allowed_commands
        for name in names:
            if not any(matches(pattern, name) for pattern in allowed):
                return f"`{name}` is not among the programs that may be called (`tools.risk.allowed_commands`)."
        return None

    def _denying(self, examined: Examined) -> Rule | None:
        """The rule that denies one of the spellings; each is matched as a line of its own."""
        for text in examined.candidates:
            rule = self.permissions.first(BASH, [text])
            if rule is not None and rule.action == "deny":
                return rule
        return None

    def _by_risk(self, examined: Examined) -> Allow | Ask:
        """What the command itself says, before the person's rules."""
        verdict, risk, config = examined.verdict, examined.risk, self.config.risk
        if isinstance(verdict, Allow):
            return verdict
        verdict = replace(verdict, notes=(*verdict.notes, f"Risk: {risk.level} ({_because(risk)})"))
        if config.autonomy == "full":
            return verdict
        if risk.level == "high":
            reason = f"it is dangerous: {_because(risk)}"
            return replace(verdict, reason=reason, every_time=True, rule=f"risk high: {_because(risk)}")
        if not config.ask_medium_risk and examined.understood:
            return Allow(f"risk {risk.level} (tools.risk.ask_medium_risk)")
        return verdict

    def _asked(self, access: ExecuteAccess, examined: Examined, verdict: Allow | Ask) -> Verdict:
        """With the person's rules: an allow answers, an ask asks."""
        if not access.confined and not self.config.sandbox.disabled:
            if self.config.sandbox.strict:
                return Deny(
                    "Nothing runs outside of the sandbox here (`tools.sandbox.strict`).", "tools.sandbox.strict"
                )
            reason = f"it runs outside of the sandbox, in {access.cwd}"
            ask = verdict if isinstance(verdict, Ask) else Ask("", (f"bash = {access.command}",), "this exact command")
            joined = f"{reason}; {ask.reason}" if ask.reason else reason
            return replace(ask, reason=joined, every_time=True, rule=f"outside of the sandbox; {ask.rule}".strip("; "))
        rules = self.permissions.of(BASH)
        if not rules:
            return verdict
        if isinstance(verdict, Ask) and not examined.understood and any(rule.action == "deny" for rule in rules):
            # It may be what a rule denies, in a form that nobody can see through.
            verdict = replace(verdict, by_person=True, rule=f"{verdict.rule}; rules deny some commands".lstrip("; "))
        for part in examined.parts:
            rule = self.permissions.first(BASH, part.spellings or (part.text,))
            if rule is not None and rule.action == "ask":
                return self._ask_by(rule, access, verdict)
        if not examined.parts and (rule := self.permissions.first(BASH, [access.command])) is not None:
            return self._ask_by(rule, access, verdict) if rule.action == "ask" else verdict
        used: dict[str, None] = {}

        def allowed(text: str) -> str | None:
            rule = self.permissions.first(BASH, [text])
            if rule is None or rule.action != "allow":
                return None
            used[str(rule)] = None
            return rule.pattern

        if isinstance(verdict, Ask) and examined.permitted_by(allowed):
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
            f"{'uses other rights' if claim.privesc else 'with your rights'}. Why: {claim.why}"
        )
        less: str | None = load(UNDERSTATED)(claim.risk, claim.mutation, claim.privesc, examined.risk)
        if less is None:
            return replace(verdict, notes=(said, *verdict.notes)) if isinstance(verdict, Ask) else verdict
        ask = (
            verdict
            if isinstance(verdict, Ask)
            else Ask("", (f"bash = {access.command}",), "this exact command", changes=False)
        )
        reason = f"the model claims less risk than there is ({less})"
        return replace(
            ask,
            reason=f"{ask.reason}; {reason}" if ask.reason else reason,
            every_time=True,
            rule=f"understated risk; {ask.rule}".strip("; "),
            notes=(said, *ask.notes),
        )


RULE_ASKS = "a rule of yours asks"
LEVELS = ("low", "medium", "high")


def _because(risk: Risk) -> str:
    return ", ".join(risk.reasons[:MAX_SHOWN]) or "it may change something"


def _deny(rule: Rule) -> Deny:
    return Deny(f"A rule of the person's denies this call ({rule.name}). It was not run.", str(rule), trace=str(rule))


def _named(parse: Examined) -> list[str]:
    """What of a command line may mean a path: arguments, values of options, where output goes."""
    words = [word for part in parse.parts for word in (part.words or ())[1:]]
    words += [link.target for part in parse.parts for link in part.redirects if link.target]
    return [value for word in words for value in (word, word.partition("=")[2]) if value]


def _is_path(word: str, cwd: Path) -> bool:
    """Whether a word means a path, as far as one can tell."""
    try:
        return "/" in word or (cwd / word).exists()
    except (OSError, ValueError):
        return True


def _expanded(parse: Examined, cwd: Path) -> list[str]:
    """What the wildcards of a line stand for now, where bash would expand them."""
    texts = {text for part in parse.parts if part.words is None for text in part.text.split()}
    found: list[str] = []
    for pattern in texts:
        if any(char in pattern for char in "*?["):
            with suppress(OSError, ValueError, re.error):
                found += islice(glob.iglob(pattern.strip("'\""), root_dir=cwd, include_hidden=True), MAX_PATHS)
    return found[:MAX_PATHS]


def _scope(access: Access) -> tuple[str, str]:
    match access:
        case PathAccess(mode, path):
            return f"{mode} = {path}", f"this for {path}"
        case NetworkAccess(host):
            return f"fetch = {host}", f"requests to {host}"
        case ToolAccess(scope, words):
            return scope, words
        case NoAccess():
            return "call", "calls of this tool"
    return "call", "calls like this"


def _plain(text: str) -> str:
    """Without lone surrogates, which no regular expression takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _resolved(path: Path) -> Path:
    try:
        return real_path(path)
    except (OSError, RuntimeError, ValueError):
        return _lexical(path)


def _lexical(path: Path) -> Path:
    return Path(os.path.normpath(path))
