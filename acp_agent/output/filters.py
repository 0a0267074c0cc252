"""Filters a command's output for the model by applying the matching rules one after the other.

Pure. Rules are read by `filter_rules`, their strategies are in `strategies`, and what no strategy may do is enforced
by `cut`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from acp_agent.output.cut import Confidence, carried_out, worst
from acp_agent.output.filter_rules import Rule, load_rules
from acp_agent.output.sanitize import encodable
from acp_agent.output.strategies import may_cut_strangers


class Filtered(Struct, frozen=True):
    """An output after filtering."""

    text: str
    lines_before: int
    lines_after: int
    confidence: Confidence | None
    """The worst of all matching rules; None if none matched."""
    rules: tuple[str, ...]
    """Names of the matching rules, in order."""

    @property
    def percent(self) -> float:
        """Percentage of lines that were removed."""
        if self.lines_before == 0:
            return 0.0
        return (1 - self.lines_after / self.lines_before) * 100

    def stats(self, tool: str) -> str:
        """`[bash] 342 lines -> 28 lines, 91.8% filtered`; empty if no line was removed."""
        if self.lines_after >= self.lines_before:
            return ""
        return f"[{tool}] {self.lines_before} lines -> {self.lines_after} lines, {self.percent:.1f}% filtered"


class Filters:
    """The rules of a session, in the order of application."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(rule.name for rule in self._rules)

    def matching(self, command: str) -> tuple[Rule, ...]:
        return tuple(rule for rule in self._rules if rule.matches(command)) if command else ()

    def apply(self, text: str, command: str, *, exit_code: int | None, alone: bool = True) -> Filtered:
        """Returns what the model reads of `text`, the result of `sanitize_output`.

        `command` is the result of `safety.last_command`, and `alone` whether nothing else in the line may have
        printed. Not empty unless `text` is, never longer, and each line that looks like an error is in it.
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
    """The built-in rules with those of a user's file (its text, and its path for the warnings), and the errors in that
    file, as sentences."""
    rules, warnings = load_rules(user_text, source=source, disabled=disabled, max_diff_lines=max_diff_lines)
    return Filters(rules), warnings


def _through(rule: Rule, lines: list[str], *, failed: bool, alone: bool) -> tuple[list[str], Confidence]:
    """Strategies that found nothing do not lower the rule's confidence if another one did."""
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
