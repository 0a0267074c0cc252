"""All rules of the configuration as one ordered list, each with its source file and line.

The sections, in the order they are checked; within one, the first rule that applies decides:

    limits       `[tools.scoped]`: a deny that the user may lift for one call (`/approve`)
    policy       `[tools.policy]`, then `[tools.authorization]`: a deny wins regardless of its position, so denies come
                 first; an allow lets the call continue (it answers no question); `default` decides the rest. The model
                 learns only that the policy denied the call. No approval by the user bypasses it
    sequences    `tools.governance.blocked_sequences`
    commands     `[tools.risk]`: what no command line may do
    permissions  `[tools.permissions]` (older: `blocked_commands`, `confirm_patterns` of `[tools.bash]`), a tool's own
                 before those of a glob: an allow answers a question, an ask asks even where nothing else would
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.config.model import BashConfig, ToolsConfig
from acp_agent.config.safety_settings import GovernanceConfig, PolicyRule, RiskConfig, ScopedConfig
from acp_agent.linear import PatternError, compiled
from acp_agent.safety.access import Deny
from acp_agent.safety.deciding.conditions import (
    Always,
    CallsOther,
    Completes,
    Condition,
    Fields,
    HighRisk,
    Limit,
    Names,
    Pattern,
    Tools,
)
from acp_agent.safety.deciding.subjects import Subject
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.globs import matches, whole_globs

Section = Literal["limits", "policy", "sequences", "commands", "permissions"]
Effect = Literal["allow", "ask", "deny"]

Origin = Callable[[str, int], str]
"""Location of an entry of a configuration list (`config.toml:14`), by dotted key and index."""

BEFORE: tuple[Section, ...] = ("limits", "policy", "sequences")
"""Sections applied to a call as a whole, before its accesses."""

POLICY_DENIED = "The policy denied this call. It was not run; do not try to achieve the same in another way."
EVERYTHING = frozenset(("*", "**"))
BASH = "bash"
MAX_POLICY_RULES = 256
"""Limit for both lists together; beyond it, nothing is allowed."""
MAX_PATTERN_BYTES = 1024


class Rule(Struct, frozen=True):
    section: Section
    name: str
    """`tools.permissions.bash[2]`"""
    effect: Effect
    tool: str
    """Glob for the tool's name."""
    condition: Condition
    origin: str = ""
    """`config.toml:14`"""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.effect, str(self.condition)))) + self._where

    @property
    def _where(self) -> str:
        return f" ({self.origin})" if self.origin else ""

    @property
    def label(self) -> str:
        """The name reported if this rule decides."""
        match self.section:
            case "limits":
                return self.name + self._where
            case "policy":
                return "policy"
            case "permissions":
                return str(self)
            case _:
                return self.name

    @property
    def pattern(self) -> str:
        """The pattern of a permission; else empty."""
        return self.condition.text if isinstance(self.condition, Pattern) else ""

    def spells(self, text: str) -> bool:
        """Whether the pattern spells out `text` and so was meant for it."""
        return text.lower() in self.pattern.lower()

    def denial(self, found: str = "") -> Deny:
        """`found`: its condition's description of the call."""
        if self.section == "permissions":
            found = f"A user's rule denies this call ({self.name}). It was not run."
        trace = str(self) if self.section in ("policy", "permissions") else ""
        return Deny(found, self.label, trace=trace, approvable=self.section == "limits")


class RuleList:
    """`trouble`: what is wrong with the rules, in sentences. An invalid rule denies."""

    def __init__(self, rules: Sequence[Rule], trouble: Sequence[str] = ()) -> None:
        self.rules = tuple(rules)
        self.trouble = tuple(trouble)

    @classmethod
    def compile(
        cls,
        config: ToolsConfig,
        environ: Mapping[str, str],
        home: Path | None = None,
        origin: Origin = lambda key, index: "",
        is_tool: Callable[[str], bool] = lambda name: False,
        roots: Roots | None = None,
    ) -> RuleList:
        """`environ`: the agent's environment, for rules with `env`; `is_tool` recognises tool names. `roots`: of the
        session, for relative paths."""
        policy, trouble = _policy(config, environ, origin, roots, home)
        rules = [
            *_limits(config.scoped, home, origin),
            *policy,
            *_sequences(config.governance, origin, is_tool),
            *_commands(config.risk, home or Path("/nonexistent"), origin),
            *_permissions(config, origin),
        ]
        return cls(rules, trouble)

    def of(self, section: Section) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.section == section)

    def applies(self, section: Section, subject: Subject, approved: Collection[str] = ()) -> tuple[Rule, str] | None:
        """The first rule of a section that applies to a call, with its condition's description. `approved`: labels of
        rules to skip."""
        for rule in self.of(section):
            tools = subject.call.tools if rule.effect == "deny" else (subject.tool,)
            asked = any(matches(rule.tool, tool) for tool in tools) and rule.label not in approved
            if asked and (found := rule.condition.found(subject)):
                return rule, found
        return None

    def before(self, subject: Subject, approved: Collection[str] = ()) -> Iterator[tuple[Rule, str]]:
        """The rules that decide about a call as a whole, in order."""
        for section in BEFORE:
            if (found := self.applies(section, subject, approved)) is not None:
                yield found

    # --- permissions ------------------------------------------------------------------------------------------

    def permissions(self, tool: str) -> list[Rule]:
        """A tool's permission rules, in order of precedence."""
        listed = [rule for rule in self.of("permissions") if rule.tool == tool or matches(rule.tool, tool)]
        return sorted(listed, key=lambda rule: rule.tool != tool)

    def permission(self, tool: str, texts: Sequence[str]) -> Rule | None:
        """The first rule that matches one of `texts`, several spellings of the same thing."""
        for rule in self.permissions(tool):
            if isinstance(rule.condition, Pattern) and rule.condition.holds(texts):
                return rule
        return None

    # --- derived facts ------------------------------------------------------------------------------------------

    def hides(self, tool: str) -> str | None:
        """Why a tool is not offered to the model at all: no call of it could ever run."""
        for rule in self.permissions(tool):
            if rule.effect != "deny":
                break
            if rule.pattern in EVERYTHING:
                return f"`{tool}` is denied ({rule})."
        for rule in self.of("limits"):
            if isinstance(rule.condition, Tools) and rule.condition.covers(tool):
                return f"`{tool}` is not among the allowed tools (`{rule.name}`)."
        return None

    def denied_paths(self) -> list[str]:
        """Globs of whole paths that some rule of a policy denies to some tool."""
        denies = (rule.condition for rule in self.rules if rule.section == "policy" and rule.effect == "deny")
        return [path for condition in denies if isinstance(condition, Fields) for path in condition.paths]

    def hidden_paths(self, tool: str) -> list[str]:
        """Globs of whole paths that a policy always denies to `tool`, whatever else is in the call."""
        return [
            path
            for rule in self.of("policy")
            if rule.effect == "deny" and matches(rule.tool, tool)
            if isinstance(rule.condition, Fields) and rule.condition.in_force and not rule.condition.args_match
            for path in rule.condition.paths
        ]

    def policy_lines(self) -> list[str]:
        """The policy's rules, one line each."""
        listed = [str(rule) for rule in self.of("policy")]
        return listed if not listed or listed[-1] == str(DEFAULT_DENY) else [*listed, "default allow"]


DEFAULT_DENY = Rule("policy", "default", "deny", "*", Always(POLICY_DENIED))


def _limits(config: ScopedConfig, home: Path | None, origin: Origin) -> Iterator[Rule]:
    if not config.enabled:
        return
    if config.allowed_tools:
        yield Rule("limits", "tools.scoped.allowed_tools", "deny", "*", Tools(config.allowed_tools, only=True))
    elif config.denied_tools:
        yield Rule("limits", "tools.scoped.denied_tools", "deny", "*", Tools(config.denied_tools, only=False))
    key = "tools.scoped.constraints"
    for number, limit in enumerate(config.constraints):
        yield Rule("limits", f"{key}[{number}]", "deny", limit.tool, Limit(limit, home), origin(key, number))


def _policy(
    config: ToolsConfig, environ: Mapping[str, str], origin: Origin, roots: Roots | None, home: Path | None
) -> tuple[list[Rule], list[str]]:
    policy, more = config.policy, config.authorization
    listed = [*_listed("tools.policy.rules", policy.rules if policy.enabled else (), origin)]
    listed += _listed("tools.authorization.rules", more.rules if more.enabled else (), origin)
    rules, trouble = [], []
    if len(listed) > MAX_POLICY_RULES:
        trouble.append(f"There are {len(listed)} policy rules; {MAX_POLICY_RULES} is the maximum. Nothing is allowed.")
        rules.append(Rule("policy", f"more than {MAX_POLICY_RULES} rules:", "deny", "*", Always(POLICY_DENIED)))
    for name, rule, where in listed:
        made, wrong = _policy_rule(name, rule, where, environ)
        if roots is not None and isinstance(fields := made.condition, Fields) and fields.paths:
            paths = whole_globs(fields.paths, roots.real, home, roots.disk)
            if not paths:
                wrong = f"{made}: no path can match it, so it denies every call of `{rule.tool}`."
                made = replace(made, effect="deny")
            made = replace(made, condition=replace(fields, paths=paths))
        rules.append(made)
        trouble += [wrong] if wrong else []
    rules.sort(key=lambda rule: rule.effect != "deny")
    return rules + ([DEFAULT_DENY] if policy.enabled and policy.default == "deny" else []), trouble


def _listed(key: str, rules: Sequence[PolicyRule], origin: Origin) -> Iterator[tuple[str, PolicyRule, str]]:
    for number, rule in enumerate(rules):
        yield f"{key}[{number}]", rule, origin(key, number)


def _policy_rule(name: str, rule: PolicyRule, origin: str, environ: Mapping[str, str]) -> tuple[Rule, str]:
    """Returns the rule and its errors: an invalid rule denies every call of its tools."""
    said = [rule.tool]
    said += [f"paths={','.join(rule.paths)}"] if rule.paths else []
    said += [f"args_match={rule.args_match}"] if rule.args_match else []
    said += [f"env={','.join(rule.env)}"] if rule.env else []
    words = " ".join(said)
    texts = (rule.tool, rule.args_match, *rule.paths)
    if any(len(text.encode("utf-8", "replace")) > MAX_PATTERN_BYTES for text in texts):
        wrong = f"{name}: a pattern has more than {MAX_PATTERN_BYTES} bytes, so every call is denied."
        return Rule("policy", name, "deny", "*", Always(POLICY_DENIED, words), origin), wrong
    in_force = all(key in environ and matches(value, environ[key]) for key, value in rule.env.items())
    fields = Fields(words, rule.paths, rule.args_match, in_force, rule.effect == "allow", POLICY_DENIED)
    made = Rule("policy", name, rule.effect, rule.tool, fields, origin)
    try:
        compiled(rule.args_match)
    except PatternError as error:
        wrong = f"{made}: `args_match` is not a regular expression ({error}), so every call of `{rule.tool}` is denied."
        return replace(made, effect="deny", condition=replace(fields, paths=(), args_match="", all=False)), wrong
    return made, ""


def _sequences(config: GovernanceConfig, origin: Origin, is_tool: Callable[[str], bool]) -> Iterator[Rule]:
    key = "tools.governance.blocked_sequences"
    for number, words in enumerate(config.blocked_sequences if config.trajectory_enabled else ()):
        condition = Completes.of(words, is_tool)
        yield Rule("sequences", f"{key}[{number}]", "deny", "*", condition, origin(key, number))


def _commands(config: RiskConfig, home: Path, origin: Origin) -> Iterator[Rule]:
    if config.forbidden_paths:
        name = "tools.risk.forbidden_paths"
        yield Rule("commands", name, "deny", "*", Names(config.forbidden_paths, home), origin(name, 0))
    if config.allowed_commands:
        name = "tools.risk.allowed_commands"
        yield Rule("commands", name, "deny", "*", CallsOther(config.allowed_commands), origin(name, 0))
    if config.block_high_risk_commands:
        yield Rule("commands", "tools.risk", "deny", "*", HighRisk())


def _permissions(config: ToolsConfig, origin: Origin) -> Iterator[Rule]:
    for tool, rules in config.permissions.items():
        key = f"tools.permissions.{tool}"
        for number, rule in enumerate(rules):
            where = origin(key, number)
            yield Rule("permissions", f"{key}[{number}]", rule.action, tool, Pattern(rule.pattern), where)
    if not config.permissions.get(BASH):
        yield from _older(config.bash, origin)


def _older(config: BashConfig, origin: Origin) -> Iterator[Rule]:
    """Plain texts to search for, with `*` as the only wildcard: used if `bash` has no rules."""
    older: tuple[tuple[str, Effect, Sequence[str]], ...] = (
        ("tools.bash.blocked_commands", "deny", config.blocked_commands),
        ("tools.bash.confirm_patterns", "ask", config.confirm_patterns),
    )
    for key, effect, texts in older:
        for number, text in enumerate(texts):
            if text.strip():
                escaped = "".join(f"[{char}]" if char in "?[" else char for char in text)
                pattern = Pattern(f"*{escaped}*")
                yield Rule("permissions", f"{key}[{number}]", effect, BASH, pattern, origin(key, number))
