"""`[tools.policy]` and behind it `[tools.authorization]`: what calls may be made at all.

A deny that matches wins, wherever it stands. Else an allow that matches lets the call go on to the other deciders (it
answers no question), else `default` does. The model hears that the policy denied the call, and nothing more; which rule
it was goes to the audit log. No approval of a person's bypasses it.

A deny matches what it finds anywhere in a call: in one path, in one simple command of a line. An allow must match all
of it. A rule that cannot be read (no regular expression) denies every call of its tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from acp_agent.config.safety_settings import AuthorizationConfig, PolicyConfig, PolicyRule
from acp_agent.linear import PatternError, compiled
from acp_agent.safety.deciding.tool_patterns import Origin
from acp_agent.safety.globs import matches, matches_any

__all__ = ["MAX_RULES", "Policy", "PolicyVerdict", "Subject"]

MAX_RULES = 256
"""Of both lists together; those behind are refused as a whole (see `Policy.trouble`)."""


MAX_PATTERN_BYTES = 1024


@dataclass(frozen=True)
class Subject:
    """What of a call a policy looks at."""

    tool: str
    texts: tuple[str, ...] = ()
    """Texts of the arguments: each is one; of a command line the line itself and its simple commands in all their
    spellings."""
    whole: tuple[str, ...] = ()
    """What an allow must match, every one: the arguments, or the simple commands of a line."""
    paths: tuple[Path, ...] = ()
    """Resolved: what an allow must match, every one."""
    named: tuple[Path, ...] = ()
    """Further paths that a deny looks at: all that a command line may mean as one."""


@dataclass(frozen=True)
class PolicyVerdict:
    effect: Literal["allow", "deny"]
    trace: str
    """`tools.policy.rules[3] deny bash args_match=… (config.toml:30)`; empty where no rule matched."""


@dataclass(frozen=True)
class _Rule:
    name: str
    rule: PolicyRule
    origin: str

    def trace(self) -> str:
        rule = self.rule
        said = [f"{self.name} {rule.effect} {rule.tool}"]
        said += [f"paths={','.join(rule.paths)}"] if rule.paths else []
        said += [f"args_match={rule.args_match}"] if rule.args_match else []
        said += [f"env={','.join(rule.env)}"] if rule.env else []
        return " ".join(said) + (f" ({self.origin})" if self.origin else "")


class Policy:
    """`environ`: the agent's environment, for rules with `env`."""

    def __init__(
        self,
        policy: PolicyConfig,
        authorization: AuthorizationConfig,
        environ: Mapping[str, str],
        origin: Origin = lambda key, index: "",
    ) -> None:
        self._default = policy.default if policy.enabled else "allow"
        self._environ = environ
        rules = [*_named("tools.policy.rules", policy.rules if policy.enabled else (), origin)]
        rules += _named("tools.authorization.rules", authorization.rules if authorization.enabled else (), origin)
        self._rules = rules
        self.trouble: list[str] = []
        """What is wrong with the rules, in sentences."""
        if len(rules) > MAX_RULES:
            self.trouble.append(f"There are {len(rules)} policy rules; {MAX_RULES} are the most. Nothing is allowed.")
        self._broken: dict[str, str] = {}
        for rule in rules:
            texts = (rule.rule.tool, rule.rule.args_match, *rule.rule.paths)
            if any(len(text.encode("utf-8", "replace")) > MAX_PATTERN_BYTES for text in texts):
                self._broken[rule.name] = "too long"
                self.trouble.append(
                    f"{rule.name}: a pattern has more than {MAX_PATTERN_BYTES} bytes, so every call is denied."
                )
            if rule.rule.args_match:
                try:
                    compiled(rule.rule.args_match)
                except PatternError as error:
                    self._broken[rule.name] = str(error)
                    self.trouble.append(
                        f"{rule.trace()}: `args_match` is no regular expression ({error}), so every call of "
                        f"`{rule.rule.tool}` is denied."
                    )

    def __bool__(self) -> bool:
        return bool(self._rules) or self._default == "deny"

    def __len__(self) -> int:
        return len(self._rules)

    def lines(self) -> list[str]:
        """The rules, a line each."""
        return [rule.trace() for rule in self._rules] + [f"default {self._default}"]

    def hidden(self, tool: str) -> list[str]:
        """Globs of whole paths that a deny of `tool` covers whatever else is in the call: what it must never reach."""
        return [
            path
            for named in self._rules
            if named.rule.effect == "deny" and not named.rule.args_match and matches(named.rule.tool, tool)
            if self._in_environment(named.rule.env)
            for path in named.rule.paths
        ]

    def decide(self, subject: Subject) -> PolicyVerdict:
        if len(self._rules) > MAX_RULES:
            return PolicyVerdict("deny", f"more than {MAX_RULES} rules")
        allowed = ""
        for rule in self._rules:
            if rule.rule.effect == "deny" or rule.name in self._broken:
                if self._denies(rule, subject):
                    return PolicyVerdict("deny", rule.trace())
            elif not allowed and self._allows(rule.rule, subject):
                allowed = rule.trace()
        if allowed:
            return PolicyVerdict("allow", allowed)
        return PolicyVerdict(self._default, "default deny" if self._default == "deny" else "")

    def _denies(self, named: _Rule, subject: Subject) -> bool:
        rule = named.rule
        if self._broken.get(named.name) == "too long":
            return True
        if not matches(rule.tool, subject.tool) or not self._in_environment(rule.env):
            return False
        if named.name in self._broken:
            return True
        if rule.paths and not any(matches_any(rule.paths, str(path)) for path in (*subject.paths, *subject.named)):
            return False
        return not rule.args_match or _finds(rule.args_match, subject.texts)

    def _allows(self, rule: PolicyRule, subject: Subject) -> bool:
        if not matches(rule.tool, subject.tool) or not self._in_environment(rule.env):
            return False
        if rule.paths and not (subject.paths and all(matches_any(rule.paths, str(path)) for path in subject.paths)):
            return False
        return not rule.args_match or (
            bool(subject.whole) and all(_finds(rule.args_match, (text,)) for text in subject.whole)
        )

    def _in_environment(self, wanted: Mapping[str, str]) -> bool:
        return all(name in self._environ and matches(value, self._environ[name]) for name, value in wanted.items())


def _named(key: str, rules: Sequence[PolicyRule], origin: Origin) -> list[_Rule]:
    return [_Rule(f"{key}[{number}]", rule, origin(key, number)) for number, rule in enumerate(rules)]


def _finds(pattern: str, texts: Iterable[str]) -> bool:
    search = compiled(pattern).search
    return any(search(text) is not None for text in texts)
