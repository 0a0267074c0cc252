"""`[tools.permissions]`: per tool an ordered list of patterns, each with allow, ask or deny; the first that matches
decides, and where none does the mode does.

What a pattern is compared with is the command for `bash`, the path (as the session shows it, and absolute) for tools of
files, the address for tools of the web, and else the arguments as JSON. A list belongs to the tools whose name its key
matches; the key that is the tool's own name comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from acp_agent.config.model import BashConfig
from acp_agent.config.safety_settings import PermissionRule
from acp_agent.safety.globs import matches

__all__ = ["Action", "Origin", "Permissions", "Rule"]

Action = Literal["allow", "ask", "deny"]

Origin = Callable[[str, int], str]
"""Where an entry of a list of the configuration stands (`config.toml:14`), by dotted key and index."""

EVERYTHING = frozenset(("*", "**"))
BASH = "bash"


@dataclass(frozen=True)
class Rule:
    """One line of a list."""

    name: str
    """`tools.permissions.bash[2]`"""
    pattern: str
    action: Action
    origin: str = ""

    def __str__(self) -> str:
        where = f" ({self.origin})" if self.origin else ""
        return f"{self.name} {self.action} `{self.pattern}`{where}"

    def names(self, text: str) -> bool:
        """Whether the pattern itself spells `text`: it was meant."""
        return text.lower() in self.pattern.lower()


class Permissions:
    """The lists of a person. Pure."""

    def __init__(self, lists: Mapping[str, Sequence[Rule]]) -> None:
        self._lists = lists

    @classmethod
    def from_config(
        cls, lists: Mapping[str, Sequence[PermissionRule]], bash: BashConfig, origin: Origin = lambda key, index: ""
    ) -> Permissions:
        """The older `blocked_commands` and `confirm_patterns` of `tools.bash` become rules where `bash` has none."""
        made = {
            tool: [
                Rule(f"tools.permissions.{tool}[{number}]", rule.pattern, rule.action, origin(key, number))
                for number, rule in enumerate(rules)
            ]
            for tool, rules in lists.items()
            for key in (f"tools.permissions.{tool}",)
        }
        if not made.get(BASH):
            older = [
                *_older("blocked_commands", bash.blocked_commands, "deny", origin),
                *_older("confirm_patterns", bash.confirm_patterns, "ask", origin),
            ]
            if older:
                made[BASH] = older
        return cls(made)

    def __bool__(self) -> bool:
        return any(self._lists.values())

    def of(self, tool: str) -> list[Rule]:
        """The rules of a tool, in the order they are tried."""
        own = list(self._lists.get(tool, ()))
        return own + [
            rule for key, rules in self._lists.items() if key != tool and matches(key, tool) for rule in rules
        ]

    def all(self) -> list[Rule]:
        return [rule for rules in self._lists.values() for rule in rules]

    def first(self, tool: str, texts: Sequence[str]) -> Rule | None:
        """The first rule that matches one of `texts`, several spellings of one thing."""
        return next((rule for rule in self.of(tool) if any(matches(rule.pattern, text) for text in texts)), None)

    def hides(self, tool: str) -> Rule | None:
        """The rule by which nothing a tool does can be allowed: then the model is not offered it."""
        for rule in self.of(tool):
            if rule.action != "deny":
                return None
            if rule.pattern in EVERYTHING:
                return rule
        return None


def _older(key: str, texts: Sequence[str], action: Action, origin: Origin) -> list[Rule]:
    name = f"tools.bash.{key}"
    return [
        Rule(f"{name}[{number}]", f"*{_escaped(text)}*", action, origin(name, number))
        for number, text in enumerate(texts)
        if text.strip()
    ]


def _escaped(text: str) -> str:
    """These were texts to be found, without wildcards but `*`."""
    return "".join(f"[{char}]" if char in "?[" else char for char in text)
