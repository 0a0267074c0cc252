"""An examined command line, and whether allow rules cover it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from acp_agent.safety.access import Allow, Ask
from acp_agent.safety.lines.line import Redirect, Simple
from acp_agent.safety.lines.reach import CHANGES, EXPANDS, WRITES
from acp_agent.safety.lines.risk import Risk

Match = Callable[[str], str | bool | None]
"""Returns the pattern that allows a text; `True` if it does but the pattern is not known."""

WILD = re.compile(r"[*?\[]")


class Part(Struct, frozen=True):
    """One simple command."""

    simple: Simple
    inside: int | None
    """Index of the part whose words contain it."""
    folders: tuple[Path, ...]
    """Possible current directories; empty if unknown."""
    looks: bool
    neutral: bool
    """Does nothing but what the parts inside it do."""
    contained: bool
    """Its paths and the files it writes are inside the session's folders, and not protected."""
    reason: str
    rule: str
    """The reason in short: `looks:git status`, `scope:cargo test`, `dangerous:git -c`, `redirect`, `not literal`, …"""
    risk: Risk
    dangers: tuple[str, ...]
    """Words that a pattern must spell out; an empty one cannot be matched by a pattern with wildcards."""
    shown: tuple[str, ...]
    """Texts compared with allow patterns: first with its redirections and variables, last without. Empty if none may
    match."""
    spellings: tuple[str, ...]
    """Texts compared with deny and ask patterns."""

    @property
    def text(self) -> str:
        return self.simple.text

    @property
    def words(self) -> tuple[str, ...] | None:
        """Words as bash passes them; `None` if known only at run time."""
        return self.simple.words if self.simple.literal and self.simple.words else None

    @property
    def rough(self) -> tuple[str, ...]:
        """Words as far as known."""
        return self.simple.words

    @property
    def program(self) -> str | None:
        return self.simple.program

    @property
    def redirects(self) -> tuple[Redirect, ...]:
        return self.simple.redirects

    @property
    def spelled(self) -> str:
        """The last, plainest entry of `shown`."""
        return self.shown[-1] if self.shown else ""


class Examined(Struct, frozen=True):
    command: str
    understood: bool
    trouble: str
    """Why it is not understood."""
    parts: tuple[Part, ...]
    candidates: tuple[str, ...]
    """Every text that deny rules are tested on."""
    verdict: Allow | Ask
    """Whether it may run without asking."""
    risk: Risk
    cwd: Path = Path("/")

    def permitted_by(self, match: Match) -> bool:
        """Whether allow rules cover all of it. What `judge` allows needs none."""
        if isinstance(self.verdict, Allow):
            return True
        return self.understood and bool(self.parts) and all(self.permitted_part(part, match) for part in self.parts)

    def permitted_part(self, part: Part, match: Match) -> bool:
        """Whether allow rules cover one part whose line is understood."""
        if part.looks or (part.neutral and part.contained):
            return True
        if part.words is None or not part.contained:
            return False
        if any(covers(match(text), part.dangers) for text in part.shown):
            return True
        dangers = (part.words[0], *part.dangers)
        outer = part.inside
        while outer is not None:
            around = self.parts[outer]
            if around.words is None or not around.contained:
                return False
            if around.spelled and covers(match(around.spelled), (*around.dangers, *dangers)):
                return True
            outer = around.inside
        return False

    def lines(self) -> list[str]:
        """For the user: each part below the one that contains it."""
        told = [f"not understood: {self.trouble}"] if not self.understood else []
        for part in self.parts:
            depth, outer = 0, part.inside
            while outer is not None:
                depth, outer = depth + 1, self.parts[outer].inside
            verdict = "runs without asking" if part.looks else f"asks, since {part.reason}"
            if part.neutral:
                verdict = "does what is inside it"
            why = f" ({'; '.join(part.risk.reasons)})" if part.risk.reasons else ""
            text = " ".join(part.text.split())
            told.append(f"{'  ' * depth}{text}: {verdict} [{part.rule}], risk {part.risk.level}{why}")
        told.append(f"whole line: risk {self.risk.level} ({'; '.join(self.risk.reasons)})")
        return told


NAMED = "protected: "
"""Marks a danger that is a protected name: a rule must contain it, at any position."""


def covers(pattern: str | bool | None, dangers: Iterable[str]) -> bool:
    """Whether a matching pattern was also meant for the dangerous words."""
    if not pattern:
        return False
    if isinstance(pattern, bool):
        return not any(True for _ in dangers)
    return WILD.search(pattern) is None or all(_spells(pattern, danger) for danger in dangers)


def _spells(pattern: str, danger: str) -> bool:
    if danger == ">":
        return " >" in pattern
    if danger.startswith(NAMED):
        return danger.removeprefix(NAMED) in pattern
    # The letter of an option may be followed by other letters, or by its value.
    glued = danger.endswith("=") or re.fullmatch(r"-\w", danger) is not None
    end = "" if glued else r"(?=[ =*]|\Z)"
    return bool(danger) and re.search(rf"(?:\A| ){re.escape(shlex.quote(danger))}{end}", pattern) is not None


def decided(
    words: tuple[str, ...] | None,
    looks: bool,
    neutral: bool,
    dangers: Sequence[str],
    writes: Sequence[Redirect],
    scopes: tuple[str, ...] | None,
    reason: str,
) -> tuple[str, str]:
    """The name of the rule that decides about a part, and why it asks."""
    if looks:
        return f"looks:{_short(words)}".rstrip(":"), ""
    if writes:
        return "redirect", WRITES
    if words is None:
        return "not literal", reason or EXPANDS
    if neutral:
        return f"wrapper:{words[0]}", reason or CHANGES
    if scopes:
        return f"scope:{scopes[0].removeprefix('bash ')}", CHANGES
    if dangers:
        return f"dangerous:{words[0]} {dangers[0]}" if dangers[0] != words[0] else f"dangerous:{words[0]}", (
            reason or CHANGES
        )
    return "unknown" if reason in ("", CHANGES) else f"unknown: {reason}", reason or CHANGES


def _short(words: tuple[str, ...] | None) -> str:
    if not words:
        return ""
    return " ".join(words[:2]) if len(words) > 1 and re.fullmatch(r"[a-z][\w-]*", words[1]) else words[0]
