"""Conditions under which a rule applies to a call. Pure; each describes what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from acp_agent.config.safety_settings import ScopedConstraint
from acp_agent.lazy import load
from acp_agent.linear import compiled
from acp_agent.safety.access import CONNECT
from acp_agent.safety.deciding.subjects import MAX_PATHS, Step, Subject, texts_of
from acp_agent.safety.globs import matches, matches_any

if TYPE_CHECKING:
    from acp_agent.disk import Disk

FORBIDDEN_ARGUMENT = "acp_agent.safety.lines.arguments:forbidden_argument"
PROGRAM_NAMES = "acp_agent.safety.lines.arguments:program_names"
"""Loaded with the first command: they import tree-sitter."""

COMMAND = "command"
"""The parameter that contains a command line."""
MAX_SHOWN = 5


class Condition(Protocol):
    """`str()` describes it in a list of rules."""

    def found(self, subject: Subject) -> str:
        """Returns a sentence for the model and the user saying why the call is stopped, if the rule denies; empty if
        the rule does not apply."""
        ...


class Always(Struct, frozen=True):
    words: str
    said: str = ""

    def __str__(self) -> str:
        return self.said

    def found(self, subject: Subject) -> str:
        return self.words


class Pattern(Struct, frozen=True):
    """`[tools.permissions]`: a glob of a command, a path, an address, or the arguments as JSON. Which one depends on
    the access, so it is compared with texts."""

    text: str

    def __str__(self) -> str:
        return f"`{self.text}`"

    def holds(self, texts: Iterable[str]) -> bool:
        """Whether it matches one of `texts`, several spellings of the same thing."""
        return any(matches(self.text, text) for text in texts)

    def found(self, subject: Subject) -> str:
        return self.text if self.holds(subject.texts) else ""


class Fields(Struct, frozen=True):
    """`[tools.policy]`: paths and arguments. A deny applies if any part of a call matches: one path, one simple command
    of a line. An allow must match all of it."""

    said: str
    paths: Sequence[str]
    args_match: str
    in_force: bool
    """Whether the agent's environment satisfies the rule."""
    all: bool
    words: str

    def __str__(self) -> str:
        return self.said

    def found(self, subject: Subject) -> str:
        return self.words if self.in_force and (self._all(subject) if self.all else self._any(subject)) else ""

    def _any(self, subject: Subject) -> bool:
        if self.paths and not any(matches_any(self.paths, str(path)) for path in (*subject.paths, *subject.named)):
            return False
        return not self.args_match or any(map(self._finds, subject.texts))

    def _all(self, subject: Subject) -> bool:
        paths = subject.paths if len(subject.paths) <= MAX_PATHS else ()  # Of more it is not known where they lead.
        if self.paths and not (paths and all(matches_any(self.paths, str(path)) for path in paths)):
            return False
        return not self.args_match or (bool(subject.whole) and all(map(self._finds, subject.whole)))

    def _finds(self, text: str) -> bool:
        return compiled(self.args_match).search(text) is not None


class Tools(Struct, frozen=True):
    """`[tools.scoped]`: tools that must not be used, or the only ones that may (`only`)."""

    patterns: Sequence[str]
    only: bool

    def __str__(self) -> str:
        return ("all but " if self.only else "") + ", ".join(self.patterns)

    def found(self, subject: Subject) -> str:
        tools = (subject.tool,) if self.only else subject.call.tools
        return f"`{subject.tool}` is not among the allowed tools." if any(map(self.covers, tools)) else ""

    def covers(self, tool: str) -> bool:
        if self.only and tool == CONNECT:
            return False  # It belongs to a call that was allowed.
        return matches_any(self.patterns, tool) is not self.only


class Limit(Struct, frozen=True):
    """`[[tools.scoped.constraints]]`: constraints on the arguments of a tool."""

    constraint: ScopedConstraint
    home: Path | None

    def __str__(self) -> str:
        return f"{self.constraint.tool} beyond its limit"

    def found(self, subject: Subject) -> str:
        why = self._broken(subject)
        return f"The call was not run: {why}. The user can allow this one call." if why else ""

    def _broken(self, subject: Subject) -> str:
        constraint, arguments, parts = self.constraint, subject.call.arguments, subject.parts
        parameter = constraint.parameter
        given = [arguments[parameter]] if parameter in arguments else []
        texts = texts_of(given if parameter else arguments)
        for pattern in constraint.deny_patterns:
            if any(pattern.lower() in text.lower() for text in (*texts, *subject.spellings)):
                return f"`{pattern}` must not occur in it"
        if constraint.allow_patterns:
            commands = parts if parts is not None and (not parameter or parameter == COMMAND) else None
            for text in commands or texts or ("",):
                if not matches_any(constraint.allow_patterns, text):
                    return f"its arguments must look like {' or '.join(f'`{p}`' for p in constraint.allow_patterns)}"
        if constraint.allowed_paths:
            if parts is not None and "" in parts:
                return "the paths the command uses are known only when it runs"
            disk = subject.roots.disk
            folders = [_folder(text, self.home, disk) for text in constraint.allowed_paths]
            for path in subject.meant:
                if not any(path == folder or folder in path.parents for folder in folders):
                    return f"{path} is not below {' or '.join(map(str, folders))}"
        if constraint.allowed_hosts:
            for host in subject.hosts:
                if not matches_any(constraint.allowed_hosts, host):
                    return f"{host} is not among the hosts {', '.join(constraint.allowed_hosts)}"
        return ""


TOOL = "tool:"


class Completes(Struct, frozen=True):
    """`tools.governance.blocked_sequences`: a list of words. A tool's name begins a step; the words after it must occur
    in the arguments of that call, in this order (in a command line as whole words). In a step of `bash` the names of
    tools are words like others (`git fetch`): there only `tool:NAME` begins a step. The last step is the call being
    judged; the others must have been made earlier in the session, in this order."""

    steps: tuple[tuple[str, tuple[str, ...]], ...]
    said: str

    def __str__(self) -> str:
        return self.said

    @classmethod
    def of(cls, words: Sequence[str], is_tool: Callable[[str], bool]) -> Completes:
        steps: list[list[str]] = []
        for word in words:
            name = word.removeprefix(TOOL)
            if not steps or (is_tool(name) and (name != word or steps[-1][0] != "bash")):
                steps.append([name])
            else:
                steps[-1].append(word)
        return cls(tuple((tool, tuple(rest)) for tool, *rest in steps), " ".join(words))

    def found(self, subject: Subject) -> str:
        ends = self.steps and any(_is(self.steps[-1], step) for step in subject.steps)
        rest = iter(subject.made)
        if not ends or not all(any(_is(step, call) for call in rest) for step in self.steps[:-1]):
            return ""
        return f"This call would complete a blocked sequence: {self.said}."


def _is(step: tuple[str, tuple[str, ...]], call: Step) -> bool:
    tool, wanted = step
    if tool != call.tool:
        return False
    words = iter(call.words)
    if tool == "bash":
        return all(any(want == word for word in words) for want in wanted)
    return all(any(want.lower() in word.lower() for word in words) for want in wanted)


class Names(Struct, frozen=True):
    """`tools.risk.forbidden_paths`: a command names one of them."""

    paths: Sequence[str]
    home: Path

    def __str__(self) -> str:
        return f"commands that name {', '.join(self.paths)}"

    def found(self, subject: Subject) -> str:
        for parse in subject.parses:
            if (named := load(FORBIDDEN_ARGUMENT)(parse, self.paths, self.home, subject.roots.disk)) is not None:
                why = f"The command names {named}, which no command may (`tools.risk.forbidden_paths`)."
                return f"{why} It was not run."
        return ""


class CallsOther(Struct, frozen=True):
    """`tools.risk.allowed_commands`: a command calls any other program."""

    programs: Sequence[str]

    def __str__(self) -> str:
        return f"commands that call other programs than {', '.join(self.programs)}"

    def found(self, subject: Subject) -> str:
        for parse in subject.parses:
            if (names := load(PROGRAM_NAMES)(parse)) is None:
                return (
                    "It is unknown which programs the command calls, and only listed ones are allowed. It was not run."
                )
            for name in names:
                if not matches_any(self.programs, name):
                    return f"`{name}` is not among the allowed programs (`tools.risk.allowed_commands`)."
        return ""


class HighRisk(Struct, frozen=True):
    """`tools.risk.block_high_risk_commands`."""

    def __str__(self) -> str:
        return "high-risk commands"

    def found(self, subject: Subject) -> str:
        for parse in subject.parses:
            if parse.risk.level == "high":
                words = because(parse.risk.reasons)
                return f"High-risk commands are blocked ({words}). It was not run."
        return ""


def because(reasons: Sequence[str]) -> str:
    more = f" and {len(reasons) - MAX_SHOWN} more" if len(reasons) > MAX_SHOWN else ""
    return ", ".join(reasons[:MAX_SHOWN]) + more or "it may change something"


def _folder(text: str, home: Path | None, disk: Disk) -> Path:
    path = Path(text)
    if home is not None and text.startswith("~"):
        path = home / text[1:].lstrip("/")
    return disk.real_path(path)
