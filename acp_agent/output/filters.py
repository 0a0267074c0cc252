"""Filters a command's output for the model: the rules that match the command, one after the other.

Pure. Rules are read by `filter_rules`, a rule's strategies are in `strategies`, and what none of them may do in
`cut`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acp_agent.output.cut import Confidence, carried_out, worst
from acp_agent.output.filter_rules import Rule, load_rules
from acp_agent.output.sanitize import encodable
from acp_agent.output.strategies import may_cut_strangers


@dataclass(frozen=True)
class Filtered:
    """An output after the filters."""

    text: str
    lines_before: int
    lines_after: int
    confidence: Confidence | None
    """The worst of all rules that matched; None where none did."""
    rules: tuple[str, ...]
    """Names of the rules that matched, in their order."""

    @property
    def percent(self) -> float:
        """How many of a hundred lines were removed."""
        if self.lines_before == 0:
            return 0.0
        return (1 - self.lines_after / self.lines_before) * 100

    def stats(self, tool: str) -> str:
        """`[bash] 342 lines -> 28 lines, 91.8% filtered`; empty where no line was removed."""
        if self.lines_after >= self.lines_before:
            return ""
        return f"[{tool}] {self.lines_before} lines -> {self.lines_after} lines, {self.percent:.1f}% filtered"


class Filters:
    """The rules of a session, in the order in which they are applied."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(rule.name for rule in self._rules)

    def matching(self, command: str) -> tuple[Rule, ...]:
        return tuple(rule for rule in self._rules if rule.matches(command)) if command else ()

    def apply(self, text: str, command: str, *, exit_code: int | None, alone: bool = True) -> Filtered:
        """Returns what the model reads of `text`, which `sanitize_output` went over.

        `command` is what `safety.last_command` makes of the command line, and `alone` whether nothing else in it may
        have printed. Never empty where `text` is not, never longer, and each line that looks like an error is in it.
        """
        rules = self.matching(command)
        text = encodable(text)
        end = "\n" if text.endswith("\n") else ""
        before = text.removesuffix("\n").split("\n") if text else []
        if not rules:
            return Filtered(text, len(before), len(before), None, ())
        lines = before
        confidences: list[Confidence] = [] if alone else ["Partial"]
        for rule in rules:
            lines, confidence = _through(rule, lines, failed=exit_code != 0, alone=alone)
            confidences.append(confidence)
        filtered = text if lines is before else "\n".join(lines) + end
        return Filtered(filtered, len(before), len(lines), worst(confidences), tuple(rule.name for rule in rules))


def load_filters(
    user_text: str | None = None,
    *,
    source: str = "filters.toml",
    disabled: Sequence[str] = (),
    max_diff_lines: int = 500,
) -> tuple[Filters, list[str]]:
    """The built-in rules with those of a user's file (its text, and its path for the warnings), and what is wrong
    with that file, in plain words."""
    rules, warnings = load_rules(user_text, source=source, disabled=disabled, max_diff_lines=max_diff_lines)
    return Filters(rules), warnings


def _through(rule: Rule, lines: list[str], *, failed: bool, alone: bool) -> tuple[list[str], Confidence]:
    """A strategy that found nothing of its own beside one that did takes nothing from the rule's confidence."""
    confidences: list[Confidence] = []
    for strategy in rule.strategies:
        if not alone and not may_cut_strangers(strategy):
            confidences.append("Fallback")
            continue
        cut = strategy.cut(lines)
        confidences.append(cut.confidence)
        if cut.confidence != "Fallback":
            kept = carried_out(lines, cut, failed=failed)
            lines = lines if kept == lines else kept
    return lines, worst(one for one in confidences if one != "Fallback") or "Fallback"
