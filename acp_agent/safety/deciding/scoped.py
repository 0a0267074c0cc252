"""`[tools.scoped]`: which tools may be used at all, and what their arguments must keep to.

A violation is told to the model in words, with the constraint. The person may let that one call pass: `/approve ID`
covers the next call of the same tool with the same arguments, once, and no other decider.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acp_agent.config.safety_settings import ScopedConfig, ScopedConstraint
from acp_agent.safety.deciding.tool_patterns import Origin
from acp_agent.safety.folders.paths import real_path
from acp_agent.safety.globs import matches, matches_any

__all__ = ["Approvals", "Scoped", "Violation", "texts_of"]


@dataclass(frozen=True)
class Violation:
    reason: str
    """A sentence for the model and the person."""
    rule: str


class Scoped:
    """The limits of a session. Pure."""

    def __init__(self, config: ScopedConfig, home: Path | None, origin: Origin = lambda key, index: "") -> None:
        self._config = config
        self._origin = origin
        self._folders = [
            tuple(_folder(text, home) for text in constraint.allowed_paths) for constraint in config.constraints
        ]

    def __bool__(self) -> bool:
        config = self._config
        return config.enabled and bool(config.allowed_tools or config.denied_tools or config.constraints)

    def hides(self, tool: str) -> str | None:
        """The rule that takes the tool away altogether."""
        config = self._config
        if not config.enabled:
            return None
        if config.allowed_tools:
            return None if matches_any(config.allowed_tools, tool) else "tools.scoped.allowed_tools"
        return "tools.scoped.denied_tools" if matches_any(config.denied_tools, tool) else None

    def check(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        paths: Sequence[Path],
        hosts: Sequence[str],
        more: Iterable[str],
        parts: Sequence[str] | None = None,
        approved: frozenset[str] = frozenset(),
    ) -> Violation | None:
        """The first limit a call does not keep to. `more`: other spellings of its arguments (of a command line, its
        simple commands), for what must not occur. `parts`: the simple commands of a command line, each of which is to
        match what must be matched; an empty text is one that is not literal. `approved`: limits it may break."""
        if (rule := self.hides(tool)) is not None and rule not in approved:
            return Violation(f"`{tool}` is not among the tools that may be used here.", rule)
        if not self._config.enabled:
            return None
        spellings = tuple(more)
        for number, constraint in enumerate(self._config.constraints):
            if matches(constraint.tool, tool):
                why = self._broken(constraint, self._folders[number], arguments, paths, hosts, spellings, parts)
                if why is not None:
                    key = "tools.scoped.constraints"
                    where = self._origin(key, number)
                    rule = f"{key}[{number}]" + (f" ({where})" if where else "")
                    if rule not in approved:
                        said = f"The call was not run: {why}. The person may let this one call pass."
                        return Violation(said, rule)
        return None

    def _broken(
        self,
        constraint: ScopedConstraint,
        folders: Sequence[Path],
        arguments: Mapping[str, Any],
        paths: Sequence[Path],
        hosts: Sequence[str],
        more: Sequence[str],
        parts: Sequence[str] | None,
    ) -> str | None:
        parameter = constraint.parameter
        given = [arguments[parameter]] if parameter in arguments else []
        texts = texts_of(given if parameter else arguments)
        for pattern in constraint.deny_patterns:
            if any(pattern.lower() in text.lower() for text in (*texts, *more)):
                return f"`{pattern}` must not occur in it"
        if constraint.allow_patterns:
            commands = parts if parts is not None and (not parameter or parameter == COMMAND) else None
            for text in commands or texts or ("",):
                if not matches_any(constraint.allow_patterns, text):
                    return f"its arguments must look like {' or '.join(f'`{p}`' for p in constraint.allow_patterns)}"
        if constraint.allowed_paths:
            if parts is not None and "" in parts:
                return "which paths the command means is known only when it runs"
            for path in paths:
                if not any(path == folder or folder in path.parents for folder in folders):
                    return f"{path} is not below {' or '.join(map(str, folders))}"
        if constraint.allowed_hosts:
            for host in hosts:
                if not matches_any(constraint.allowed_hosts, host):
                    return f"{host} is not among the hosts {', '.join(constraint.allowed_hosts)}"
        return None


@dataclass
class Approvals:
    """Which violations of a session the person let pass. Of one session."""

    _violations: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Call id -> what the call was, and which limit it broke; the newest last."""
    _approved: dict[str, frozenset[str]] = field(default_factory=dict)
    """What a call was -> the limits it may break once."""

    def violated(self, call_id: str, tool: str, arguments: Mapping[str, Any], rule: str) -> None:
        self._violations[call_id] = (_what(tool, arguments), rule)
        while len(self._violations) > MAX_VIOLATIONS:
            del self._violations[next(iter(self._violations))]

    def find(self, beginning: str) -> str | None:
        """The id of the violation that begins so; `None` where there is none, or several."""
        found = [call_id for call_id in self._violations if call_id.startswith(beginning)]
        return found[0] if len(found) == 1 and beginning else None

    @property
    def pending(self) -> list[str]:
        return list(self._violations)

    def approve(self, call_id: str) -> str:
        """Gives the limit that the call may break."""
        what, rule = self._violations.pop(call_id)
        self._approved[what] = self._approved.get(what, frozenset()) | {rule}
        return rule

    def take(self, tool: str, arguments: Mapping[str, Any]) -> frozenset[str]:
        """The limits that this call may break; it may once."""
        return self._approved.pop(_what(tool, arguments), frozenset())

    def keep(self, tool: str, arguments: Mapping[str, Any], rules: frozenset[str]) -> None:
        """The call broke another limit as well and was not run: what it may is not used up."""
        if rules:
            self._approved[_what(tool, arguments)] = rules


MAX_VIOLATIONS = 50

COMMAND = "command"
"""The parameter that holds a command line."""


def _what(tool: str, arguments: Mapping[str, Any]) -> str:
    return f"{tool} {json.dumps(arguments, sort_keys=True, default=str)}"


def texts_of(value: object) -> tuple[str, ...]:
    """Every text in the arguments of a call, keys of tables left out."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        return tuple(text for item in value.values() for text in texts_of(item))
    if isinstance(value, list | tuple):
        return tuple(text for item in value for text in texts_of(item))
    return () if value is None else (str(value),)


def _folder(text: str, home: Path | None) -> Path:
    path = Path(text)
    if home is not None and text.startswith("~"):
        path = home / text[1:].lstrip("/")
    return real_path(path)
